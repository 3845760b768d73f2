"""The checkpoints of a run, and which of them it can go on from.

`checkpoints/<number>/` in the run's folder holds what the agent saved (agent/), where the harness stands
(harness.json), and where every slot of the environment stands (environments.npz). Nothing in it depends on where the
folder lies.
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

CHECKPOINT_S = 30.0  # what a kill costs at most, unless one checkpoint is so dear that SHARE makes it longer
SHARE = 0.02  # of a run's wall time for writing checkpoints
FOLDER = "checkpoints"
HARNESS, ENVIRONMENTS = "harness.json", "environments.npz"


@dataclass(frozen=True)
class Point:
    """A safe point that a run can go on from."""

    folder: Path
    harness: dict[str, Any]
    environments: dict[str, np.ndarray]

    @property
    def agent(self) -> Path:
        return self.folder / "agent"


def save_point(run: Path, agent: Agent, harness: Mapping[str, Any], environments: Mapping[str, np.ndarray]) -> None:
    """Raises UserError where the disk does not take it; the checkpoints before stay."""

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
    """The newest checkpoint that is whole; damaged ones are said and deleted. None: the run has to start afresh.

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
            instead = "the one before is used" if i + 1 < len(found) else "the run starts afresh"
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
            raise checkpoint.Damaged(f"{path.name} lacks rows that it counts on")


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The keys of two identities that differ, with both values; empty if none does."""
    old, new = _flat(before), _flat(json.loads(json.dumps(now)))
    changed = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    return "; ".join(f"{key}: {json.dumps(old.get(key))} -> {json.dumps(new.get(key))}" for key in changed)


def _flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"agent": {"width": 64}} -> {"agent.width": 64}, so that a difference names the one key it is in."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
