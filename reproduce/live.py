"""What a sweep shows while it runs: bars on a terminal, a line for each change elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.places.sweep import ENDED, State
from reproduce.output import say
from reproduce.text import duration

if TYPE_CHECKING:
    from rich.console import Group

    from benchmarks.places.executor import Executor


@contextmanager
def live_report(executor: Executor) -> Iterator[Callable[[Sequence[State]], None]]:
    """A function for `sweep(report=...)`."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    if not console.is_terminal:
        yield Lines(say)
        return
    started = time.monotonic()
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        lines = Lines(partial(console.print, markup=False, highlight=False, soft_wrap=True))

        def report(states: Sequence[State]) -> None:
            lines(states)
            live.update(_panel(states, executor.workers, time.monotonic() - started, console.height))

        yield report


class Lines:
    """One line when a run ends."""

    def __init__(self, say: Callable[[str], object] = print) -> None:
        self._say, self._told = say, set[str]()

    def __call__(self, states: Sequence[State]) -> None:
        for state in states:
            if state.status in ENDED and state.job.run_id not in self._told:
                self._told.add(state.job.run_id)
                self._say(f"[{len(self._told)}/{len(states)}] {self._line(state)}")

    @staticmethod
    def _line(state: State) -> str:
        end = f"return {shown}" if (shown := last_return(state)) else ""
        words = end if state.status == "finished" else state.message
        return f"{state.status} {state.job.run_id} in {duration(state.seconds)}" + (f": {words}" if words else "")


@dataclass(frozen=True)
class Pace:
    """How far a run is (0 to 1), its steps per second, and the seconds left at this pace."""

    share: float
    rate: float | None
    left: float | None


def pace(state: State) -> Pace:
    steps, total = state.progress.get("env_steps", 0), state.progress.get("total", 0)
    wall = state.progress.get("wall_s", 0.0)
    if not (steps and total and wall):
        return Pace(0.0, None, None)
    return Pace(min(1.0, steps / total), steps / wall, max(0, total - steps) * wall / steps)


def time_left(states: Sequence[State], workers: int | None) -> float | None:
    """Seconds until all runs are done; a queued run is assumed to take as long as the others on average.

    Without a number of workers, as many as run now are assumed to go on running.
    """
    known = [state.seconds for state in states if state.status == "finished"]
    left = 0.0
    for state in states:
        if state.status == "running" and (own := pace(state).left) is not None:
            left += own
            known.append(state.seconds + own)
    running = sum(state.status == "running" for state in states)
    queued = sum(state.status == "queued" for state in states)
    if not known:
        return None
    return (left + queued * sum(known) / len(known)) / (workers or max(1, running))


def last_return(state: State) -> str:
    value = state.progress.get("return")
    return "" if value is None else f"{value:.3f}"


def _panel(states: Sequence[State], workers: int | None, elapsed: float, height: int) -> Group:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for state in [state for state in states if state.status == "running"][: max(1, height - 4)]:
        now = pace(state)
        table.add_row(
            Text(state.job.run_id),
            ProgressBar(total=1.0, completed=now.share, width=20),
            f"{now.share:.0%}",
            "" if now.rate is None else f"{now.rate:,.0f} steps/s",
            f"return {last_return(state)}" if last_return(state) else "",
            "" if now.left is None else f"{duration(now.left)} left",
        )
    counts = {status: sum(state.status == status for state in states) for status in ENDED}
    left = time_left(states, workers)
    head = f"{sum(counts.values())} of {len(states)} runs done in {duration(elapsed)}"
    head += "".join(f", {counts[bad]} {bad}" for bad in ("failed", "lost") if counts[bad])
    head += f", about {duration(left)} left" if left is not None else ""
    return Group(table, Text(head))
