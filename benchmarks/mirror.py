"""Copies of the curves to watch, in TensorBoard and on request in Weights & Biases. The tables are the truth."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from results.errors import UserError


class Mirror(Protocol):
    def scalars(self, values: Mapping[str, float], env_steps: int) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files in a folder, written without torch's wrapper, which would import torch for agents that have none."""

    def __init__(self, folder: Path) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary = Event, Summary
        self._writer = EventFileWriter(str(folder))

    def scalars(self, values: Mapping[str, float], env_steps: int) -> None:
        summary = self._summary(value=[self._summary.Value(tag=tag, simple_value=v) for tag, v in values.items()])
        self._writer.add_event(self._event(wall_time=time.time(), step=env_steps, summary=summary))

    def close(self) -> None:
        self._writer.close()


def check_wandb() -> None:
    """Raises UserError where wandb is missing."""
    if importlib.util.find_spec("wandb") is None:
        raise UserError("the package wandb is not installed; run `pip install wandb`, or leave the mirror out")


class WandB:
    """One Weights & Biases run; WANDB_MODE=offline works as everywhere."""

    def __init__(self, folder: Path, run_id: str, config: Mapping[str, Any]) -> None:
        import wandb

        self._run = wandb.init(project="amago-bench", name=run_id, config=dict(config), dir=str(folder))

    def scalars(self, values: Mapping[str, float], env_steps: int) -> None:
        self._run.log(dict(values), step=env_steps)

    def close(self) -> None:
        self._run.finish()
