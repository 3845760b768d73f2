"""Sweeps of small stand-in processes; `test_real_run_...` at the end goes through a real run."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import sweep as module
from benchmarks.plan import plan
from benchmarks.sweep import Job, missing, sweep
from results.errors import UserError

TASK = "long_term_memory/tmaze/passive-10"


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
    monkeypatch.setattr(module, "GRACE_S", 0.2)
    text = """
if seed == 4: raise RuntimeError("number four")
if seed == 7: signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(60)
"""
    hangs = Job(TASK, "amago", "laptop", 7)  # of another tier, so that the limit is its alone
    ten = [hangs if job.seed == 7 else job for job in jobs(10)]
    states = sweep(ten, tmp_path, 3, command=script(text), timeouts={"smoke": 600.0, "laptop": 1.0})
    failed = {state.job.seed: state.message for state in states if state.status != "finished"}
    assert failed == {4: "RuntimeError: number four", 7: "stopped: not finished after 1 s"}
    assert "Traceback" in states[4].log.read_text()


def test_a_killed_process_says_by_what(tmp_path):
    (state,) = sweep(jobs(1), tmp_path, 1, command=script("print('last'); os.kill(os.getpid(), signal.SIGKILL)"))
    assert (state.status, state.message) == ("failed", "killed by SIGKILL")


def test_never_more_workers_than_given_and_all_are_used(tmp_path):
    counts = []

    def report(states):
        counts.append(sum(state.status == "running" for state in states))

    sweep(jobs(5), tmp_path, 2, report, command=script("time.sleep(0.3)"))
    assert max(counts) == 2
    with pytest.raises(UserError, match="at least 1 worker"):
        sweep(jobs(1), tmp_path, 0)


def test_each_worker_has_one_thread(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "16")
    text = "print(*(os.environ[name] for name in ('OMP_NUM_THREADS', 'MKL_NUM_THREADS', 'OPENBLAS_NUM_THREADS')))"
    (state,) = sweep(jobs(1), tmp_path, 1, command=script(text))
    assert state.log.read_text() == "1 1 1\n"


def test_what_a_run_leaves_behind_ends_with_it(tmp_path):
    text = "print(subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL).pid)"
    (state,) = sweep(jobs(1), tmp_path, 1, command=script(text))
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
        sweep(jobs(3), tmp_path, 1, report, command=script(text))
    assert (tmp_path / "stopped").exists()


def test_children_end_when_the_sweep_is_killed(tmp_path):
    """The watch on standard input, in a real child process whose parent gets SIGKILL."""
    child = "from benchmarks.sweep import _die_with_parent; import os, sys, time; _die_with_parent(); "
    child += f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    parent = f"""
import sys
from pathlib import Path
from benchmarks.sweep import Job, sweep
command = [sys.executable, '-c', {child!r}]
sweep([Job({TASK!r}, 'amago', 'smoke', 0)], Path({str(tmp_path)!r}), 1, command=lambda *_: command)
"""
    repository = Path(module.__file__).parents[1]
    process = subprocess.Popen([sys.executable, "-c", parent], cwd=repository)
    pid = tmp_path / "pid"
    wait_until(lambda: pid.exists() and pid.read_text())
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: not alive(int(pid.read_text())))


def test_missing_counts_only_what_is_finished(tmp_path, run_row):
    from results.schema import Run
    from results.store import TableWriter, run_folder

    for seed, status in enumerate(("finished", "failed", "running")):
        folder = run_folder(tmp_path, "smoke", TASK, "amago", seed)
        folder.mkdir(parents=True)
        with TableWriter(folder / "runs.csv", "runs") as table:
            row: Run = run_row(jobs(3)[seed], status)
            table.append(row)
    assert [job.seed for job in missing(jobs(4) + jobs(1), tmp_path)] == [1, 2, 3]


def write_run(path, row):
    from results.store import TableWriter

    path.parent.mkdir(parents=True)
    with TableWriter(path, "runs") as table:
        table.append(row)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"budget.env_steps": 1}, r"budget.env_steps: 1 -> \d+"),
        ({"hyperparameters.width": 1}, r"hyperparameters.width: 1 -> \d+"),
        ({"protocol": "12345678"}, r'protocol: "12345678" -> "[0-9a-f]{8}"'),
    ],
)
def test_a_run_folder_with_another_configuration_is_refused(tmp_path, run_row, change, said):
    (job,) = jobs(1)
    folder = tmp_path / "runs" / "smoke" / TASK / "amago" / "seed-0"
    write_run(folder / "runs.csv", run_row(job, "finished", **change))
    with pytest.raises(UserError, match=rf"^{job.run_id} was made with another {said}; .*--replace.*--results$"):
        missing([job], tmp_path)


@pytest.mark.parametrize("where", ["runs/smoke/{}/amago/seed-{}", "reference/smoke"])
@pytest.mark.parametrize("status", ["finished", "failed"])
def test_with_replace_only_what_differs_is_made_anew(tmp_path, run_row, where, status):
    differs, same, absent = jobs(3)
    write_run(tmp_path / where.format(TASK, 0) / "runs.csv", run_row(differs, status, **{"hyperparameters.width": 1}))
    write_run(tmp_path / "runs/smoke" / TASK / "amago/seed-1/runs.csv", run_row(same, "interrupted"))
    again = Job(TASK, "amago", "smoke", 0, replace=True)
    assert missing([differs, same, absent], tmp_path, replace=True) == [again, same, absent]


def test_all_runs_that_are_refused_are_counted(tmp_path, run_row):
    for job in jobs(3):
        folder = tmp_path / "runs" / "smoke" / TASK / "amago" / f"seed-{job.seed}"
        write_run(folder / "runs.csv", run_row(job, "finished", **{"hyperparameters.width": 1}))
    with pytest.raises(UserError, match=r"^smoke:.*:amago:0 was made with another .*width: 1 .* \(and 2 more"):
        missing(jobs(3), tmp_path)


def test_another_number_of_threads_is_no_other_result(tmp_path, run_row):
    (job,) = jobs(1)
    write_run(tmp_path / "runs" / "smoke" / TASK / "amago" / "seed-0" / "runs.csv", run_row(job, "finished", threads=2))
    assert missing([job], tmp_path) == missing([job], tmp_path, replace=True) == []


def test_a_reference_run_with_another_configuration_counts_and_is_said(tmp_path, run_row):
    (job,) = jobs(1)
    change = {"hyperparameters.width": 1}
    write_run(tmp_path / "reference" / "smoke" / "runs.csv", run_row(job, "finished", **change))
    with pytest.warns(UserWarning, match=r"^1 of the reference runs were made with another configuration .*width: 1 "):
        assert missing([job, Job(TASK, "amago", "smoke", 1)], tmp_path) == [Job(TASK, "amago", "smoke", 1)]


@pytest.fixture
def run_row():
    from results.schema import Run

    def make(job, status, **changes):
        """A row of the job as it would be made now; `changes` are by key, with dots."""
        made = plan(job.task, job.agent, job.tier, job.seed).identity | changes
        config = {key: made[key] for key in ("budget", "hyperparameters", "settings", "threads")}
        for key, value in changes.items():
            part, _, name = key.partition(".")
            if name:
                config[part][name] = value
        return Run(
            run_id=job.run_id, protocol=made["protocol"], task=job.task, agent=job.agent, tier=job.tier, seed=job.seed,
            status=status, message="", commit="", dirty=False, config=json.dumps(config), env_steps=1, updates=0,
            tokens=0, parameters=None, collect_s=0.0, learn_s=0.0, evaluate_s=0.0, wall_s=1.0, peak_rss_mb=1.0,
            device="cpu", attention="", dtype="float32", threads=1, torch="", python="3.11",
            started="2026-01-01T00:00:00Z",
        )  # fmt: skip

    return make
