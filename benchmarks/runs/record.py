"""What a run writes while it runs: its rows, progress.json, log.txt, and the curves for its trackers."""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from benchmarks.agents.protocol import Progress
from benchmarks.gate.evaluate import EpisodeRecord, Summary
from benchmarks.runs.trackers import Tracked, Tracker, Trackers
from results.protocols import protocol_id
from results.schema import Curve, Episode, Run, Status
from results.store import TableWriter
from results.tablefile import naming, replace_file

if TYPE_CHECKING:
    from benchmarks.runs.plan import Plan

EVERY_S = 0.5  # between two writes of progress.json: an agent may reach safe points far more often


class Recorder:
    """Owns the files of one run's folder; a context manager. `say` gets each line meant for a person watching.

    `state` is what `state()` returned at the safe point that the run resumes from: rows written later are cut off,
    since they will be written again.
    """

    def __init__(
        self,
        planned: Plan,
        *,
        trackers: Mapping[str, Callable[[Tracked], Tracker]],
        say: Callable[[str], object],
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self._plan, self._say = planned, say
        self._start = time.perf_counter()
        self._started = datetime.now(UTC).isoformat(timespec="seconds")
        self._commit, self._dirty = git_state()
        self._protocol = protocol_id(planned.protocol)
        self._description: dict[str, Any] = {}
        self._progress, self._env_steps = Progress(), 0
        self._stream = ""
        self._evaluate_s, self._written = 0.0, 0.0
        self._last_return: float | None = None
        self._notes: list[str] = []  # for the column message
        self._metrics: dict[str, list[float]] = {}  # of training, since they were last tracked
        folder = planned.folder
        if state is not None:
            self._restore(state)
        self._tracked = self._trained()  # when the trackers last got a speed
        with ExitStack() as stack:  # closes what is open if a later line raises
            self._log = stack.enter_context(open(folder / "log.txt", "ab", buffering=0))
            self._tables = {
                name: stack.enter_context(TableWriter(folder / f"{name}.csv", name))
                for name in ("runs", "curves", "episodes")
            }
            resumed_at = None if state is None else self._env_steps
            tracked = Tracked(planned.run_id, planned.config, folder, self._started, resumed_at)
            self._trackers = Trackers(trackers, tracked, self.tell)
            stack.callback(self._trackers.close)
            if state is None:
                self.log(f"{planned.run_id} begins")
                self.status("running")
            else:
                self.tell(f"{planned.run_id} resumes from step {self._env_steps} of {planned.budget.env_steps}")
            self._stack = stack.pop_all()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def updates(self) -> int:
        """Updates so far, as the agent counts them."""
        return self._progress.updates

    def log(self, text: str) -> None:
        line = f"{datetime.now(UTC).isoformat(timespec='seconds')} {text}\n"
        with naming(self._plan.folder / "log.txt"):
            self._log.write(line.encode(errors="backslashreplace"))

    def tell(self, text: str) -> None:
        """A line for the log and for a person watching."""
        self.log(text)
        self._say(text)

    def note(self, text: str) -> None:
        """Something that a reader of the final row must know."""
        self._notes.append(text)
        self.tell(text)

    def state(self) -> dict[str, Any]:
        """Plain JSON, for `__init__`. Makes the rows durable."""
        return {
            "sizes": {name: table.sync() for name, table in self._tables.items()},
            "progress": [self._progress.updates, self._progress.tokens, self._progress.skipped],
            "seconds": [self._progress.collect_s, self._progress.learn_s, self._evaluate_s, self._wall_s()],
            "env_steps": self._env_steps,
            "last_return": self._last_return,
            "notes": self._notes,
            "started": self._started,
            "made_with": self._made_with(),
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        for name, size in state["sizes"].items():
            path = self._plan.folder / f"{name}.csv"
            with naming(path):
                os.truncate(path, size)
        collect_s, learn_s, self._evaluate_s, wall_s = state["seconds"]
        updates, tokens, skipped = state["progress"]
        self._progress = Progress(updates, tokens, collect_s, learn_s, skipped=skipped)
        self._start -= wall_s
        self._env_steps, self._last_return = state["env_steps"], state["last_return"]
        self._notes, self._started = list(state["notes"]), state["started"]
        for name, before in state["made_with"].items():
            if (now := self._made_with()[name]) != before:
                self._notes.append(f"from step {self._env_steps} on with {name} {now}, before with {before}")

    @staticmethod
    def _made_with() -> dict[str, str]:
        """What can change the numbers but is not part of a run's identity."""
        return {"torch": version("torch"), "numpy": version("numpy"), "python": platform.python_version()}

    def describe(self, description: Mapping[str, Any]) -> None:
        """What the agent says about itself, for the columns parameters, device, attention and dtype."""
        self._description = dict(description)

    def progress(
        self,
        progress: Progress,
        env_steps: int,
        rollouts: Sequence[tuple[float, int]] = (),
        stream: int | None = None,
    ) -> None:
        """A safe point, with return and length of the training rollouts that have ended since the last one.

        `stream` is the checksum of the training so far.
        """
        self._progress, self._env_steps = progress, env_steps
        self._stream = "" if stream is None else f"{stream:08x}"
        for name, value in progress.metrics.items():
            self._metrics.setdefault(f"train/{name}", []).append(value)
        for total, length in rollouts:
            self._metrics.setdefault("rollout/return", []).append(total)
            self._metrics.setdefault("rollout/length", []).append(length)
        if time.perf_counter() - self._written >= EVERY_S:
            self._write_progress("running")
            self._track_metrics()

    def _track_metrics(self) -> None:
        """Means since the last call. Reports while collecting have no metrics, and do not discard those of learning."""
        values = {name: fmean(values) for name, values in self._metrics.items()}
        self._metrics.clear()
        now = self._trained()
        steps, seconds = now[0] - self._tracked[0], now[1] - self._tracked[1]
        if steps > 0 and seconds > 0:
            values["rollout/steps_per_second"] = steps / seconds
            self._tracked = now
        self._track(values)

    def evaluation(
        self, episodes: Sequence[EpisodeRecord], summary: Summary, split: str, index: int, final: bool, seconds: float
    ) -> None:
        """The rows of one evaluation of one split."""
        self._evaluate_s += seconds
        if split == self._plan.task.headline_split:
            self._last_return = summary.return_mean
        keys = self._keys() | {
            "split": split,
            "evaluation": index,
            "final": final,
            "env_steps": self._env_steps,
            "updates": self._progress.updates,
        }
        for episode in episodes:
            self._tables["episodes"].append(Episode(**keys, **asdict(episode)))
        self._tables["curves"].append(Curve(**keys, wall_s=self._wall_s(), **asdict(summary)))
        self._track_metrics()
        numbers = {name: value for name, value in asdict(summary).items() if value is not None}
        place, label = ("", "") if split == "same" else (f"{split}/", f" {split}")
        self._track({f"evaluation/{place}{name}": value for name, value in numbers.items()})
        self._write_progress("running")
        line = (
            f"{self._plan.run_id}  {self._env_steps} of {self._plan.budget.env_steps} steps  "
            f"return {summary.return_mean:.3f} over {summary.rollouts}{label} rollouts{' (final)' if final else ''}"
        )
        self.tell(line)

    def status(self, status: Status, message: str = "") -> None:
        """Appends a row to the table of runs; the last one counts."""
        described = self._description
        row = Run(
            **self._keys(),
            status=status,
            message="; ".join(filter(None, (message, *self._notes, self._skipped()))),
            commit=self._commit,
            dirty=self._dirty,
            config=json.dumps(self._plan.config, sort_keys=True, separators=(",", ":")),
            env_steps=self._env_steps,
            updates=self._progress.updates,
            tokens=self._progress.tokens,
            parameters=described.get("parameters"),
            collect_s=self._progress.collect_s,
            learn_s=self._progress.learn_s,
            evaluate_s=self._evaluate_s,
            wall_s=self._wall_s(),
            peak_rss_mb=_peak_rss_mb(),
            device=str(described.get("device", "")),
            attention=str(described.get("attention", "")),
            dtype=str(described.get("dtype", "")),
            threads=self._plan.threads,
            torch=version("torch"),
            python=platform.python_version(),
            started=self._started,
            stream=self._stream,
        )
        self._tables["runs"].append(row)
        self._write_progress(status)
        self.log(f"{status} {message}")

    def _skipped(self) -> str:
        done = self._progress
        return f"{done.skipped} of {done.updates} updates skipped: gradients not finite" if done.skipped else ""

    def _keys(self) -> dict[str, Any]:
        planned = self._plan
        return {
            "run_id": planned.run_id,
            "protocol": self._protocol,
            "task": planned.task.id,
            "agent": planned.agent,
            "tier": planned.tier,
            "seed": planned.seed,
        }

    def _trained(self) -> tuple[int, float]:
        """Environment steps, and the seconds that training has taken."""
        return self._env_steps, self._wall_s() - self._evaluate_s

    def _wall_s(self) -> float:
        return time.perf_counter() - self._start

    def _write_progress(self, status: Status) -> None:
        self._written = time.perf_counter()
        content = {
            "run_id": self._plan.run_id,
            "status": status,
            "env_steps": self._env_steps,
            "total": self._plan.budget.env_steps,
            "updates": self._progress.updates,
            "return": self._last_return,
            "wall_s": self._wall_s(),
        }
        replace_file(self._plan.folder / "progress.json", json.dumps(content).encode())

    def _track(self, values: Mapping[str, float]) -> None:
        if values:
            self._trackers.scalars(values, self._env_steps)


MERGED = ("results/reference", "results/protocols.json")  # tracked, but written by `merge` and not code


def git_state() -> tuple[str, bool]:
    """The commit of the code and whether tracked code has changed since.

    Code without a commit of its own has its version instead, as in `amago-bench 0.1.0`: an installed wheel may lie in
    the working copy of the user's project, whose commit says nothing about it.
    """
    root = Path(__file__).resolve().parents[2]

    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True).stdout

    try:
        top, commit = git("rev-parse", "--show-toplevel", "HEAD").splitlines()
        if Path(top).resolve() == root:
            changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", *(f":!{path}" for path in MERGED))
            return commit, bool(changed.strip())
    except (OSError, subprocess.CalledProcessError):
        pass  # no git, no repository, or one without a commit
    try:
        return f"amago-bench {version('amago-bench')}", False
    except PackageNotFoundError:
        return "", False


def _peak_rss_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10  # bytes there, KiB elsewhere
