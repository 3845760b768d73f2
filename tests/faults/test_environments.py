"""Environments that are broken or odd (`broken_envs.py`), from the command to the tables.

A broken one ends the run with one line, a code that is not 0 and the rows before it intact; an odd one is played right.
"""

import os
import re
from pathlib import Path

import pytest

from benchmarks import catalog
from results.store import read_table

BROKEN = {
    "NanReward": "slot 0, seed SEED, step 3: the reward is not finite: nan",
    "InfiniteObservation": "slot 0, seed SEED, step 3: the observation is not finite: .*inf",
    "WrongShape": r"slot 0, seed SEED, step 3: the observation has shape \(3,\) instead of \(2,\)",
    "Broadcasts": r"slot 0, seed SEED, step 3: the observation has shape \(1,\) instead of \(2,\)",
    "WrongShapeAtReset": r"slot 0, seed SEED, step 0: the observation has shape \(1, 2\) instead of \(2,\)",
    "Ragged": "slot 0, seed SEED, step 3: the observation is not an array",
    "Words": "slot 0, seed SEED, step 0: the observation has dtype <U3",
    "Wraps": "slot 0, seed SEED, step 3: the observation has values past uint8",
    "PastTheSpace": r"slot 0, seed SEED, step 3: the observation is outside its space: 3",
    "Half": "seed SEED, step 0: the observation has dtype float64, which int64 cannot hold",
    "OtherKeys": r"slot 0, seed SEED, step 3: the observation has the keys \['a'\], its space declares \['a', 'b'\]",
    "NoReward": "slot 0, seed SEED, step 1: the reward has dtype object: None",
    "TwoRewards": r"slot 0, seed SEED, step 1: the reward has shape \(2,\) instead of \(\)",
    "NoFlag": "slot 0, seed SEED, step 1: terminated has dtype object: None",
    "OldStep": r"slot 0, seed SEED, step 1: step\(\) returned a tuple of 4; gymnasium expects a tuple of 5",
    "OldReset": r"slot 0, seed SEED, step 0: reset\(\) returned a ndarray; gymnasium expects a tuple of 2",
    "OldSeed": "slot 0, seed SEED, step 0: the environment raised TypeError: .*unexpected keyword argument 'seed'",
    "Raises": "slot 0, seed SEED, step 3: the environment raised RuntimeError: two lines",
    "RaisesAtReset": "slot 0, seed SEED, step 0: the environment raised KeyError: 'seed'",
    "Leaves": "slot 0, seed SEED, step 1: the environment raised SystemExit: 0",
}
IN_WORKERS = {  # no process survives these
    "Dies": "slot 0, seed SEED, step 3: the process of the environment ended with exit code 3",
    "DiesWithZero": "slot 0, seed SEED, step 1: the process of the environment ended with exit code 0",
    "Crashes": "slot 0, seed SEED, step 1: the process of the environment was killed by SIGSEGV",
    "Hangs": r"slot 0, seed SEED, step 3: the environment gave no answer for 5 s \(AMAGO_BENCH_ENV_TIMEOUT sets it\)",
    "Spins": "slot 0, seed SEED, step 0: the environment gave no answer for 5 s",
}
ODD = ["Reuses", "ReadOnly", "NegativeStrides", "Double", "PlainList", "IntegerReward", "BooleanReward", "ArrayReward",
       "BothFlags", "OddInfos", "RaisesAtClose", "OneStep", "Endless"]  # fmt: skip


def arguments(name, agent="random", *more):
    return ["run", "--env", f"broken_envs:{name}-v0", "--agent", agent, *more]


def rows(folder, table, name, agent="random"):
    path = folder / f"results/runs/smoke/foreign/gymnasium/broken_envs:{name}-v0/{agent}/seed-0/{table}.csv"
    return read_table(path, table)


def fails_with(command, folder, name, says):
    code, out, err = command(*arguments(name))
    assert code == 2
    assert "finished" not in out
    assert re.fullmatch(rf"amago-bench: task foreign/gymnasium/broken_envs:{name}-v0, .*{says}.*\n", err), err
    last = rows(folder, "runs", name)[-1]
    assert last.status == "failed"
    assert err.removeprefix("amago-bench: ").split() == last.message.split()[1:]
    assert not children()


def children():
    return Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()


@pytest.mark.parametrize(
    ("name", "workers"),
    [(name, "0") for name in BROKEN] + [(name, "2") for name in ("NanReward", "WrongShape", "Raises", "Leaves")],
)
def test_a_broken_environment_is_one_line(command, folder, monkeypatch, name, workers):
    monkeypatch.setenv("AMAGO_BENCH_WORKERS", workers)
    fails_with(command, folder, name, BROKEN[name].replace("SEED", r"\d+"))


@pytest.mark.parametrize("name", IN_WORKERS)
def test_an_environment_that_dies_or_hangs_is_one_line(command, folder, monkeypatch, name):
    monkeypatch.setenv("AMAGO_BENCH_ENV_TIMEOUT", "5")  # the start of a worker takes 1 s of it
    fails_with(command, folder, name, IN_WORKERS[name].replace("SEED", r"\d+"))


@pytest.mark.parametrize(("name", "says"), [("CannotBeMade", "libgame.so"), ("DiesWhenMade", "exit code 3")])
def test_an_environment_that_cannot_be_made_is_one_line(command, name, says):
    code, _, err = command(*arguments(name))
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(f"amago-bench: cannot make gymnasium environment {name}-v0: ")
    assert says in err


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("my_tasks:ROOMS", "module my_tasks has no 'ROOMS'"),
        ("no_such:ROOMS", "No module named 'no_such'"),
        ("my_tasks:NUMBER", "is of type int; it must be a benchmarks.task.Task"),
        (":ROOMS", "is not of the form module:name"),
    ],
)
def test_a_task_of_ones_own_that_is_none_is_one_line(command, folder, name, says):
    (folder / "my_tasks.py").write_text("NUMBER = 7\n")
    code, out, err = command("run", "--task", name, "--agent", "random")
    assert (code, out, err.count("\n")) == (2, "", 1) and says in err and name in err, err


def test_a_module_that_does_not_import_is_one_line(command, folder):
    (folder / "no_python.py").write_text("def")
    code, _, err = command("run", "--env", "no_python:Any-v0")
    assert (code, err.count("\n")) == (2, 1)
    assert "invalid syntax" in err


def test_the_rows_before_a_fault_are_intact(command, folder):
    name, agent = "LateNanReward", "watching:Watcher"
    assert command(*arguments(name, agent))[0] == 2
    assert [row.status for row in rows(folder, "runs", name, agent)] == ["running", "failed"]
    (curve,) = rows(folder, "curves", name, agent)
    assert (curve.evaluation, curve.final, curve.env_steps, curve.return_mean) == (0, False, 1000, 4.0)
    episodes = rows(folder, "episodes", name, agent)
    assert (len(episodes), {row.episode_return for row in episodes}) == (20, {4.0})


def test_the_traceback_is_in_the_log(command, folder):
    command(*arguments("Raises"))
    log = folder / "results/runs/smoke/foreign/gymnasium/broken_envs:Raises-v0/random/seed-0/log.txt"
    assert 'raise RuntimeError("two\\nlines")' in log.read_text()


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_buffer_that_all_environments_share(command, folder, monkeypatch, workers):
    monkeypatch.setenv("AMAGO_BENCH_WORKERS", workers)
    assert command(*arguments("Shares", "watching:Watcher"))[0::2] == (0, "")
    assert {row.episode_length for row in rows(folder, "episodes", "Shares", "watching:Watcher")} == {3, 4}


@pytest.mark.parametrize("name", ["Fine", *ODD])
def test_an_odd_environment_is_played_right(command, folder, monkeypatch, name):
    monkeypatch.setattr(catalog, "FOREIGN_HORIZON", 30)
    monkeypatch.setenv("AMAGO_BENCH_WORKERS", "1" if name in ("Reuses", "OddInfos", "Endless") else "0")
    code, _, err = command(*arguments(name, "watching:Watcher"))
    assert (code, err) == (0, "")
    final = [row for row in rows(folder, "episodes", name, "watching:Watcher") if row.final]
    length = {"OneStep": 1, "Endless": 30}.get(name, 4)
    assert len(final) == 100
    assert {(row.episode_length, row.episode_return) for row in final} == {(length, length)}
    assert {row.finished for row in final} == {name != "Endless"}
    assert {row.success_any for row in final} == {True if name == "OddInfos" else None}
