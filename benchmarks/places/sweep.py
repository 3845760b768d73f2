"""Many runs at once, in whatever place."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.places.executor import Executor, Phase, Status
from benchmarks.places.local import Local
from benchmarks.places.queue import announcing
from benchmarks.runs.job import Job
from benchmarks.runs.trackers import load_trackers

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

    KeyboardInterrupt stops all runs cleanly, unless they outlive the sweep, and is raised again. Raises UserError for a
    tracker that does not exist.
    """
    load_trackers({name for job in jobs for name in job.trackers})  # report it once, not in each run
    executor = executor or Local()
    states = {job: State(job, job.log(root)) for job in dict.fromkeys(jobs)}
    began: dict[Job, float] = {}
    with announcing(root) as announce:
        try:
            executor.submit(list(states), root)
            while True:
                for job, phase in executor.poll().items():
                    if states[job].status not in ENDED:
                        _update(states[job], phase, root, began)
                        if phase == "ended":
                            states[job].status, states[job].message = executor.collect(job)
                announce([job for job, state in states.items() if state.status == "queued"])
                report(list(states.values()))
                if all(state.status in ENDED for state in states.values()):
                    return list(states.values())
                time.sleep(executor.poll_s)
        finally:
            if executor.cancel_command is None:
                executor.cancel()


def _update(state: State, phase: Phase, root: Path, began: dict[Job, float]) -> None:
    if phase == "queued":
        state.status = "queued"
        return
    state.status = "running"
    state.seconds = time.monotonic() - began.setdefault(state.job, time.monotonic())
    with contextlib.suppress(OSError, ValueError):  # not there yet
        state.progress = json.loads((state.job.folder(root) / "progress.json").read_bytes())
