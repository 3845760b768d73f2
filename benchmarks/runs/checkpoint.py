"""The checkpoints of a run, and which of them it can resume from.

`checkpoints/<number>/` in the run's folder holds what the agent saved (agent/), the state of the harness
(harness.json), and the state of every slot of the environment (environments.npz). The folder can be moved.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from amago_core import checkpoint
from benchmarks.agents.protocol import Agent
from results.errors import UserError
from results.protocols import read_json
from results.renames import current_identity

CHECKPOINT_S = 30.0  # the most that a kill costs, unless checkpoints are so slow that SHARE spaces them further apart
FIRST_S = 4.0  # to the first checkpoint, and twice as long to each next one: a job that is often stopped gets on
SHARE = 0.02  # of a run's wall time for writing checkpoints
FOLDER = "checkpoints"
HARNESS, ENVIRONMENTS = "harness.json", "environments.npz"


@dataclass(frozen=True)
class Point:
    """A safe point from which a run can resume."""

    folder: Path
    harness: dict[str, Any]
    environments: dict[str, np.ndarray]

    @property
    def agent(self) -> Path:
        return self.folder / "agent"


def save_point(run: Path, agent: Agent, harness: Mapping[str, Any], environments: Mapping[str, np.ndarray]) -> None:
    """Writes a checkpoint. Raises UserError if that fails; the earlier checkpoints stay."""

    def fill(folder: Path) -> None:
        (folder / "agent").mkdir()
        agent.save(folder / "agent")
        checkpoint.write_file(folder / HARNESS, json.dumps(harness, indent=1).encode())
        arrays = io.BytesIO()
        np.savez(arrays, **environments)  # type: ignore[arg-type]  # none is called `allow_pickle`
        checkpoint.write_file(folder / ENVIRONMENTS, arrays.getvalue())

    try:
        checkpoint.write(run / FOLDER, fill)
    except OSError as error:
        where = error.filename or run / FOLDER
        raise UserError(f"{where}: {error.strerror or error}; the checkpoint could not be written") from error


def newest_point(run: Path, identity: Mapping[str, Any], say: Callable[[str], object]) -> Point | None:
    """The newest intact checkpoint; damaged ones are reported and deleted. None: the run has to start over.

    Raises UserError for a checkpoint of another format or of another run, with the keys that differ.
    """
    found = checkpoint.checkpoints(run / FOLDER)
    for i, folder in enumerate(found):
        try:
            checkpoint.verify(folder)
            point = _read(folder)
            _check_tables(run, point.harness["recorder"]["sizes"])
        except checkpoint.WrongFormat as error:
            raise UserError(f"{error}; give --replace to start over") from error
        except checkpoint.Damaged as damage:
            instead = "the previous one is used" if i + 1 < len(found) else "the run starts over"
            say(f"checkpoint {folder} cannot be used ({damage}); {instead}")
            continue
        if changed := differences(current_identity(point.harness["identity"]), identity):
            raise UserError(f"{folder} is a checkpoint with another {changed}; give --replace to start over")
        for newer in found[:i]:
            shutil.rmtree(newer)
        return point
    return None


def _read(folder: Path) -> Point:
    with np.load(folder / ENVIRONMENTS, allow_pickle=False) as arrays:
        return Point(folder, read_json(folder / HARNESS), dict(arrays))


def _check_tables(run: Path, sizes: Mapping[str, int]) -> None:
    for name, size in sizes.items():
        path = run / f"{name}.csv"
        if not path.exists() or path.stat().st_size < size:
            raise checkpoint.Damaged(f"{path.name} lacks rows that it had at the checkpoint")


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The keys of two identities that differ, with both values; empty if none does."""
    old, new = _flat(before), _flat(json.loads(json.dumps(now)))
    changed = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    return "; ".join(f"{key}: {json.dumps(old.get(key))} -> {json.dumps(new.get(key))}" for key in changed)


def _flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"agent": {"width": 64}} -> {"agent.width": 64}, so that a difference names the exact key."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
