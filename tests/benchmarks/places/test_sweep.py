"""The loop over an executor, with one that follows a script."""

import json

import pytest

from benchmarks.places.executor import Outcome
from benchmarks.places.queue import queued
from benchmarks.places.sweep import sweep
from benchmarks.runs.job import Job

JOBS = [Job("t", "a", seed=seed) for seed in range(2)]


class Scripted:
    """At each poll the next line of phases, one a job."""

    workers, poll_s, cancel_command = None, 0.0, None

    def __init__(self, *lines):
        self.lines, self.cancelled = list(lines), 0

    def submit(self, jobs, root):
        self.jobs = jobs

    def poll(self):
        return dict(zip(self.jobs, self.lines.pop(0).split(), strict=True))

    def collect(self, job):
        return (Outcome("finished"), Outcome("lost", "gone"))[job.seed]

    def cancel(self):
        self.cancelled += 1


def test_states_follow_the_executor_and_the_folders(tmp_path):
    seen, waiting = [], []

    def report(states):
        seen.append([state.status for state in states])
        waiting.append([job.seed for job in queued(tmp_path)])
        folder = JOBS[1].folder(tmp_path)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "progress.json").write_text(json.dumps({"env_steps": len(seen)}))

    executor = Scripted("queued queued", "running running", "ended queued", "ended running", "ended ended")
    first, second = sweep([*JOBS, JOBS[0]], tmp_path, executor, report)
    assert seen == [
        ["queued", "queued"], ["running", "running"], ["finished", "queued"], ["finished", "running"],
        ["finished", "lost"],
    ]  # fmt: skip
    assert waiting == [[0, 1], [], [1], [], []]
    assert (first.message, second.message, second.progress) == ("", "gone", {"env_steps": 4})
    assert executor.cancelled == 1


def test_everything_is_cancelled_when_the_sweep_is_interrupted(tmp_path):
    def report(states):
        raise KeyboardInterrupt

    executor = Scripted("running queued")
    with pytest.raises(KeyboardInterrupt):
        sweep(JOBS, tmp_path, executor, report)
    assert executor.cancelled == 1
    assert queued(tmp_path) == []
