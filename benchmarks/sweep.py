"""Many runs at once, each with one process and one thread; a run that fails or hangs takes no other with it.

A child leads a process group of its own, so whatever it starts ends with it, and its standard input is a pipe held
open by this process: if this process dies in any way, the pipe closes and the child stops.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmarks.checkpoint import differences
from benchmarks.cores import one_thread_environment
from results.errors import UserError
from results.schema import Run, run_id
from results.store import load, run_folder

POLL_S = 0.2
GRACE_S = 10.0  # to write the row `interrupted` before being killed
TIMEOUT_S = {"smoke": 15 * 60.0, "laptop": 3 * 3600.0, "paper": 14 * 86400.0}  # several times the longest run


@dataclass(frozen=True)
class Job:
    """A run to be made. `agent` is a full id: `amago`, `amago@lr=3e-4`, `my_module:MyAgent`.

    `replace` discards what its folder holds; otherwise a stopped run is resumed.
    """

    task: str
    agent: str
    tier: str
    seed: int
    replace: bool = False

    @property
    def run_id(self) -> str:
        return run_id(self.tier, self.task, self.agent, self.seed)


@dataclass
class State:
    """Where a job stands. `progress` is what its run last reported; `log` is what its process printed."""

    job: Job
    log: Path
    status: Literal["waiting", "running", "finished", "failed"] = "waiting"
    message: str = ""
    seconds: float = 0.0
    progress: Mapping[str, Any] = field(default_factory=dict)


def missing(jobs: Iterable[Job], root: Path, replace: bool = False) -> list[Job]:
    """The jobs that are not yet finished, either in the run folders under `root` or in the reference results.

    With `replace`, a run made with another configuration or protocol than its job would have now is run again. Without
    it, such a run in a run folder raises UserError; one in the reference counts as finished, because it is what is
    committed, and a warning says how many there are.
    """
    jobs = list(dict.fromkeys(jobs))
    tiers = sorted({job.tier for job in jobs})
    local = {row.run_id: row for tier in tiers for row in load("runs", root, ("runs",), tier)}
    reference = {row.run_id: row for tier in tiers for row in load("runs", root, ("reference",), tier)}
    todo: list[Job] = []
    refused: list[tuple[str, str]] = []  # with what has changed
    stale: list[tuple[str, str]] = []
    for job in jobs:
        row = local.get(job.run_id) or reference.get(job.run_id)
        changed = _changed(job, row) if row else ""
        if changed and replace:
            todo.append(dataclasses.replace(job, replace=True))
        elif changed:
            (refused if job.run_id in local else stale).append((job.run_id, changed))
        elif row is None or row.status != "finished":
            todo.append(job)
    if refused:
        (run, changed), *others = refused
        more = f" (and {len(others)} more runs like it)" if others else ""
        hint = "give --replace to run it again, or another folder with --results"
        raise UserError(f"{run} was made with another {changed}{more}; {hint}")
    if stale:
        what = f"{len(stale)} of the reference runs were made with another configuration and count as finished"
        (run, changed), *_ = stale
        warnings.warn(f"{what} ({run}: {changed}); --replace runs them again", stacklevel=2)
    return todo


def _changed(job: Job, row: Run) -> str:
    """The keys in which a run differs from what the job would make now.

    A finished run may have used another number of threads, which changes at most rounding; an unfinished one cannot
    resume with another.
    """
    from benchmarks.plan import plan

    now = plan(job.task, job.agent, job.tier, job.seed).identity
    names = {key: now[key] for key in ("run_id", "task", "agent", "tier", "seed")}
    threads = {"threads": now["threads"]} if row.status == "finished" else {}
    return differences(names | {"protocol": row.protocol} | json.loads(row.config) | threads, now)


def child_command(job: Job, root: Path) -> list[str]:
    """The command line of a job's process. -P, because the user's folder may hold a `benchmarks` that is not ours."""
    run = [job.task, job.agent, job.tier, str(job.seed), str(root)]
    return [sys.executable, "-P", "-m", "benchmarks.sweep", *run, *(["replace"] if job.replace else [])]


def sweep(
    jobs: Sequence[Job],
    root: Path,
    workers: int,
    report: Callable[[Sequence[State]], None] = lambda states: None,
    command: Callable[[Job, Path], list[str]] = child_command,
    timeouts: Mapping[str, float] = TIMEOUT_S,
) -> list[State]:
    """Make the runs, `workers` at a time, and return how each ended; `report` is called a few times a second.

    A run that takes longer than its tier's timeout (seconds) is stopped and counts as failed. KeyboardInterrupt stops
    all children cleanly and is raised again. Raises UserError for fewer than one worker.
    """
    if workers < 1:
        raise UserError(f"a sweep needs at least 1 worker, got {workers}")
    states = [State(job, _log_path(root, job)) for job in jobs]
    waiting: list[State] = list(states)
    running: list[_Child] = []
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                running.append(_Child(waiting.pop(0), command, root))
            running = [child for child in running if not child.ended(timeouts[child.state.job.tier])]
            report(states)
            if running:
                time.sleep(POLL_S)
    finally:
        _stop(running)
    report(states)
    return states


class _Child:
    """The process of one running job; it keeps the job's state up to date."""

    def __init__(self, state: State, command: Callable[[Job, Path], list[str]], root: Path) -> None:
        self.state, self.root = state, root
        self.folder = run_folder(root, state.job.tier, state.job.task, state.job.agent, state.job.seed)
        state.status = "running"
        state.log.parent.mkdir(parents=True, exist_ok=True)
        with state.log.open("wb") as log:
            self.process = subprocess.Popen(
                command(state.job, root),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=one_thread_environment(),
                start_new_session=True,
            )
        self.started = time.monotonic()

    def ended(self, timeout_s: float) -> bool:
        self.state.seconds = time.monotonic() - self.started
        with contextlib.suppress(OSError, ValueError):  # not there yet
            self.state.progress = json.loads((self.folder / "progress.json").read_bytes())
        code = self.process.poll()
        if code is None and self.state.seconds > timeout_s:
            _stop([self])
            self.state.status, self.state.message = "failed", f"stopped: not finished after {timeout_s:.0f} s"
            return True
        if code is None:
            return False
        self.kill_group()  # whatever the run started and left behind
        self.state.status = "finished" if code == 0 else "failed"
        self.state.message = "" if code == 0 else _last_words(self.state.log, code)
        return True

    def signal_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody is left in it
            os.killpg(self.process.pid, number)

    def kill_group(self) -> None:
        self.signal_group(signal.SIGKILL)
        self.process.wait()
        if self.process.stdin:
            self.process.stdin.close()


def _stop(children: Iterable[_Child]) -> None:
    """Ask all to stop, give them time to record that in their tables, then kill what is left."""
    children = list(children)
    try:
        for child in children:
            child.signal_group(signal.SIGINT)
        deadline = time.monotonic() + GRACE_S
        while any(child.process.poll() is None for child in children) and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:  # also on a second Ctrl-C
        for child in children:
            child.kill_group()


def _log_path(root: Path, job: Job) -> Path:
    return run_folder(root, job.tier, job.task, job.agent, job.seed).with_suffix(".log")


def _last_words(log: Path, code: int) -> str:
    """The last line that a failed process printed, or else how it ended."""
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    lines = log.read_text(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), f"exit code {code}")


# --- in the child ----------------------------------------------------------------------------------------------------


def _die_with_parent() -> None:
    """Interrupt this process when the other end of standard input closes; kill its group if that does not help."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(GRACE_S)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def _main(task: str, agent: str, tier: str, seed: str, root: str, replace: str = "") -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background jobs
    _die_with_parent()
    from benchmarks.plan import plan
    from benchmarks.run import run

    try:
        run(plan(task, agent, tier, int(seed), root=Path(root)), replace=bool(replace))
    except UserError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    _main(*sys.argv[1:])
