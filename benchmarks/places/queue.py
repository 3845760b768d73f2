"""Which runs are still going to be made, said in the results folder by the sweeps under way, for `status`."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from benchmarks.places.slurm_queue import submitted
from benchmarks.runs.job import Job
from benchmarks.runs.owner import is_owned, owned
from results.errors import UserError
from results.tablefile import replace_file

FILE = "jobs.json"


@contextlib.contextmanager
def announcing(root: Path) -> Iterator[Callable[[Collection[Job]], None]]:
    """A function that says which jobs are waiting now. What is said is forgotten at the end, however this ends.

    A sweep owns its folder as a run does, so that one that died is known by its silence; the next one removes it.
    """
    folder = _folder(root) / f"{platform.node()}-{os.getpid()}-{time.time_ns()}"
    for other in _folder(root).glob("*"):
        if not is_owned(other):
            shutil.rmtree(other, ignore_errors=True)
    said: list[str] = []

    def announce(jobs: Collection[Job]) -> None:
        records = [job.to_json() for job in jobs]
        if records != said:
            said[:] = records
            with contextlib.suppress(UserError):  # a full disk: the runs will say so
                replace_file(folder / FILE, json.dumps(records).encode())

    with owned(folder):
        try:
            yield announce
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def queued(root: Path) -> list[Job]:
    """The jobs that wait in Slurm's queue, and in sweeps whose process is alive."""
    found: list[Job] = []
    for folder in sorted(_folder(root).glob("*")):
        if is_owned(folder):
            with contextlib.suppress(OSError, ValueError):  # it ends at this moment
                found += map(Job.from_json, json.loads((folder / FILE).read_bytes()))
    with contextlib.suppress(UserError):  # Slurm cannot be asked from here
        found += [entry.job for entry in submitted(root).values() if entry.phase == "queued"]
    return found


def _folder(root: Path) -> Path:
    return root / "runs" / ".sweeps"
