"""`sb3:DQN` and the like: SB3's algorithms under their own names and settings."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from amago_core.seeding import child
from benchmarks import api
from benchmarks.agents import configuration, hyperparameters
from benchmarks.catalog import get_task
from benchmarks.gate.evaluate import evaluate, evaluation_seeds, summarise
from benchmarks.gate.harness_env import HarnessEnv
from benchmarks.runs import checkpoint, record
from benchmarks.runs.plan import plan
from benchmarks.runs.run import run
from benchmarks.task import Budget, Task
from results.errors import UserError
from results.store import read_table
from tests.benchmarks.sb3_toys import Match, make, mean_return, result, train, vectorised

pytest.importorskip("sb3_contrib")

SHORT = {"smoke": Budget(env_steps=640, num_envs=4, evaluations=2, seeds=(0,))}
TMAZE = replace(get_task("long_term_memory/tmaze/passive-10"), budgets=SHORT)
OFF = {"learning_starts": "32", "batch_size": "16", "net_arch": "16", "target_update_interval": "32"}
SETTINGS = {"sb3:DQN": OFF, "sb3:QRDQN": OFF, "sb3:A2C": {"net_arch": "16"}}


def make_run(agent: str, root: Path, task: Task = TMAZE, **options: Any) -> Path:
    planned = plan(task, agent, settings=SETTINGS[agent], root=root)
    return run(planned, trackers=(), **({"say": lambda _: None} | options))


@pytest.mark.parametrize("agent", ["sb3:DQN", "sb3:A2C", "sb3:QRDQN"])
def test_the_same_seed_makes_the_same_rows_and_loads(agent, tmp_path):
    """Whatever the global generators hold; the actions of DQN's random start come from a generator of the space."""
    first = make_run(agent, tmp_path / "first")
    numpy_state = np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(1)
        np.random.seed(1)
        assert result(make_run(agent, tmp_path / "again")) == result(first)
    np.random.set_state(numpy_state)
    (last,) = (row for row in read_table(first / "curves.csv", "curves") if row.final)
    loaded = api.load(TMAZE, plan(TMAZE, agent, settings=SETTINGS[agent]).agent, root=tmp_path / "first")
    assert summarise(loaded.evaluate(), TMAZE.success).return_mean == last.return_mean


class Killed(BaseException):
    """Stops a run between two safe points, as a kill does."""


def test_a_run_that_is_stopped_ends_with_the_same_rows(toys, tmp_path, monkeypatch):
    agent, budget = "sb3:DQN", replace(SHORT["smoke"], env_steps=320)
    task = toys.task(vectorised(partial(Match, False)), horizon=1, budget=budget)
    straight = make_run(agent, tmp_path / "straight", task)
    monkeypatch.setattr(checkpoint, "CHECKPOINT_S", 0.0)
    monkeypatch.setattr(checkpoint, "SHARE", 1e9)
    progress, seen, lines = record.Recorder.progress, [], []

    def killing(*arguments: Any) -> None:
        seen.append(1)
        if len(seen) == 13:
            raise Killed
        progress(*arguments)

    monkeypatch.setattr(record.Recorder, "progress", killing)
    with pytest.raises(Killed):
        make_run(agent, tmp_path / "stopped", task)
    folder = make_run(agent, tmp_path / "stopped", task, say=lines.append)
    assert "resumes from step" in lines[0]
    assert result(folder) == result(straight)


CONTINUOUS = {"CrossQ", "DDPG", "SAC", "TD3", "TQC"}
DISCRETE = {"A2C", "DQN", "PPO", "QRDQN", "RecurrentPPO", "TRPO"}


def test_these_are_the_algorithms():
    from benchmarks.agents.sb3_algorithms import ALGORITHMS

    assert ALGORITHMS.keys() == CONTINUOUS | DISCRETE


@pytest.mark.parametrize("name", sorted(CONTINUOUS | DISCRETE))
def test_every_algorithm_learns_on_from_what_was_saved(toys, tmp_path, name):
    """With its weights, optimisers and counters, its replay and, of SAC and its like, the temperature."""
    task = toys.task(vectorised(partial(Match, name in CONTINUOUS)), horizon=1)
    settings = {"net_arch": "16", "batch_size": "16"} if name != "A2C" else {}
    settings |= {"n_steps": "16"} if name in ("PPO", "RecurrentPPO", "TRPO") else {}
    settings |= (
        {"learning_starts": "16"} if "learning_starts" in configuration(f"sb3:{name}", task, "smoke", {}) else {}
    )
    first, second = (make(f"sb3:{name}", task, 4, settings, env_steps=400) for _ in range(2))
    envs, again = (HarnessEnv(task.make(4), task, child(0, task.id), "train") for _ in range(2))
    learning = first.learn(envs, child(0, "learn"))
    while envs.env_steps < 128:
        next(learning)
    first.save(tmp_path)
    second.load(tmp_path)
    assert not again.restore(envs.state())
    going_on = second.learn(again, child(0, "learn"))
    for _ in range(3):
        told, expected = next(going_on), next(learning)
        assert (told.updates, told.tokens, told.metrics) == (expected.updates, expected.tokens, expected.metrics)
    assert told.updates > 0
    for weight, other in zip(first._model.policy.parameters(), second._model.policy.parameters(), strict=True):
        assert torch.equal(weight, other)


def test_dqn_learns_to_say_what_is_shown(toys):
    """Chance is 0.25."""
    task = toys.task(vectorised(partial(Match, False)), horizon=1)
    settings = {"learning_rate": "3e-3", "train_freq": "1", "gradient_steps": "2", "learning_starts": "256"}
    settings |= {"exploration_fraction": "0.5", "target_update_interval": "64", "net_arch": "32"}
    learner = make("sb3:DQN", task, 16, settings, env_steps=4_000)
    train(learner, task, 4_000)
    assert mean_return(learner, task) > 0.9


def test_a_step_of_train_freq_is_one_of_every_slot(toys):
    """Four steps of three slots, then one update on 16 transitions; the first round is only collected."""
    task = toys.scripted(lambda t: (0.0, False, False, {}), 50)
    learner = make("sb3:DQN", task, 3, OFF | {"learning_starts": "12", "train_freq": "4"}, env_steps=1000)
    envs = HarnessEnv(task.make(3), task, np.random.SeedSequence(0), "train")
    points = learner.learn(envs, np.random.SeedSequence(1))
    told = [(envs.env_steps, point.updates, point.tokens) for point, _ in zip(points, range(3), strict=False)]
    assert told == [(12, 0, 0), (24, 1, 16), (36, 2, 32)]


def test_losses_have_our_names(toys, monkeypatch):
    """`train/loss`, the only loss of DQN, is the sum of all three in PPO."""
    task = toys.task(vectorised(partial(Match, False)), horizon=1)
    learner, logged = make("sb3:PPO", task, 4, {"n_steps": "16", "batch_size": "16"}), {}
    log = learner._model.logger.record

    def spy(key: str, value: Any, **more: Any) -> None:
        logged[key] = value
        log(key, value, **more)

    monkeypatch.setattr(learner._model.logger, "record", spy)
    point = next(learner.learn(HarnessEnv(task.make(4), task, child(0, task.id), "train"), child(0, "learn")))
    names = {"critic": "value_loss", "policy": "policy_gradient_loss", "entropy": "entropy_loss"}
    assert point.metrics == {ours: logged[f"train/{name}"] for ours, name in names.items()}
    assert logged["train/loss"] != logged["train/value_loss"]


def test_exploration_falls_over_the_budget_and_an_evaluation_has_none(toys):
    task = toys.task(vectorised(partial(Match, False)), horizon=1, sample_actions=True)
    learner = make("sb3:DQN", task, 4, OFF | {"exploration_fraction": "1", "train_freq": "1"}, env_steps=400)
    envs = HarnessEnv(task.make(4), task, child(0, task.id), "train")
    points = learner.learn(envs, child(0, "learn"))
    rates = {}
    while envs.env_steps < 200:
        next(points)
        rates[envs.env_steps] = learner._model.exploration_rate
    assert rates[40] == pytest.approx(1 - 0.95 * 0.1) and rates[200] == pytest.approx(1 - 0.95 * 0.5)
    learner._model.exploration_rate = 1.0
    first, again = (evaluate(learner, task, evaluation_seeds(task.id, 0), 40, 20, run_seed=seed) for seed in (0, 1))
    assert [episode.episode_return for episode in first] == [episode.episode_return for episode in again]


def test_settings_are_read_by_the_types_of_the_constructor():
    told = {"max_grad_norm": "0.5", "buffer_size": "500", "net_arch": "64+32"}
    config: Any = hyperparameters("sb3:QRDQN", None, "smoke", told)
    arguments = config.arguments()
    assert (arguments["max_grad_norm"], arguments["buffer_size"], arguments["batch_size"]) == (0.5, 500, 32)
    assert arguments["policy_kwargs"] == {"net_arch": [64, 32]} and "net_arch" not in arguments
    config = hyperparameters("sb3:PPO", None, "smoke", {"target_kl": "0.1", "normalize_advantage": "false"})
    assert (config.target_kl, config.normalize_advantage, config.clip_range_vf) == (0.1, False, None)


@pytest.mark.parametrize(
    ("agent", "setting", "says"),
    [
        ("sb3:DQM", {}, "agent sb3:DQM: there is no algorithm 'DQM'; there are A2C, .*DQN.* SAC"),
        ("sb3:MaskablePPO", {}, "there is no algorithm 'MaskablePPO'"),
        ("sb3:DQN", {"lr": "1e-3"}, "agent sb3:DQN: it has no setting 'lr'; it is called learning_rate here"),
        ("sb3:DQN", {"quite": "1"}, "it has no setting 'quite'; it has net_arch, learning_rate, buffer_size"),
        ("sb3:DQN", {"seed": "1"}, "it has no setting 'seed'"),
        ("sb3:DQN", {"batch_size": "many"}, "setting batch_size=many: expected int"),
        ("sb3:A2C", {"gamma": "nan"}, "gamma must be a finite number"),
    ],
)
def test_a_wrong_setting_is_one_line(agent, setting, says):
    with pytest.raises(UserError, match=says) as error:
        configuration(agent, TMAZE, "smoke", setting)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("agent", "continuous", "settings", "says"),
    [
        ("sb3:DQN", True, {}, r"agent sb3:DQN cannot be built for test/toy/a \(Box.* actions\): .*only supports"),
        (
            "sb3:SAC",
            False,
            {},
            r"agent sb3:SAC cannot be built for test/toy/a \(Discrete\(4.* actions\): .*only supports",
        ),
        (
            "sb3:PPO",
            False,
            {"n_steps": "1", "batch_size": "1"},
            "agent sb3:PPO cannot be built for .*batch_size. must be greater than 1",
        ),
    ],
)
def test_what_sb3_refuses_is_one_line(toys, agent, continuous, settings, says):
    task = toys.task(vectorised(partial(Match, continuous)), horizon=1)
    with pytest.raises(UserError, match=says) as error:
        make(agent, task, 1, settings)
    assert "\n" not in str(error.value)
