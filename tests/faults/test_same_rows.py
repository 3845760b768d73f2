"""The same command and seed give the same rows: in other processes, with any number of workers, trackers or none.

Of a run in every column but time, memory and start.
"""

import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from results.store import load

REPOSITORY = Path(__file__).resolve().parents[2]
NOT_PROMISED = {"wall_s", "collect_s", "learn_s", "evaluate_s", "peak_rss_mb", "started", "commit", "dirty"}
CARTPOLE = ["--env", "CartPole-v1", "--seed", "3", "--agent"]
WAYS = {
    "0 workers": ([], {"AMAGO_BENCH_WORKERS": "0"}),
    "2 workers": ([], {"AMAGO_BENCH_WORKERS": "2"}),
    "no tracker": (["--tracker", "none"], {}),
    "another hash seed": ([], {"PYTHONHASHSEED": "7"}),
}


def call(root, arguments, variables):
    """The command in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "AMAGO_BENCH_RESULTS": str(root)} | variables
    code = "from reproduce.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def rows(root):
    """All rows of all runs, without what is not promised."""
    found = {}
    for table in ("runs", "curves", "episodes"):
        plain = [{k: v for k, v in asdict(row).items() if k not in NOT_PROMISED} for row in load(table, root)]
        found[table] = sorted(plain, key=lambda row: (row["run_id"], row.get("evaluation", 0)))
    assert len(found["episodes"]) >= 100
    return found


def test_a_run_gives_the_same_rows(command, tmp_path):
    """In this process, and in another one where all is different that may be."""
    assert command("run", *CARTPOLE, "random", "--results", str(tmp_path / "first"))[0] == 0
    first = rows(tmp_path / "first")
    assert len({row["episode_return"] for row in first["episodes"]}) > 10  # a difference would be seen
    variables = {"AMAGO_BENCH_WORKERS": "2", "PYTHONHASHSEED": "7"}
    call(tmp_path / "other", ["run", *CARTPOLE, "random", "--tracker", "none"], variables)
    assert rows(tmp_path / "other") == first


@pytest.mark.slow
def test_a_run_that_learns_gives_the_same_rows_in_each_way(tmp_path):
    call(tmp_path / "first", ["run", *CARTPOLE, "amago"], {})
    for way, (options, variables) in WAYS.items():
        call(tmp_path / way, ["run", *CARTPOLE, "amago", *options], variables)
        assert rows(tmp_path / way) == rows(tmp_path / "first"), way


@pytest.mark.parametrize("agent", ["random", pytest.param("amago", marks=pytest.mark.slow)])
def test_a_sweep_gives_the_same_rows_as_its_runs_one_after_another(command, tmp_path, agent):
    task = ["--task", "long_term_memory/tmaze/passive-10", "--agent", agent, "--results"]
    assert command("sweep", *task, str(tmp_path / "at once"), "--seeds", "0-2", "--workers", "3")[0] == 0
    for seed in ("2", "0", "1"):
        assert command("run", *task, str(tmp_path / "by hand"), "--seed", seed)[0] == 0
    assert rows(tmp_path / "by hand") == rows(tmp_path / "at once")
