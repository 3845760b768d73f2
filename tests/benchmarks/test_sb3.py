"""The outside baselines: they learn, see what AMAGO sees, leave no trace, and go on after a stop."""

import random
import sys
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from amago_core.config import Config
from amago_core.nets.encoders import TimestepEncoder
from amago_core.sequences import Batch, Packing
from benchmarks.agents import agents, configuration, sb3_presets
from benchmarks.agents.protocol import VectorStep
from benchmarks.catalog import get_task
from benchmarks.gate.evaluate import evaluate, evaluation_seeds
from benchmarks.gate.harness_env import HarnessEnv
from benchmarks.long_term_memory.tmaze.env import TMaze
from benchmarks.runs import checkpoint, record
from benchmarks.runs.plan import plan
from benchmarks.runs.run import run
from benchmarks.task import Task
from results.errors import UserError
from results.store import read_table
from tests.benchmarks.sb3_toys import Match, make, mean_return, result, train, vectorised

pytest.importorskip("sb3_contrib")

BOTH = pytest.mark.parametrize("agent", ["sb3-ppo", "sb3-recurrent-ppo"])
SMALL = {"hidden": "16", "n_steps": "16", "minibatches": "4", "n_epochs": "2"}
SETTINGS = {"sb3-ppo": SMALL, "sb3-recurrent-ppo": SMALL | {"lstm_hidden_size": "8"}}


# --- they learn ---


def test_learns_to_say_what_is_shown(toys):
    """Chance is 0.25."""
    task = toys.task(vectorised(partial(Match, False)), horizon=1)
    learner = make("sb3-ppo", task, 16, {"n_steps": "32", "minibatches": "4", "hidden": "32", "lr": "3e-3"})
    train(learner, task, 5_000)
    assert mean_return(learner, task) > 0.9


def test_learns_actions_of_a_box_in_its_own_units(toys):
    """The middle of the box, whatever is shown, has 0.5."""
    task = toys.task(vectorised(partial(Match, True)), horizon=1, sample_actions=False)
    learner = make("sb3-ppo", task, 16, {"n_steps": "32", "minibatches": "8", "hidden": "32", "lr": "3e-3"})
    train(learner, task, 8_000)
    assert mean_return(learner, task) > 0.8


@pytest.mark.parametrize(("agent", "low", "high"), [("sb3-ppo", 0.3, 0.6), ("sb3-recurrent-ppo", 0.95, 1.0)])
def test_only_memory_solves_a_t_maze(toys, agent, low, high):
    """Without memory 0.5 is the best (agent.md 10.3), previous action or not: a step off the corridor is lost."""
    task = toys.task(partial(TMaze, corridor=2), horizon=3, sample_actions=False, instances=2)
    settings = {"n_steps": "6", "minibatches": "1", "n_epochs": "8", "hidden": "32", "lr": "2e-3", "ent_coef": "0.01"}
    settings |= {"gamma": "1", "gae_lambda": "1"} | ({"lstm_hidden_size": "32"} if "recurrent" in agent else {})
    learner = make(agent, task, 64, settings)
    train(learner, task, 14_000)
    assert low <= mean_return(learner, task) <= high


# --- they see and are told what AMAGO is ---


def seen_by_amago(codec: Any, rows: dict[str, np.ndarray], time_scale: float) -> np.ndarray:
    """What AMAGO's timestep encoder makes its first layer's input of, for T timesteps of one slot."""
    encoder, caught = TimestepEncoder(Config(input_norm=False), codec.observations, codec.actions, time_scale), []
    encoder.norm.register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0]))
    fields = {name: torch.from_numpy(value) for name, value in rows.items()}
    position = fields.pop("position")
    encoder(Batch(Packing([len(position)]), position, fields))
    return caught[0].numpy()


@pytest.mark.parametrize("time_limit", ["finite", "artificial"])
def test_the_inputs_are_those_of_amago(toys, monkeypatch, time_limit):
    """In training as in an evaluation: two rollouts of 4 steps, with an inner reset before the third."""
    script = lambda t: (t / 10, False, False, {"inner_reset": t == 2})  # noqa: E731
    # AMAGO's time over the horizon, and not over the time scale of the task: nothing normalises it here.
    task = toys.scripted(script, 4, time_limit=time_limit, time_scale=10_000 if time_limit == "finite" else None)
    agent = make("sb3-ppo", task, 2, SMALL)
    shown: dict[str, list[np.ndarray]] = {"train": [], "act": []}
    policy = agent._model.policy
    predict = policy.predict
    monkeypatch.setattr(policy, "predict", lambda x, *rest: shown["act"].append(x.copy()) or predict(x, *rest))
    forward = agent._model.policy.forward
    monkeypatch.setattr(agent._model.policy, "forward", lambda x: shown["train"].append(x.numpy().copy()) or forward(x))
    actions: dict[str, list[np.ndarray]] = {"train": [], "act": []}
    act = agent._codec.actions.to_env
    role = "train"
    monkeypatch.setattr(agent._codec.actions, "to_env", lambda a: actions[role].append(a.copy()) or act(a))
    train(agent, task, 16)
    role = "act"
    evaluate(agent, task, evaluation_seeds(task.id, "final"), 4, 2)

    for kind in ("train", "act"):
        for rollout in range(2):
            steps = range(4 * rollout, 4 * rollout + 4)
            inputs = np.stack([shown[kind][i][1] for i in steps])  # of slot 1
            rows = {
                "observation": inputs[:, :2],
                "reset": np.array([True, False, True, False]),
                "reward": np.float32([0, 0.1, 0.2, 0.3]),
                "position": np.arange(4),
                "action": np.array([-1, *(actions[kind][i][1] for i in steps[:-1])], np.int8),
            }
            expected = seen_by_amago(agent._codec, rows, 4 if time_limit == "finite" else np.inf)
            np.testing.assert_array_equal(inputs, expected)
            assert (inputs[:, 1] == np.arange(4)).all() and len(set(inputs[:, 0])) == 1  # `Scripted`: step and id


def test_gradients_of_the_paper_tier_reach_as_far_as_those_of_popgym_s_baselines():
    task = get_task("long_term_memory/popgym/RepeatFirstHard")
    lengths = {
        (agent, tier): sb3_presets.configure(agent, task, tier, {}).n_steps
        for agent in ("sb3-ppo", "sb3-recurrent-ppo")
        for tier in ("laptop", "paper")
    }
    assert lengths.pop(("sb3-recurrent-ppo", "paper")) == 1024 > task.horizon and set(lengths.values()) == {128}
    assert sb3_presets.configure("sb3-recurrent-ppo", task, "paper", {"n_steps": "64"}).n_steps == 64


@pytest.mark.parametrize(("time_limit", "told"), [("finite", False), ("artificial", True)])
def test_only_at_an_artificial_limit_does_sb3_bootstrap(toys, time_limit, told):
    """From the last observation of the rollout that was cut, not from the first of the next one."""
    task = toys.scripted(lambda t: (0.5, False, False, {}), 2, time_limit=time_limit)
    slots = make("sb3-ppo", task, 3, SMALL)._slots
    slots.envs = HarnessEnv(task.make(3), task, np.random.SeedSequence(0), "train")
    first = slots.reset()
    *_, done, infos = slots.step(np.array([0, 1, 2]))
    assert not done.any() and infos == [{}, {}, {}]
    following, reward, done, infos = slots.step(np.array([2, 1, 0]))
    assert done.all() and (reward == 0.5).all() and (following[:, 1] == 0).all()
    assert [info.get("TimeLimit.truncated", False) for info in infos] == [told] * 3
    for info, before, after in zip(infos, first, following, strict=True):
        if told:
            assert info["terminal_observation"][:4].tolist() == [before[0], 2, 0, 0.5]
        assert after[0] != before[0]


def test_a_true_end_is_one_under_an_artificial_limit_too(toys):
    task = toys.scripted(lambda t: (0.5, t == 2, t == 2, {}), 2, time_limit="artificial")
    slots = make("sb3-ppo", task, 1, SMALL)._slots
    slots.envs = HarnessEnv(task.make(1), task, np.random.SeedSequence(0), "train")
    slots.reset()
    slots.step(np.array([0]))
    *_, done, infos = slots.step(np.array([0]))
    assert done.all() and infos == [{}]


def test_memory_is_kept_in_a_rollout_and_cleared_between_two(toys):
    """Slot 1 is reset at the third step, and is then where a new agent is; slot 0 is not."""
    task = toys.task(partial(TMaze, corridor=6), horizon=7, sample_actions=False)
    agent, rng = make("sb3-recurrent-ppo", task, 2, SETTINGS["sb3-recurrent-ppo"]), np.random.default_rng(0)

    def states(starts: list[list[bool]]) -> np.ndarray:
        memory = None
        for start in starts:
            first, none = np.array(start), np.zeros(2, bool)
            observation = np.full((2, 2), 0.3, np.float32)
            _, memory = agent.act(VectorStep(observation, np.zeros(2, np.float32), first, none), memory, rng)
        return np.array(memory[1])[:, 0]  # [h or c, slot, width]

    new, kept = states([[True, True]]), states([[True, True], [False, False], [False, True]])
    np.testing.assert_allclose(kept[:, 1], new[:, 1], atol=1e-6)
    assert np.abs(kept[:, 0] - new[:, 0]).max() > 1e-3


# --- runs ---


class Killed(BaseException):
    """Stops a run between two safe points, as a kill does."""


def make_run(agent: str, root: Path, task: str | Task = "long_term_memory/tmaze/passive-10", **options: Any) -> Path:
    planned = plan(task, agent, settings=SETTINGS[agent], root=root)
    return run(planned, trackers=(), **({"say": lambda _: None} | options))


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A run of each that never was stopped."""
    return {agent: make_run(agent, tmp_path_factory.mktemp(agent)) for agent in SETTINGS}


def generators() -> list[Any]:
    return [torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()]


@BOTH
def test_the_same_rows_whatever_the_global_generators_hold_and_those_unchanged(agent, straight, tmp_path):
    numpy_state = np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(1)
        np.random.seed(1)
        before = generators()
        assert result(make_run(agent, tmp_path)) == result(straight[agent])
        assert generators() == before
    np.random.set_state(numpy_state)


@BOTH
def test_a_run_that_is_stopped_ends_with_the_same_rows(agent, straight, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "CHECKPOINT_S", 0.0)
    monkeypatch.setattr(checkpoint, "SHARE", 1e9)
    progress, seen, lines = record.Recorder.progress, [], []

    def killing(*arguments: Any) -> None:
        seen.append(1)
        if len(seen) in (4, 13):
            raise Killed
        progress(*arguments)

    monkeypatch.setattr(record.Recorder, "progress", killing)
    for _ in range(2):
        with pytest.raises(Killed):
            make_run(agent, tmp_path)
    folder = make_run(agent, tmp_path, say=lines.append)
    assert "resumes from step 1408 of 3000" in lines[0]  # 16 steps in each of 8 slots at each of 11 points
    assert result(folder) == result(straight[agent])
    last, before = (read_table(f / "runs.csv", "runs")[-1] for f in (folder, straight[agent]))
    assert (last.updates, last.tokens, last.env_steps) == (before.updates, before.tokens, before.env_steps)
    assert (last.updates, last.tokens, last.env_steps) == (24 * 2 * 4, 24 * 2 * 128, 24 * 128)
    assert (last.device, last.attention, last.dtype) == ("cpu", "none", "float32")


class Restless(gymnasium.Env):
    """Does not depend on its seed alone, so it cannot be brought back to where it stood."""

    lives = 0
    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[np.ndarray, dict]:
        Restless.lives += 1
        return np.float32([Restless.lives]), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        return np.float32([0]), float(action.sum()), False, False, {}


def test_slots_that_cannot_be_brought_back_begin_anew(toys, tmp_path):
    task = toys.task(vectorised(Restless), horizon=50)
    first, second = (make("sb3-recurrent-ppo", task, 2, SETTINGS["sb3-recurrent-ppo"]) for _ in range(2))
    envs = HarnessEnv(task.make(2), task, np.random.SeedSequence(0), "train")
    learning = first.learn(envs, np.random.SeedSequence(1))
    next(learning)
    first.save(tmp_path)
    second.load(tmp_path)
    again = HarnessEnv(task.make(2), task, np.random.SeedSequence(0), "train")
    assert again.restore(envs.state()) and again.needs_reset.all()
    going_on = second.learn(again, np.random.SeedSequence(1))
    assert next(going_on).updates == 16
    assert (again.t == 16).all() and again.env_steps == 64


@BOTH
def test_what_was_saved_acts_as_what_was_trained(toys, agent, tmp_path):
    task = toys.task(partial(TMaze, corridor=6), horizon=7)
    learner, loaded = (make(agent, task, 4, SETTINGS[agent] | {"lr": "0.03"}) for _ in range(2))
    train(learner, task, 500)
    learner.save(tmp_path)
    before = evaluate(loaded, task, evaluation_seeds(task.id, 0), 40, 20)
    loaded.load(tmp_path)
    played = [evaluate(a, task, evaluation_seeds(task.id, 0), 40, 20) for a in (learner, loaded)]
    assert played[0] == played[1] != before


# --- faults ---


@pytest.mark.parametrize(
    ("agent", "setting", "says"),
    [
        ("sb3-ppo", {"n_step": "8"}, "agent sb3-ppo: it has no setting 'n_step'; did you mean n_steps"),
        ("sb3-ppo", {"lstm_hidden_size": "8"}, "it has no setting 'lstm_hidden_size'"),
        ("sb3-recurrent-ppo", {"lstm_hidden_size": "0"}, "lstm_hidden_size must be at least 1"),
        ("sb3-ppo", {"gamma": "1.5"}, "gamma must be between 0 and 1"),
        ("sb3-ppo", {"n_steps": "9"}, "n_steps 9 is not a multiple of minibatches 32"),
    ],
)
def test_a_wrong_setting_is_one_line(agent, setting, says):
    with pytest.raises(UserError, match=says) as error:
        configuration(agent, get_task("long_term_memory/tmaze/passive-10"), "smoke", setting)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("package", ["stable_baselines3", "sb3_contrib"])
def test_without_the_extra_they_are_listed_and_a_run_says_what_to_install(toys, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "benchmarks.agents.sb3")
    assert {"sb3-ppo", "sb3-recurrent-ppo"} <= set(agents())
    with pytest.raises(UserError, match=rf"{package}.*pip install 'amago-bench\[sb3\]'") as error:
        make("sb3-ppo", toys.task(partial(TMaze, corridor=2), horizon=3), 2, {})
    assert "\n" not in str(error.value)


@BOTH
def test_weights_that_are_not_finite_end_the_training_with_one_line(toys, agent):
    task = toys.task(partial(TMaze, corridor=2), horizon=3)
    with pytest.raises(ValueError, match=r"training diverged: .* try a lower learning rate") as error:
        train(make(agent, task, 4, SETTINGS[agent] | {"lr": "1e30"}), task, 1000)
    assert "\n" not in str(error.value)
