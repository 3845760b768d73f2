"""Durable checkpoints: a folder exists with everything that belongs in it, or not at all. Loading one runs no code.

`<root>/1`, `<root>/2`, ... each hold what their writer put in and, written last, a manifest with the size and the
SHA-256 of every file. A folder is written under a temporary name, made durable, and renamed; the newest two are kept,
so that one which was damaged later has a predecessor.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = 4  # of the folder and of what AMAGO and the harness put in; another one is refused
KEPT = 2
MANIFEST = "manifest.json"


class Damaged(Exception):
    """A checkpoint is not what was written; the message says how."""


class WrongFormat(ValueError):
    """A checkpoint that an older or newer version wrote."""


def checkpoints(root: Path) -> list[Path]:
    """Every checkpoint under `root`, newest first, intact or not."""
    found = [path for path in root.glob("*") if path.name.isdecimal()] if root.is_dir() else []
    return sorted(found, key=lambda path: int(path.name), reverse=True)


def write(root: Path, fill: Callable[[Path], None]) -> Path:
    """Writes the next checkpoint with what `fill` puts into the folder it is given, and deletes the third newest.

    Raises OSError, naming the file, if writing fails; the earlier checkpoints are then untouched.
    """
    root.mkdir(parents=True, exist_ok=True)
    clear_temporaries(root)
    before = checkpoints(root)
    final = root / str(int(before[0].name) + 1 if before else 1)
    temporary = root / f".{final.name}.tmp"
    temporary.mkdir()
    try:
        fill(temporary)
        inside = sorted(temporary.rglob("*"))
        files = {str(path.relative_to(temporary)): _seal(path) for path in inside if path.is_file()}
        body = json.dumps({"format": FORMAT, "files": files}).encode()
        write_file(temporary / MANIFEST, body + b"\n" + hashlib.sha256(body).hexdigest().encode())
        for path in (temporary / MANIFEST, *(path for path in inside if path.is_dir()), temporary):
            _sync(path)
        os.replace(temporary, final)
        _sync(root)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    for old in before[KEPT - 1 :]:
        shutil.rmtree(old)
    return final


def clear_temporaries(root: Path) -> None:
    """Deletes what a writer that was killed left behind."""
    for stale in root.glob(".*.tmp"):
        shutil.rmtree(stale)


def verify(folder: Path) -> None:
    """Raises Damaged unless the folder holds exactly what was written, WrongFormat if another version wrote it."""
    try:
        body, _, digest = (folder / MANIFEST).read_bytes().rpartition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != digest:
            raise Damaged(f"{MANIFEST} is not what was written")
        manifest = json.loads(body)
        written, files = manifest["format"], manifest["files"]
        if written != FORMAT:
            raise WrongFormat(f"{folder} has checkpoint format {written}, this version reads {FORMAT}")
        for name, (size, digest) in files.items():
            found = _measure(folder / name)
            if found[0] != size:
                raise Damaged(f"{name} has {found[0]} bytes instead of {size}")
            if found[1] != digest:
                raise Damaged(f"{name} is not what was written")
    except OSError as error:
        raise Damaged(f"{Path(error.filename or folder).name}: {error.strerror or error}") from None
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        if isinstance(error, WrongFormat):
            raise
        raise Damaged(f"{MANIFEST} is damaged") from None


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Writes nested mappings and lists of tensors, NumPy arrays (which come back as tensors), numbers and texts."""
    import torch  # here, since a run without it has checkpoints too

    buffer = io.BytesIO()  # torch reports a full disk as a failed assertion about positions
    torch.save(_as_tensors(state), buffer)
    write_file(path, buffer.getvalue())


def load_state(path: Path) -> dict[str, Any]:
    """What `save_state` wrote, on the CPU. PyTorch's safe loader refuses what would run code."""
    import torch

    state: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
    return state


def write_file(path: Path, content: bytes) -> None:
    """Writes a file. Raises OSError with the file's name, which Python leaves out when the disk is full."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def as_arrays(value: Any) -> Any:
    """What `save_state` was given: tensors in nested mappings and lists back to NumPy arrays."""
    import torch

    if isinstance(value, Mapping):
        return {key: as_arrays(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(as_arrays(part) for part in value)
    return value.numpy() if isinstance(value, torch.Tensor) else value


def _as_tensors(value: Any) -> Any:
    import torch

    if isinstance(value, Mapping):
        return {key: _as_tensors(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_as_tensors(part) for part in value)
    return torch.tensor(value) if isinstance(value, np.ndarray) else value


def _seal(path: Path) -> tuple[int, str]:
    """Makes a file durable; its size and digest."""
    _sync(path)
    return _measure(path)


def _measure(path: Path) -> tuple[int, str]:
    with open(path, "rb") as stream:
        return path.stat().st_size, hashlib.file_digest(stream, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
