"""A family in a package of its own, outside the checkout: from its task to a normalised table, a figure, a verdict."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

PACKAGE = '''
"""Coins: one of two doors pays, the same in a whole rollout; unseen coins (the test split) pay half."""

from functools import partial

import gymnasium
import numpy as np
from gymnasium import spaces

from analysis import frames, scores
from analysis.drawing import Drawing
from analysis.figures import FigureSpec
from benchmarks.agents.protocol import Progress
from benchmarks.task import Budget, Task
from benchmarks.gate.workers import vectorise


class Coin(gymnasium.Env):
    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, split):
        self.split = split

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.door = int(self.np_random.integers(2))
        return np.array([self.door], np.float32), {"instance": {"door": self.door, "split": self.split}}

    def step(self, action):
        pay = (int(action) == self.door) * (1.0 if self.split == "train" else 0.5)
        infos = {"success": pay > 0, "instance": {"door": self.door, "split": self.split}}
        return np.array([self.door], np.float32), pay, True, False, infos


def make(num_envs, split):
    return vectorise(partial(Coin, split), num_envs)


def open_the_door(step, memory):
    return step.observation[:, 0].astype(int), memory


COINS = [
    Task(
        id="mine/coins/two", description="open the door that is shown", make=make, horizon=1, splits=("train", "test"),
        random_return=0.25, high=0.5, high_source="oracle", solved_at=0.45, success="last_step", oracle=open_the_door,
        budgets={"smoke": Budget(env_steps=100, num_envs=4, evaluations=2, seeds=(0, 1, 2, 3, 4))},
    )
]


class Sees:
    """An agent that has learnt to look."""

    def __init__(self, spec):
        pass

    def learn(self, envs, seeds):
        envs.reset()
        yield Progress(updates=1)

    def act(self, step, memory, rng):
        return open_the_door(step, memory)

    def save(self, folder):
        pass

    def load(self, folder):
        pass


FIGURE = FigureSpec(
    title="Coins", drawings={"coins": "coins"}, agents=("sees",),
    runs=dict.fromkeys(("smoke", "paper"), {"mine/coins/two": 5}),
)


def draw(tier, root):
    from matplotlib.figure import Figure

    runs = scores.with_normalised(frames.scores(root, tier, "mine/coins/*"))
    figure = Figure()
    figure.add_subplot().bar(runs["seed"], runs["normalised"])
    return Drawing(figure, runs[["task", "agent", "seed", "return", "normalised"]], f"n = {len(runs)} seeds.")
'''

CLAIM = """
  - id: {id}
    figure: coins
    tier: {tier}{restates}
    statement: Whoever sees opens the right door.
    source: this test
    published: {{value: 0.5, where: this test}}
    rule:
      kind: solved_share
      tasks: [mine/coins/two]
      agents: [sees]
      metric: return
      threshold: 0.45
      share: 0.5
      confidence: 0.9
      minimum_seeds: 5
"""
CLAIMS = (
    "schema: 1\nclaims:"
    + CLAIM.format(id="COINS", tier="paper", restates="")
    + CLAIM.format(id="COINS-smoke", tier="smoke", restates="\n    restates: COINS")
)


@pytest.fixture
def amago_bench(tmp_path):
    """The command in a folder outside the checkout, with the package installed; returns standard output."""
    package = tmp_path / "site"
    information = package / "coins-0.1.dist-info"
    information.mkdir(parents=True)
    (package / "coins.py").write_text(PACKAGE)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: coins\nVersion: 0.1\n")
    (information / "entry_points.txt").write_text(
        "[amago_bench.tasks]\ncoins = coins:COINS\n"
        "[amago_bench.agents]\nsees = coins:Sees\n"
        "[amago_bench.figures]\ncoins = coins:FIGURE\n"
    )
    (tmp_path / "claims.yaml").write_text(CLAIMS)

    def run(*arguments):
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(package)]),
            "AMAGO_BENCH_RESULTS": str(tmp_path / "results"),
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-P", "-m", "reproduce.cli", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_from_the_task_to_the_verdict(amago_bench, tmp_path):
    assert "mine/coins/two" in amago_bench("list")
    amago_bench("reproduce", "--figure", "coins", "--workers", "2")
    with open(tmp_path / "results/figures/coins-smoke.csv") as file:
        rows = list(csv.DictReader(file))
    assert [(row["agent"], float(row["return"]), float(row["normalised"])) for row in rows] == [("sees", 0.5, 1.0)] * 5
    assert (tmp_path / "results/figures/coins-smoke.md").read_text() == "n = 5 seeds.\n"
    table = list(csv.DictReader(amago_bench("table", "--task", "mine/coins/*", "--format", "csv").splitlines()))
    assert [(row["n"], row["mean"], row["solved"]) for row in table] == [("5", "0.5", "1.0")]
    verdict = amago_bench("verdicts", "--claims", "claims.yaml", "--tier", "smoke")
    assert "COINS-smoke: SUPPORTED" in verdict


def test_both_splits_are_rows_and_the_test_split_is_the_headline(amago_bench, tmp_path):
    amago_bench("run", "--task", "mine/coins/two", "--agent", "oracle")
    (curves,) = (tmp_path / "results").glob("runs/**/curves.csv")
    with open(curves) as file:
        found = [(row["split"], row["final"], float(row["return_mean"])) for row in csv.DictReader(file)]
    assert found == [("train", "true", 1.0), ("test", "true", 0.5)]
    with open(curves.with_name("episodes.csv")) as file:
        instances = {(row["split"], row["instance"]) for row in csv.DictReader(file)}
    assert len(instances) == 4 and len({name for _, name in instances}) == 4  # two of each split, disjoint by hash
