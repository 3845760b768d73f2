"""Copies of the curves for watching a run, in TensorBoard and optionally Weights & Biases. The tables decide."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from results.errors import UserError
from results.tablefile import naming


class Mirror(Protocol):
    def scalars(self, values: Mapping[str, float], env_steps: int) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """An event file in a folder, written unbuffered and in this thread, so that a full disk raises an error here.

    Does without torch's wrapper, which would import torch even for agents that do not use it. Raises UserError for a
    failed write.
    """

    def __init__(self, folder: Path, resumed_at: int | None = None) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary = Event, Summary
        self._path = folder / f"events.out.tfevents.{time.time_ns()}"
        with naming(self._path):
            folder.mkdir(exist_ok=True)
            self._file = open(self._path, "wb", buffering=0)  # noqa: SIM115 (closed by `close`)
        self._records = RecordWriter(self._file)
        self._write(file_version="brain.Event:2")
        if resumed_at is not None:  # hides what was written past this step before the run was stopped
            self._write(step=resumed_at + 1, session_log=SessionLog(status=SessionLog.START))

    def scalars(self, values: Mapping[str, float], env_steps: int) -> None:
        summary = self._summary(value=[self._summary.Value(tag=tag, simple_value=v) for tag, v in values.items()])
        self._write(step=env_steps, summary=summary)

    def _write(self, **content: Any) -> None:
        with naming(self._path):
            self._records.write(self._event(wall_time=time.time(), **content).SerializeToString())

    def close(self) -> None:
        self._file.close()


def check_wandb() -> None:
    """Raises UserError if wandb is not installed."""
    if importlib.util.find_spec("wandb") is None:
        raise UserError("the package wandb is not installed; run `pip install wandb`, or leave the mirror out")


class WandB:
    """One Weights & Biases run; WANDB_MODE=offline works as usual."""

    def __init__(self, folder: Path, run_id: str, config: Mapping[str, Any]) -> None:
        import wandb

        self._run = wandb.init(project="amago-bench", name=run_id, config=dict(config), dir=str(folder))

    def scalars(self, values: Mapping[str, float], env_steps: int) -> None:
        self._run.log(dict(values), step=env_steps)

    def close(self) -> None:
        self._run.finish()
