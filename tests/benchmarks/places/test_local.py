"""Sweeps on this machine, of small processes that stand in for runs."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.places import local
from benchmarks.places.executor import Outcome
from benchmarks.places.local import Local
from benchmarks.places.sweep import sweep
from benchmarks.runs.job import Job
from results.errors import UserError

TASK = "long_term_memory/tmaze/passive-10"


@pytest.fixture(autouse=True)
def no_rows(monkeypatch):
    """These processes write no row that could say that they are finished."""
    monkeypatch.setattr(local, "outcome", lambda job, root: Outcome("finished"))


def jobs(count):
    return [Job(TASK, "amago", "smoke", seed) for seed in range(count)]


def script(text):
    """A command that runs `text` in place of a run, with `seed` and `folder` known."""

    def command(job, root):
        head = f"import os, signal, subprocess, sys, time\nseed, folder = {job.seed}, {str(root)!r}\n"
        return [sys.executable, "-c", head + text]

    return command


def wait_until(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen"
        time.sleep(0.02)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


def test_one_that_fails_and_one_that_hangs_stop_nobody_else(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "GRACE_S", 0.2)
    text = """
if seed == 4: raise RuntimeError("number four")
if seed == 7: signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(60)
"""
    hangs = Job(TASK, "amago", "laptop", 7)  # of another tier, so that the limit is its alone
    ten = [hangs if job.seed == 7 else job for job in jobs(10)]
    states = sweep(ten, tmp_path, Local(3, {"smoke": 600.0, "laptop": 1.0}, script(text)))
    failed = {state.job.seed: state.message for state in states if state.status != "finished"}
    assert failed == {4: "RuntimeError: number four", 7: "stopped: not finished after 1 s"}
    assert "Traceback" in states[4].log.read_text()


def test_a_killed_process_says_by_what(tmp_path):
    (state,) = sweep(jobs(1), tmp_path, Local(1, command=script("print('last'); os.kill(os.getpid(), signal.SIGKILL)")))
    assert (state.status, state.message) == ("failed", "killed by SIGKILL")


def test_never_more_workers_than_given_and_all_are_used(tmp_path):
    counts = []

    def report(states):
        counts.append(sum(state.status == "running" for state in states))

    sweep(jobs(5), tmp_path, Local(2, command=script("time.sleep(0.3)")), report)
    assert max(counts) == 2
    with pytest.raises(UserError, match="at least 1 worker"):
        Local(0)


def test_each_worker_has_one_thread(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "16")
    text = "print(*(os.environ[name] for name in ('OMP_NUM_THREADS', 'MKL_NUM_THREADS', 'OPENBLAS_NUM_THREADS')))"
    (state,) = sweep(jobs(1), tmp_path, Local(1, command=script(text)))
    assert state.log.read_text() == "1 1 1\n"


def test_what_a_run_leaves_behind_ends_with_it(tmp_path):
    text = "print(subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL).pid)"
    (state,) = sweep(jobs(1), tmp_path, Local(1, command=script(text)))
    wait_until(lambda: not alive(int(state.log.read_text())))


def test_ctrl_c_stops_the_children_cleanly(tmp_path):
    text = """
try:
    open(f"{folder}/up", "w").close()
    time.sleep(60)
except KeyboardInterrupt:
    open(f"{folder}/stopped", "w").close()
"""

    def report(states):
        if (tmp_path / "up").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(jobs(3), tmp_path, Local(1, command=script(text)), report)
    assert (tmp_path / "stopped").exists()


def test_children_end_when_the_sweep_is_killed(tmp_path):
    """A real child process, whose parent gets SIGKILL."""
    child = "import os, sys, time; from benchmarks.runs.job import end_with; end_with(int(sys.argv[1])); "
    child += f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    parent = f"""
import sys
from pathlib import Path
from benchmarks.places.executor import Outcome
from benchmarks.places.local import Local
from benchmarks.places.sweep import sweep
from benchmarks.runs.job import Job
command = [sys.executable, '-c', {child!r}]
sweep([Job({TASK!r}, 'amago')], Path({str(tmp_path)!r}), Local(1, command=lambda *_: command))
"""
    repository = Path(local.__file__).parents[2]
    process = subprocess.Popen([sys.executable, "-c", parent], cwd=repository)
    pid = tmp_path / "pid"
    wait_until(lambda: pid.exists() and pid.read_text())
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: not alive(int(pid.read_text())))
