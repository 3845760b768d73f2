"""Ctrl-C, and the signals of schedulers and of closing terminals, stop a run where it can be resumed."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
CALL_AGAIN = 75  # exit code after one of SIGNALS: EX_TEMPFAIL of sysexits.h


class Stopped(KeyboardInterrupt):
    """One of SIGNALS stopped the run; the same command resumes it."""


def stop_at_signals() -> None:
    """From now on SIGNALS raise Stopped, as Ctrl-C raises KeyboardInterrupt.

    Leaves a signal alone that is handled or ignored already, as SIGHUP under `nohup`.
    """
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _raise_stopped)


def _raise_stopped(number: int, frame: object) -> None:
    raise Stopped(signal.Signals(number).name)


class Stop:
    """Whether the run is asked to stop; `asked` is read at safe points. Asked again, it stops immediately."""

    asked: KeyboardInterrupt | None = None  # to be raised at the safe point

    @contextlib.contextmanager
    def listening(self, say: Callable[[str], object]) -> Iterator[None]:
        """Defers the first Ctrl-C and, after `stop_at_signals`, the first of SIGNALS.

        Does nothing outside the main thread, nor to a signal that has another handler.
        """
        immediate = {
            number: handler
            for number in (signal.SIGINT, *SIGNALS)
            if (handler := signal.getsignal(number)) in (signal.default_int_handler, _raise_stopped)
        }

        def handle(handlers: dict[signal.Signals, Callable[..., object]]) -> None:
            for number, handler in handlers.items():
                signal.signal(number, handler)

        def ask(number: int, frame: object) -> None:
            handle(immediate)
            if number == signal.SIGINT:
                self.asked = KeyboardInterrupt()
                say("stopping at the next safe point; press Ctrl-C again to stop immediately")
            else:
                self.asked = Stopped(signal.Signals(number).name)
                say(f"stopping at the next safe point ({self.asked})")

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handle(dict.fromkeys(immediate, ask))
        try:
            yield
        finally:
            handle(immediate)
