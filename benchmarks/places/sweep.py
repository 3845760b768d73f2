"""Many runs at once, in whatever place."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.places.executor import Executor, Status
from benchmarks.places.local import Local
from benchmarks.runs.job import Job

ENDED = ("finished", "failed", "lost")


@dataclass
class State:
    """Where a job stands. `progress` is what its run last reported; `log` is what its process printed."""

    job: Job
    log: Path
    status: Status = "queued"
    message: str = ""
    seconds: float = 0.0  # since it began
    progress: Mapping[str, Any] = field(default_factory=dict)


def sweep(
    jobs: Sequence[Job],
    root: Path,
    executor: Executor | None = None,
    report: Callable[[Sequence[State]], None] = lambda states: None,
) -> list[State]:
    """Make the runs with an executor (default: `Local()`) and return how each ended; `report` is called at each poll.

    KeyboardInterrupt stops all runs cleanly and is raised again.
    """
    executor = executor or Local()
    states = {job: State(job, job.log(root)) for job in dict.fromkeys(jobs)}
    began: dict[Job, float] = {}
    try:
        executor.submit(list(states), root)
        while True:
            for job, phase in executor.poll().items():
                state = states[job]
                if state.status in ENDED:
                    continue
                if phase != "queued":
                    state.seconds = time.monotonic() - began.setdefault(job, time.monotonic())
                    _read_progress(state, job.folder(root))
                if phase == "ended":
                    state.status, state.message = executor.collect(job)
                else:
                    state.status = phase
            report(list(states.values()))
            if all(state.status in ENDED for state in states.values()):
                return list(states.values())
            time.sleep(executor.poll_s)
    finally:
        executor.cancel()


def _read_progress(state: State, folder: Path) -> None:
    with contextlib.suppress(OSError, ValueError):  # not there yet
        state.progress = json.loads((folder / "progress.json").read_bytes())
