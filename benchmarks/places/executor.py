"""The interface of a place where runs are made: this machine, a cluster.

The results folder, which every place shares, is the only channel back: how far a run is and how it ended is read from
its folder. An executor only knows whether the process of a run waits, runs or has ended.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from benchmarks.runs.job import Job
from benchmarks.runs.run import discard
from results.store import read_table

Phase = Literal["queued", "running", "ended"]
Status = Literal["queued", "running", "finished", "failed", "lost"]


class Outcome(NamedTuple):
    """How a run ended. `lost`: its process is gone and the run has not ended; the same command resumes it."""

    status: Literal["finished", "failed", "lost"]
    message: str = ""  # one line


class Executor(Protocol):
    """Makes the runs of one sweep.

    Attributes:
        workers: runs at once, for an estimate of the time left; None if that is not known.
        poll_s: seconds from one `poll` to the next.
        cancel_command: for jobs that go on when the sweep ends, however it ends: the command that ends them. None: they
            end with the sweep, which calls `cancel`.
    """

    workers: int | None
    poll_s: float

    @property
    def cancel_command(self) -> str | None: ...

    def submit(self, jobs: Sequence[Job], root: Path) -> None:
        """Take the jobs, to be made in this order with results in `root`; called once. Does not wait for any."""
        ...

    def poll(self) -> Mapping[Job, Phase]:
        """Where the process of every submitted job stands. One that the place starts again by itself has not ended."""
        ...

    def collect(self, job: Job) -> Outcome:
        """How a job ended that `poll` says has ended; called once."""
        ...

    def cancel(self) -> None:
        """Stop every job that has not ended, so that its run can be resumed, and release all."""
        ...


def restartable(job: Job, root: Path) -> str:
    """The record of a job for a place that may start it several times, each time where the last one stopped.

    So what it replaces is discarded now. Raises UserError if another process is writing the run.
    """
    if job.replace:
        discard(job.folder(root))
    return dataclasses.replace(job, replace=False).to_json()


def outcome(job: Job, root: Path) -> Outcome:
    """How the run of an ended job stands by its own table, for places where nothing else tells."""
    path = job.folder(root) / "runs.csv"
    rows = read_table(path, "runs") if path.exists() else []
    if rows and rows[-1].status == "finished":
        return Outcome("finished")
    if rows and rows[-1].status == "failed":
        return Outcome("failed", rows[-1].message)
    return Outcome("lost", "its process ended before the run did; the same command resumes it")
