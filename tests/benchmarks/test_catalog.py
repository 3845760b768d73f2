"""Tasks by id: pinned behaviour, nearest names, foreign environments, tasks from other packages."""

import hashlib
import json
import math
import pickle
import subprocess
import sys
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from benchmarks import catalog
from benchmarks.agents import configuration
from benchmarks.catalog import get_task, match, tasks
from benchmarks.task import Budget, Task
from results.errors import UserError

# An id fixes its environment for good. A changed hash means that scores of before and after do not compare:
# give the changed environment another id instead.
PINS = {
    "long_term_memory/tmaze/passive-10": "cdc69d36",
    "long_term_memory/tmaze/passive-30": "9adfafde",
    "long_term_memory/tmaze/passive-100": "d6e0675c",
    "long_term_memory/tmaze/passive-300": "bf03296e",
    "long_term_memory/tmaze/passive-1000": "00da8e69",
    "long_term_memory/tmaze/passive-3000": "17dc28c1",
    "long_term_memory/tmaze/passive-10000": "11d6af8d",
    "long_term_memory/tmaze/active-10": "09e65603",
    "long_term_memory/tmaze/active-30": "170ca46d",
    "long_term_memory/tmaze/active-100": "9f2eccc9",
    "long_term_memory/tmaze/active-300": "22d64155",
    "long_term_memory/tmaze/active-1000": "1c1cb3b1",
    "long_term_memory/tmaze/active-3000": "5afde339",
    "long_term_memory/tmaze/active-10000": "5e10a0c7",
}


def fingerprint(task):
    """8 hex digits over the spaces, the horizon and everything that 4 slots show under fixed seeds and actions."""
    env = task.make(4)
    digest = hashlib.sha256(f"{env.single_observation_space} {env.single_action_space} {task.horizon}".encode())
    actions = np.random.default_rng(0).choice(4, size=(task.horizon, 4), p=[0.97, 0.01, 0.01, 0.01])
    actions[:, :2], actions[0, 1], actions[-1, :2] = 0, 2, 1  # two that reach the far end of long corridors
    observation, _ = env.reset(seed=[0, 1, 2, 3])
    digest.update(observation.tobytes())
    for row in actions:
        observation, reward, terminated, truncated, infos = env.step(row)
        for array in (observation, reward, terminated, truncated, infos["success"]):
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:8]


def test_ids_fix_their_environments():
    assert {task.id: fingerprint(task) for task in match("long_term_memory/tmaze/*")} == PINS  # POPGym: its version


def test_every_task_is_whole():
    for task_id, task in tasks().items():
        assert task.id == task_id and len(task_id.split("/")) == 3 and task.description
        assert {"smoke", "paper"} <= set(task.budgets) and task.random_return < task.high
        assert all(budget.env_steps >= task.horizon for budget in task.budgets.values())
        assert pickle.loads(pickle.dumps(task)).id == task_id


def test_only_a_task_with_splits_tells_make_which(toys):
    asked = lambda *args: args  # noqa: E731
    assert toys.task(asked).build(3) == toys.task(asked).build(3, "same") == (3,)
    split = toys.task(asked, splits=("train", "test"))
    assert (split.build(3), split.build(3, "test")) == ((3, "train"), (3, "test"))
    assert (split.training_split, split.headline_split) == ("train", "test")
    with pytest.raises(
        ValueError, match=r"task test/toy/a: splits \('test',\); give \('same',\) or \('train', 'test'\)"
    ):
        toys.task(asked, splits=("test",))


def test_a_missing_package_of_an_environment_says_what_to_install(toys):
    def make(slots):
        raise ImportError("no module named 'rooms'")

    with pytest.raises(UserError, match=r"rooms'; .* pip install 'amago-bench\[rooms\]'$"):
        toys.task(make, extra="rooms").build(1)
    with pytest.raises(ImportError):
        toys.task(make).build(1)


def test_tmaze_budgets():
    assert get_task("long_term_memory/tmaze/passive-100").budget("laptop").seeds == (0, 1, 2, 3, 4)
    assert get_task("long_term_memory/tmaze/passive-300").budget("laptop").seeds == (0, 1, 2)
    paper = get_task("long_term_memory/tmaze/passive-10000").budget("paper")
    assert (paper.num_envs, paper.seeds) == (36, (0, 1, 2, 3, 4)) and paper.env_steps == 36 * 10_000 * 1000
    for task in match("long_term_memory/tmaze/*"):  # the same number of epochs at every length, in both files
        config, budget = configuration("amago", task, "paper", {}), task.budget("paper")
        assert budget.env_steps == budget.num_envs * config["steps_per_iteration"] * 1000
        assert config["updates_per_iteration"] == 600
        assert (
            config["replay_tokens"] == config["replay_trajectories"] * (task.horizon + 1) == 5000 * (task.horizon + 1)
        )
    with pytest.raises(UserError, match="no budget for tier 'laptop'; its tiers: smoke, paper"):
        get_task("long_term_memory/tmaze/passive-1000").budget("laptop")


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("long_term_memory/tmaze/pasive-100", "long_term_memory/tmaze/passive-100"),
        ("passive-300", "long_term_memory/tmaze/passive-300"),
        ("tmaze/active-30", "long_term_memory/tmaze/active-30"),
        ("something_else_entirely", "amago-bench list"),
    ],
)
def test_unknown_tasks_name_the_nearest(wrong, hint):
    with pytest.raises(UserError, match=hint) as caught:
        get_task(wrong)
    assert "\n" not in str(caught.value)


def test_match():
    assert [task.horizon for task in match("long_term_memory/tmaze/passive-*0000")] == [10_001]
    assert len(match("long_term_memory/tmaze/*")) == 14 == len(match("*/tmaze/*"))
    assert match("foreign/gymnasium/CartPole-v1")[0].horizon == 500
    with pytest.raises(UserError, match="no task matches 'meta_rl/nothing-"):
        match("meta_rl/nothing-*")


def test_foreign_task_plays_and_resets_by_mask():
    task = get_task("foreign/gymnasium/CartPole-v1")
    assert task.time_limit == "artificial" and math.isnan(task.random_return) and task.packages == ("gymnasium",)
    env = task.make(3)
    assert env.metadata["autoreset_mode"] is AutoresetMode.DISABLED
    before, _ = env.reset(seed=[1, 2, 3])
    env.step(np.array([0, 0, 0]))
    after, _ = env.reset(seed=[None, 2, None], options={"reset_mask": np.array([False, True, False])})
    assert (after[1] == before[1]).all() and (after[[0, 2]] != before[[0, 2]]).any()
    assert pickle.loads(pickle.dumps(task)).make(1).num_envs == 1


def test_foreign_horizon_without_a_limit_and_foreign_package():
    gymnasium.register("catalog_test/Endless-v0", entry_point="pytest:Endless")
    try:
        task = get_task("foreign/gymnasium/catalog_test/Endless-v0")
        assert task.horizon == 1000 and task.packages == ("gymnasium", "pytest")
        with pytest.raises(UserError, match="cannot make gymnasium environment catalog_test/Endless-v0"):
            task.make(1)
    finally:
        del gymnasium.registry["catalog_test/Endless-v0"]


@pytest.mark.parametrize("env_id", ["CartPole-v7", "CartPol-v1", "no_such_module:Env-v0", "", "two words"])
def test_unknown_foreign_environment(env_id):
    with pytest.raises(UserError, match="gymnasium knows no environment") as caught:
        get_task(f"foreign/gymnasium/{env_id}")
    assert "\n" not in str(caught.value)


def own_task(task_id):
    return Task(task_id, "own", lambda slots: None, 5, 0.0, 1.0, "scripted", {"smoke": Budget(10, 1, 1, (0,))})


@pytest.fixture
def announce(monkeypatch):
    """Put entry points in the place of the installed ones: name -> what loading them gives, or raises."""

    def load(value):
        if isinstance(value, Exception):
            raise value
        return value

    def announce(**entries):
        found = [SimpleNamespace(name=k, value=f"pkg:{k}", load=lambda v=v: load(v)) for k, v in entries.items()]
        monkeypatch.setattr(catalog, "entry_points", lambda group: found if group == "amago_bench.tasks" else [])
        tasks.cache_clear()

    yield announce
    tasks.cache_clear()


def test_tasks_of_other_packages(announce):
    announce(good=[own_task("own/suite/a"), own_task("own/suite/b")])
    assert get_task("own/suite/a").description == "own" and len(match("own/*")) == 2


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (ImportError("no module named x"), "no module named x"),
        ([own_task("own/suite/c"), "text"], "has a str among its tasks"),
        ([own_task("own/suite/c"), own_task("long_term_memory/tmaze/passive-10")], "exists already"),
        ([own_task("own/suite/c"), own_task("own/suite/c")], "exists already"),
        (7, "not iterable"),
    ],
)
def test_a_broken_package_takes_no_other_task_away(announce, bad, message):
    announce(bad=bad, good=[own_task("own/suite/a")])
    with pytest.warns(UserWarning, match=rf"entry point bad = pkg:bad is skipped: .*{message}"):
        known = tasks()
    assert "own/suite/a" in known and "own/suite/c" not in known and known["long_term_memory/tmaze/passive-10"].oracle


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"env_steps": 0}, "env_steps >= 1"), ({"seeds": ()}, "no duplicates"), ({"seeds": (1, 1)}, "no duplicates")],
)
def test_budgets_are_checked(changes, message):
    with pytest.raises(ValueError, match=message):
        Budget(**{"env_steps": 1, "num_envs": 1, "evaluations": 1, "seeds": (0,)} | changes)


def test_the_catalog_needs_no_heavy_or_optional_package():
    code = "import sys, json, benchmarks.catalog as c; c.tasks(); print(json.dumps([m in sys.modules for m in %r]))"
    heavy = ["torch", "pandas", "matplotlib", "scipy", "popgym"]
    out = subprocess.run([sys.executable, "-c", code % heavy], capture_output=True, text=True, check=True).stdout
    assert json.loads(out) == [False] * len(heavy)
