"""The random agent and the oracle: the two ends of every normalised score."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from benchmarks.agents.oracle import Oracle
from benchmarks.agents.protocol import Agent, AgentSpec, Progress, VectorStep
from benchmarks.agents.random import Random
from benchmarks.catalog import get_task
from results.errors import UserError

PASSIVE, ACTIVE = (get_task(f"long_term_memory/tmaze/{kind}-10") for kind in ("passive", "active"))


def spec(task=PASSIVE, action_space=None, folder=None):
    env = task.make(1)
    action_space = action_space or env.single_action_space
    return AgentSpec(task, "smoke", 0, env.single_observation_space, action_space, 8, 100, {}, 1, folder)


def play(agent, task, slots, rollouts, seed=0):
    """Returns [rollouts, slots]. Memory is handed on from rollout to rollout, as in an evaluation."""
    env, rng, memory = task.make(slots), np.random.default_rng(seed), None
    returns = np.zeros((rollouts, slots))
    for rollout in range(rollouts):
        observation, _ = env.reset(seed=1000 * seed + rollout)
        reward, first = np.zeros(slots, np.float32), np.ones(slots, bool)
        for _ in range(task.horizon):
            step = VectorStep(observation, reward, first, np.zeros(slots, bool))
            actions, memory = agent.act(step, memory, rng)
            observation, reward, *_ = env.step(actions)
            returns[rollout] += reward
            first = np.zeros(slots, bool)
    return returns


@pytest.mark.parametrize("agent", [Random, Oracle])
def test_protocol(agent, tmp_path):
    agent = agent(spec(folder=tmp_path))
    assert isinstance(agent, Agent)
    assert list(agent.learn(None, np.random.SeedSequence(0))) == [Progress()]  # no step: it is given no environment
    agent.save(tmp_path)
    agent.load(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("task", [PASSIVE, ACTIVE], ids=lambda task: task.id)
def test_the_oracle_reaches_high_in_every_rollout(task):
    returns = play(Oracle(spec(task)), task, slots=16, rollouts=3)
    assert (returns == task.high).all()


def test_the_oracle_starts_slots_at_different_times():
    """A slot that is reset while the others walk gets its own cue."""
    env, agent = PASSIVE.make(2), Oracle(spec())
    observation, _ = env.reset(options={"instance": [1, 1]})
    reward, first, memory, rng = np.zeros(2, np.float32), np.array([True, True]), None, np.random.default_rng(0)
    paid = np.zeros(2)
    for t in range(16):
        actions, memory = agent.act(VectorStep(observation, reward, first, ~np.ones(2, bool)), memory, rng)
        observation, reward, done, *_ = env.step(actions)
        paid += reward
        first = done | (np.array([False, True]) & (t == 4))  # slot 1 starts again at t = 5 with the other goal
        if first.any():
            observation, _ = env.reset(options={"reset_mask": first, "instance": [0, 0]})
    assert paid.tolist() == [1, 1]


def test_a_task_without_an_oracle_says_so():
    with pytest.raises(UserError, match="foreign/gymnasium/CartPole-v1 has no oracle"):
        Oracle(spec(get_task("foreign/gymnasium/CartPole-v1")))
    with pytest.raises(UserError, match="has no oracle"):
        Oracle(spec(replace(PASSIVE, oracle=None)))


def test_random_returns_repeat_with_the_seed():
    """Equal with one seed, different with another."""
    first, again, other = (play(Random(spec()), PASSIVE, slots=8, rollouts=4, seed=seed) for seed in (5, 5, 6))
    assert (first == again).all() and (first != other).any()


@pytest.mark.parametrize("task", [PASSIVE, ACTIVE], ids=lambda task: task.id)
def test_random_returns_have_the_stated_mean(task):
    returns = play(Random(spec(task)), task, slots=2000, rollouts=5)
    assert abs(returns.mean() - task.random_return) < 5 * returns.std() / returns.size**0.5


SPACES = [
    spaces.Discrete(4, start=2),
    spaces.MultiDiscrete([2, 5]),
    spaces.Box(-2, 1, (3,), np.float32),
    spaces.Box(-np.inf, np.inf, (1,), np.float32),
    spaces.Dict({"move": spaces.Discrete(3), "push": spaces.Box(0, 1, (2,), np.float32)}),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_random_fits_any_action_space(space):
    agent = Random(spec(action_space=space))
    step = VectorStep(np.zeros((6, 2), np.float32), np.zeros(6, np.float32), np.ones(6, bool), np.zeros(6, bool))
    memory, rng, seen = None, np.random.default_rng(0), []
    for _ in range(50):
        actions, memory = agent.act(step, memory, rng)
        assert batch_space(space, 6).contains(actions)
        seen.append(str(actions))
    assert len(set(seen)) > 40
