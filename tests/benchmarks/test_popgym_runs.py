"""Minutes long: every agent of the figure runs on each POPGym task, and the paper's settings start there."""

import numpy as np
import pytest
import torch

from amago_core.agent import Agent
from amago_core.checkpoint import load_state, save_state
from amago_core.collect import Collector
from amago_core.config import Rollout
from amago_core.learner import Learner
from amago_core.replay import Replay
from amago_core.sampler import Sampler
from amago_core.sequences import timestep_layout
from analysis.figures import FIGURES
from benchmarks import api
from benchmarks.agents.presets import configure
from benchmarks.catalog import get_task
from benchmarks.gate.harness_env import HarnessEnv
from benchmarks.long_term_memory.popgym.tasks import PAPER_TASKS, TASKS
from results.errors import UserError

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("agent", ["random", "oracle", *FIGURES["popgym"].agents])
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id.split("/")[-1])
def test_smoke_runs_end_or_say_why_not(task, agent, tmp_path):
    if agent == "sb3-recurrent-ppo" and not task.id.endswith("Easy"):
        pytest.skip("the slowest agent plays one task of a family")
    if agent == "oracle" and task.oracle is None:
        with pytest.raises(UserError, match="no oracle policy; agent 'scripted' plays it"):
            api.run(task.id, agent, tier="smoke", seed=0, root=tmp_path)
        agent = "scripted"
    run = api.run(task.id, agent, tier="smoke", seed=0, root=tmp_path)
    final = run.rows("curves").iloc[-1]
    assert final["final"] and -1.3 < final["return_mean"] < 1 + 1e-6


@pytest.mark.parametrize("task_id", PAPER_TASKS, ids=lambda task_id: task_id.split("/")[-1])
def test_the_paper_tier_starts_makes_an_update_and_saves(task_id, tmp_path):
    task = get_task(task_id)
    envs = HarnessEnv(task.make(24), task, np.random.SeedSequence(0), "train")
    config = configure("amago", task, "paper", {"device": "cpu"})
    rollout = Rollout(task.horizon, time_scale=task.time_scale)
    agent = Agent(config, envs.single_observation_space, envs.single_action_space, rollout, np.random.SeedSequence(1))
    layout = timestep_layout(agent.observations, agent.actions)
    replay = Replay(tmp_path, layout, 50 * (task.horizon + 1), 10_000)
    Collector(envs, agent, replay, np.random.SeedSequence(2)).collect(task.horizon)
    before = {name: weight.clone() for name, weight in agent.named_parameters()}
    learner, sampler = Learner(agent), Sampler(replay, 24, config.batch_tokens, config.context)
    for _ in range(2):  # the warm-up gives the first one the learning rate 0
        learner.update(sampler.sample(np.random.default_rng(0)))
    weights = dict(agent.named_parameters())
    assert all(torch.isfinite(weight).all() for weight in weights.values())
    assert any(not torch.equal(weight, before[name]) for name, weight in weights.items())
    save_state(tmp_path / "agent.pt", agent.state_dict())
    saved = load_state(tmp_path / "agent.pt")
    assert all(torch.equal(saved[name], weight) for name, weight in agent.state_dict().items())
