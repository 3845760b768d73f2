"""Only one process may write a run, and Ctrl-C stops it where it can be resumed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from results.errors import UserError
from results.tablefile import naming

LOCK = "lock"


@contextlib.contextmanager
def owned(run: Path) -> Iterator[None]:
    """Locks the run's folder. The kernel releases the lock when the process ends, however it ends.

    Raises UserError if another process holds it; the message says which.
    """
    path = run / LOCK
    with naming(path):
        run.mkdir(parents=True, exist_ok=True)
        file = open(path, "a+b", buffering=0)  # noqa: SIM115 (closed below)
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().decode(errors="replace") or "another process"
            raise UserError(f"{run} is being written by {holder}; wait for it or stop it") from None
        with naming(path):
            file.truncate(0)
            file.write(f"process {os.getpid()} on {platform.node()}".encode())
        yield


class Stop:
    """Whether Ctrl-C was pressed; `asked` is read at safe points. A second Ctrl-C stops immediately."""

    asked = False

    @contextlib.contextmanager
    def listening(self, say: Callable[[str], object]) -> Iterator[None]:
        """Defers the first Ctrl-C. Does nothing outside the main thread or if Ctrl-C already has another handler."""

        def ask(number: int, frame: object) -> None:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self.asked = True
            say("stopping at the next safe point; press Ctrl-C again to stop immediately")

        main = threading.current_thread() is threading.main_thread()
        if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return
        signal.signal(signal.SIGINT, ask)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
