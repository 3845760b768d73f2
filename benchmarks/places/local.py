"""This machine: each run is a process of its own; one that fails or hangs takes no other with it.

A process leads a group, so that whatever it starts ends with it. It holds the reading end of a pipe whose other end is
open only here: if this process dies in any way, the pipe closes and the run stops.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.places.cores import available_cores, process_environment
from benchmarks.places.executor import Outcome, Phase, outcome
from benchmarks.runs.job import GRACE_S, Job, command
from results.errors import UserError

TIMEOUT_S = {"smoke": 15 * 60.0, "laptop": 3 * 3600.0, "paper": 14 * 86400.0}  # several times the longest run


class Local:
    """An executor (see `executor.py`) of child processes, `workers` at a time.

    Args:
        workers: runs at once; None: as many as there are cores for. Raises UserError for fewer than one.
        timeouts: seconds by tier; a run that takes longer is stopped and counts as failed.
        command: a job's command line, without the pipe's number, which is added.
    """

    poll_s = 0.2
    cancel_command = None

    def __init__(
        self,
        workers: int | None = None,
        timeouts: Mapping[str, float] = TIMEOUT_S,
        command: Callable[[Job, Path], list[str]] = command,
    ) -> None:
        if workers is not None and workers < 1:
            raise UserError(f"a sweep needs at least 1 worker, got {workers}")
        self.workers = workers
        self._timeouts, self._command = timeouts, command
        self._waiting: list[Job] = []
        self._running: dict[Job, _Child] = {}
        self._outcomes: dict[Job, Outcome] = {}  # of the jobs that have ended

    def submit(self, jobs: Sequence[Job], root: Path) -> None:
        self._waiting, self._root = list(jobs), root
        cores = available_cores() // max((job.threads for job in jobs), default=1)
        self.workers = min(self.workers or max(1, cores), max(1, len(jobs)))

    def poll(self) -> Mapping[Job, Phase]:
        for job, child in list(self._running.items()):
            if (ended := child.outcome(self._timeouts[job.tier])) is not None:
                # A process may exit with 0 in the middle of its run: the row decides.
                self._outcomes[job] = outcome(job, self._root) if ended.status == "finished" else ended
                del self._running[job]
        assert self.workers is not None  # since `submit`
        while self._waiting and len(self._running) < self.workers:
            job = self._waiting.pop(0)
            self._running[job] = _Child(self._command(job, self._root), job.log(self._root), job.threads)
        phases: dict[Job, Phase] = dict.fromkeys(self._waiting, "queued")
        phases |= dict.fromkeys(self._running, "running")
        return phases | dict.fromkeys(self._outcomes, "ended")

    def collect(self, job: Job) -> Outcome:
        return self._outcomes[job]

    def cancel(self) -> None:
        self._waiting.clear()
        _stop(self._running.values())


class Alone:
    """One run in a process of its own, for a place that has chosen this machine and watches the time itself."""

    def __init__(self, command: Callable[[Job, Path], list[str]] = command) -> None:
        self._local = Local(1, dict.fromkeys(TIMEOUT_S, math.inf), command)

    def make(self, job: Job, root: Path) -> Outcome:
        """Waits for its end. If that is interrupted, the run stops where it can be resumed."""
        try:
            self._local.submit([job], root)
            while self._local.poll()[job] != "ended":
                time.sleep(self._local.poll_s)
            return self._local.collect(job)
        finally:
            self.stop()

    def stop(self) -> None:
        self._local.cancel()


class _Child:
    """The process of one run."""

    def __init__(self, command: list[str], log: Path, threads: int) -> None:
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        lifeline, held = os.pipe()
        self._held = os.fdopen(held, "wb")
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, str(lifeline)],
                pass_fds=[lifeline],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=process_environment(threads),
                start_new_session=True,
            )
        os.close(lifeline)
        self._started = time.monotonic()

    def outcome(self, timeout_s: float) -> Outcome | None:
        """None while it runs. Stops it after `timeout_s`."""
        code = self.process.poll()
        if code is None and time.monotonic() - self._started > timeout_s:
            _stop([self])
            return Outcome("failed", f"stopped: not finished after {timeout_s:.0f} s")
        if code is None:
            return None
        self.kill_group()  # whatever the run started and left behind
        return Outcome("failed", self._last_words(code)) if code else Outcome("finished")

    def signal_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody is left in it
            os.killpg(self.process.pid, number)

    def kill_group(self) -> None:
        self.signal_group(signal.SIGKILL)
        self.process.wait()
        self._held.close()

    def _last_words(self, code: int) -> str:
        """The last line that a failed process printed, or else how it ended."""
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        lines = self._log.read_text(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), f"exit code {code}")


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
