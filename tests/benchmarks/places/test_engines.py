"""The same sweep on this machine, on a real Slurm and on a real Ray: the same rows, through kills and a lost node."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest

from amago_core.checkpoint import load_state
from benchmarks.places.slurm_queue import submitted
from benchmarks.runs.job import Job
from results.store import load
from tests.benchmarks.places import engines

HERE = Path(__file__).parent  # where the agent `patient:Patient` is found
REPOSITORY = HERE.parents[2]
TASK = "long_term_memory/tmaze/passive-10"
PATIENT = [Job(TASK, "patient:Patient", seed=seed) for seed in range(4)]
AGENTS = ("patient:Patient", "random", "amago@layers=1,updates_per_iteration=1")  # with 4 seeds each, 12 runs
NOT_PROMISED = {"wall_s", "collect_s", "learn_s", "evaluate_s", "peak_rss_mb", "started", "commit", "dirty"}
PATIENCE_S = 300.0

pytestmark = pytest.mark.slow


def sweep(root: Path, *options: str) -> subprocess.Popen[str]:
    """The command, in a process of its own."""
    agents = [word for agent in AGENTS for word in ("--agent", agent)]
    path = os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [
            sys.executable, "-P", "-c", "from reproduce.cli import main; main()", "sweep", "--task", TASK, *agents,
            "--seeds", "0-3", "--tracker", "none", "--results", str(root), *options,
        ],
        cwd=HERE, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def end(process: subprocess.Popen[str], code: int = 0) -> str:
    said, _ = process.communicate(timeout=2 * PATIENCE_S)
    print(said)
    assert process.returncode == code, said
    return said


def rows(root: Path) -> dict[str, list[dict]]:
    """All rows of all runs without what is not promised, and the weights of those that learned."""
    found: dict[str, list] = {}
    for table in ("runs", "curves", "episodes"):
        plain = [
            {k: v for k, v in asdict(row).items() if k not in NOT_PROMISED} for row in load(table, root, ("runs",))
        ]
        found[table] = sorted(plain, key=lambda row: (row["run_id"], row.get("evaluation", 0)))
    assert [row["status"] for row in found["runs"]] == ["finished"] * 12
    for job in PATIENT:
        state = load_state(job.folder(root) / "checkpoint" / "agent.pt")
        found[job.run_id] = [{name: value.tolist()} for name, value in state.items()]
    return found


def resumed(root: Path, job: Job) -> int:
    return (job.folder(root) / "log.txt").read_text().count("resumes from step")


def wait_until(condition, what: str):
    """Returns what the condition answers once it is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"not in {PATIENCE_S:.0f} s: {what}"
        time.sleep(0.1)
    return answer


def hold_file(root: Path, job: Job) -> Path:
    return job.folder(root).with_suffix(".hold")


def hold_all(root: Path) -> None:
    for job in PATIENT:
        hold_file(root, job).parent.mkdir(parents=True, exist_ok=True)
        hold_file(root, job).touch()


@contextmanager
def waiting(root: Path, *jobs: Job, where: Callable[[int], bool] = lambda process: True) -> Iterator[tuple[Job, int]]:
    """The first of the runs that waits at its checkpoint, and its process; afterwards it waits no more."""

    def found() -> Iterator[tuple[Job, int]]:
        for job in jobs:
            words = ("benchmarks.runs.job", f'"{job.agent}"', f'"seed": {job.seed},', str(root))
            if any((job.folder(root) / "checkpoints").glob("[0-9]*")):
                yield from ((job, process) for process in engines.processes(*words) if where(process))

    one = wait_until(lambda: next(found(), None), f"a checkpoint of {' or '.join(job.run_id for job in jobs)}")
    yield one
    hold_file(root, one[0]).unlink()


@contextmanager
def following(root: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    process = sweep(root, *options)
    try:
        yield process
    finally:
        process.kill()


def begun(root: Path) -> bool:
    """Whether a sweep follows its jobs: it has said which of them wait."""
    return any(root.glob("runs/.sweeps/*/jobs.json"))


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    root = tmp_path_factory.mktemp("local")
    end(sweep(root))
    return rows(root)


def test_slurm(expected, tmp_path, monkeypatch):
    pytest.importorskip("submitit", reason="submitit is not installed (pip install 'amago-bench[slurm]')")
    on_slurm = ["--on", "slurm", "--partition", "main", "--time", "30", "--memory", "500M"]
    preempted, killed, requeued, lost = PATIENT
    hold_all(tmp_path)
    with engines.slurm() as slurm:
        for name, value in slurm.environment.items():
            monkeypatch.setenv(name, value)
        assert "submitted; `scancel 1` ends them" in end(sweep(tmp_path, *on_slurm, "--detach"))
        ids = {run: entry.id for run, entry in submitted(tmp_path).items()}
        with following(tmp_path, *on_slurm) as follower, waiting(tmp_path, preempted):
            wait_until(lambda: begun(tmp_path), "a sweep that follows")
            follower.send_signal(signal.SIGINT)
            assert "the runs go on; `scancel 1` ends them" in end(follower, 130)
            assert all(entry.id == ids[run] for run, entry in submitted(tmp_path).items())
            slurm.warn(ids[preempted.run_id])
        with following(tmp_path, *on_slurm) as follower:
            wait_until(lambda: begun(tmp_path), "a sweep that follows")
            with waiting(tmp_path, killed) as (_, process):
                os.kill(process, signal.SIGKILL)
            with waiting(tmp_path, requeued):
                slurm.ask("scontrol", "requeue", ids[requeued.run_id])
            with waiting(tmp_path, lost):
                slurm.lose(slurm.running()[ids[lost.run_id]])
            assert f"{killed.run_id}: killed by SIGKILL" in end(follower, 1)
        end(sweep(tmp_path, *on_slurm))
    assert [resumed(tmp_path, job) for job in PATIENT] == [1, 1, 1, 1]
    assert rows(tmp_path) == expected


def test_ray(expected, tmp_path):
    hold_all(tmp_path)
    with engines.ray() as ray:
        on_ray = ["--on", "ray", "--address", ray.address]
        with following(tmp_path, *on_ray) as follower:  # Ray begins the runs in an order of its own
            with waiting(tmp_path, *PATIENT) as (killed, process):
                os.kill(process, signal.SIGKILL)
            others = [job for job in PATIENT if job != killed]
            with waiting(tmp_path, *others, where=ray.hosts) as (lost, _):
                ray.lose()
            for job in set(others) - {lost}:
                hold_file(tmp_path, job).unlink()
            assert f"{killed.run_id}: killed by SIGKILL" in end(follower, 1)
        end(sweep(tmp_path, *on_ray))
    assert resumed(tmp_path, killed) == resumed(tmp_path, lost) == 1
    assert rows(tmp_path) == expected
