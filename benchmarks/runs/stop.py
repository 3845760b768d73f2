"""Ctrl-C stops a run where it can be resumed."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


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
