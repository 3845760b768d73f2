"""Checksums of files that are complete, so that damage is found however harmless it looks: a digit, a flipped bit.

`SHA256SUMS` beside the files is what `sha256sum -c SHA256SUMS` reads. A folder without one is not complete yet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from results.errors import UserError
from results.tablefile import naming, replace_file

NAME = "SHA256SUMS"


def seal(folder: Path, names: Iterable[str]) -> None:
    """Writes down the checksums of those files; they must not change from here on."""
    lines = [f"{_digest(folder / name)}  {name}\n" for name in sorted(names)]
    replace_file(folder / NAME, "".join(lines).encode())


def unseal(folder: Path) -> None:
    """Allows the files to change."""
    with naming(folder / NAME):
        (folder / NAME).unlink(missing_ok=True)


def check(path: Path) -> Path:
    """The path itself; `UserError` if the file is sealed and is not what it was then, or the seal is damaged."""
    sums = path.with_name(NAME)
    if not sums.exists():
        return path
    with naming(sums):
        lines = sums.read_bytes().split(b"\n")
    expected = [line[:64] for line in lines if line[64:] == f"  {path.name}".encode()]
    if len(expected) != 1 or expected[0].decode(errors="replace") != _digest(path):
        raise UserError(f"{path}: damaged or edited since it was written (see {NAME}); restore it or make it again")
    return path


def _digest(path: Path) -> str:
    with naming(path), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
