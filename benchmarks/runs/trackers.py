"""Trackers show the curves of a run while it is made: TensorBoard, Weights & Biases, a class of one's own.

They only watch: the tables are the result, and a tracker that fails costs the run nothing but the tracker.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.imports import load_object
from results.errors import UserError


@dataclass(frozen=True)
class Tracked:
    """The run that a tracker watches. With `resumed_at`, what was tracked past that step will be tracked again.

    `started` is the time at which it began; it stays when the run is resumed and changes when it starts over.
    """

    run_id: str
    config: Mapping[str, Any]
    folder: Path
    started: str
    resumed_at: int | None = None  # environment steps


class Tracker(Protocol):
    """What a class of one's own needs, given as `--tracker my_module:MyTracker`.

    `scalars` gets `evaluation/...` after each evaluation and, at most twice a second, `train/...` (what the agent
    reports) and `rollout/...` (returns and lengths of training rollouts, steps a second), all by the number of
    environment steps so far. Any exception ends the tracker, not the run.
    """

    def __init__(self, run: Tracked) -> None: ...

    def scalars(self, values: Mapping[str, float], env_steps: int) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """An event file in the run's folder, written unbuffered and in this thread, so that an error shows up here.

    Does without torch's wrapper, which would import torch even for agents that do not use it.
    """

    def __init__(self, run: Tracked) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary = Event, Summary
        folder = run.folder / "tensorboard"
        folder.mkdir(exist_ok=True)
        self._file = open(folder / f"events.out.tfevents.{time.time_ns()}", "wb", buffering=0)  # noqa: SIM115 (`close`)
        self._records = RecordWriter(self._file)
        self._write(file_version="brain.Event:2")
        if run.resumed_at is None:
            self._write(summary=hparams_pb(_flat(run.config), trial_id=run.run_id))
        else:  # hides what was written past this step before the run was stopped
            self._write(step=run.resumed_at + 1, session_log=SessionLog(status=SessionLog.START))

    def scalars(self, values: Mapping[str, float], env_steps: int) -> None:
        summary = self._summary(value=[self._summary.Value(tag=tag, simple_value=v) for tag, v in values.items()])
        self._write(step=env_steps, summary=summary)

    def _write(self, **content: Any) -> None:
        self._records.write(self._event(wall_time=time.time(), **content).SerializeToString())

    def close(self) -> None:
        self._file.close()


def _flat(config: Mapping[str, Any]) -> dict[str, bool | float | str]:
    """Hyper-parameters and budget by name, as TensorBoard's table of runs holds them."""
    named = {**config.get("budget", {}), **config.get("hyperparameters", {})}
    return {name: value if isinstance(value, bool | int | float | str) else str(value) for name, value in named.items()}


class WandB:
    """One Weights & Biases run, which goes on when the run is resumed; WANDB_MODE=offline works as usual."""

    def __init__(self, run: Tracked) -> None:
        import wandb

        name = f"{run.run_id} {run.started}"  # has letters that an id may not have
        self._run = wandb.init(
            project="amago-bench",
            id=hashlib.sha256(name.encode()).hexdigest()[:16],
            resume="allow",
            name=run.run_id,
            config=dict(run.config),
            dir=str(run.folder),
        )

    def scalars(self, values: Mapping[str, float], env_steps: int) -> None:
        self._run.log(dict(values), step=env_steps)

    def close(self) -> None:
        self._run.finish()


TRACKERS: Mapping[str, type[Tracker]] = {"tensorboard": TensorBoard, "wandb": WandB}


def load_trackers(names: Iterable[str]) -> dict[str, Callable[[Tracked], Tracker]]:
    """The classes by name. Raises UserError for one that is unknown, is not installed or cannot be imported."""
    found: dict[str, Callable[[Tracked], Tracker]] = {}
    for name in names:
        if name in TRACKERS:
            if importlib.util.find_spec(name) is None:
                raise UserError(f"the package {name} is not installed; run `pip install {name}`, or leave it out")
            found[name] = TRACKERS[name]
        elif ":" in name:
            found[name] = load_object(name, "tracker")
        else:
            raise UserError(f"unknown tracker {name!r}; known: {', '.join(TRACKERS)}, or module:Class")
    return found


class Trackers:
    """All trackers of a run as one; each that fails is left out from then on, with one line.

    Args:
        classes: from `load_trackers`.
        run: what they watch.
        say: gets the line.
    """

    def __init__(
        self, classes: Mapping[str, Callable[[Tracked], Tracker]], run: Tracked, say: Callable[[str], object]
    ) -> None:
        self._say = say
        self._trackers: dict[str, Tracker] = {}
        for name, build in classes.items():
            with self._guarding(name):
                self._trackers[name] = build(run)

    def scalars(self, values: Mapping[str, float], env_steps: int) -> None:
        for name, tracker in list(self._trackers.items()):
            with self._guarding(name):
                tracker.scalars(values, env_steps)

    def close(self) -> None:
        for name, tracker in list(self._trackers.items()):
            with self._guarding(name):
                tracker.close()

    @contextlib.contextmanager
    def _guarding(self, name: str) -> Iterator[None]:
        try:
            yield
        except (Exception, SystemExit) as error:  # a foreign service or class may raise anything
            self._trackers.pop(name, None)
            what = " ".join(f"{type(error).__name__}: {error}".split())
            self._say(f"tracker {name} failed and is left out from now on ({what})")
