"""The record of a run, and the process that makes it."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from benchmarks import api
from benchmarks.agents import parse_grid
from benchmarks.places.cores import process_environment
from benchmarks.places.executor import outcome
from benchmarks.runs.grid import grid
from benchmarks.runs.job import Job, command, main
from benchmarks.runs.plan import plan
from reproduce.cli import cli
from results.errors import UserError
from results.store import read_table

TASK = "long_term_memory/tmaze/passive-10"
WAITS = """
from benchmarks.agents.random import Random
from benchmarks.agents.protocol import Progress

class Waits(Random):
    def learn(self, envs, seeds):
        import time
        while True:
            envs.reset()
            envs.step(envs.action_space.sample())
            time.sleep(0.01)
            yield Progress()
"""


def test_a_job_survives_json():
    job = Job(TASK, "amago@lr=3e-4", "laptop", 3, 2, ("tensorboard", "my:Own"), replace=True)
    assert Job.from_json(job.to_json()) == job
    assert hash(Job.from_json(job.to_json())) == hash(job)
    assert set(json.loads(job.to_json())) == {"task", "agent", "tier", "seed", "threads", "trackers", "replace"}


def test_one_agent_has_one_name():
    assert Job(TASK, "amago@width=64,lr=1,discounts=(0.9,0.97)").agent == "amago@discounts=0.9+0.97,lr=1,width=64"
    with pytest.raises(UserError, match="key=value"):
        Job(TASK, "amago@lr")


@pytest.mark.parametrize(
    ("one", "other", "name"),
    [
        ("lr=3e-4", "lr=0.0003", "lr=3e-4"),
        ("lr=1", "lr=1.0", "lr=1"),
        ("width=064", "width=64", "width=64"),
        ("discounts=.90+0.97", "discounts=(0.9,9.7e-1)", "discounts=0.9+0.97"),
        ("head_scaling=1", "head_scaling=True", "head_scaling=true"),
        ("steps=0500", "steps=500", "steps=500"),
    ],
)
def test_one_setting_has_one_name(one, other, name, tmp_path):
    for agent in (f"amago@{one}", f"amago@{other}"):
        assert Job(TASK, agent).agent == f"amago@{name}"
        planned = plan(TASK, agent, root=tmp_path)
        assert (planned.agent, planned.config["settings"]) == (f"amago@{name}", dict([name.split("=")]))
    (swept,) = grid([TASK], ["amago"], seeds=1, settings=parse_grid([one, other]))
    assert swept.agent == f"amago@{name}"


def test_every_door_is_the_same(tmp_path, monkeypatch):
    """The heap of each process that makes a run keeps what is freed."""
    kept = []
    monkeypatch.setattr("benchmarks.places.heap.keep_freed_memory", lambda: kept.append(1))
    monkeypatch.setenv("AMAGO_BENCH_RESULTS", str(tmp_path))
    api.run(TASK, "random", trackers=())
    assert len(kept) == 1
    CliRunner().invoke(cli, ["run", "--task", TASK, "--agent", "random", "--tracker", "none"])
    assert len(kept) == 2
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # the handlers are this process's own
    main(Job(TASK, "random", trackers=()).to_json(), str(tmp_path))
    assert len(kept) == 3


def start(job, root, **options):
    return subprocess.Popen(command(job, root), cwd=root, env=process_environment(), **options)


def test_a_process_makes_the_run_and_reads_no_standard_input(tmp_path):
    job = Job(TASK, "random")
    read, write = os.pipe()
    os.close(write)
    assert start(job, tmp_path, stdin=read).wait() == 0  # one that is at its end; a sweep gives none
    os.close(read)
    assert outcome(job, tmp_path) == ("finished", "")
    closed = Job(TASK, "random", seed=1)
    shell = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *command(closed, tmp_path)], env=process_environment(), check=True
    )
    assert shell.returncode == 0 and outcome(closed, tmp_path).status == "finished"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_process_that_is_asked_to_stop_says_so_in_its_table(number, tmp_path):
    (tmp_path / "waits.py").write_text(WAITS)
    job = Job(TASK, "waits:Waits")
    assert outcome(job, tmp_path).status == "lost"
    process = start(job, tmp_path, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (job.folder(tmp_path) / "progress.json").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(60) != 0
    last = read_table(job.folder(tmp_path) / "runs.csv", "runs")[-1]
    assert (last.status, outcome(job, tmp_path).status) == ("interrupted", "lost")


def test_a_users_error_is_one_line(tmp_path):
    done = start(Job(TASK, "nobody:Agent"), tmp_path, stderr=subprocess.PIPE, text=True)
    _, err = done.communicate()
    assert (done.returncode, err.count("\n")) == (1, 1)
    assert "nobody" in err
    assert sys.executable == command(Job(TASK, "random"), tmp_path)[0]
