"""Checksums of complete files, so that any damage is found, even one changed digit or a flipped bit.

`sha256sum -c SHA256SUMS` reads the file `SHA256SUMS` beside them. A folder without one is not complete yet.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from results.errors import UserError
from results.tablefile import naming, replace_file

NAME = "SHA256SUMS"


def seal(folder: Path, names: Iterable[str]) -> None:
    """Writes the checksums of these files, paths below the folder; from now on they must not change."""
    lines = [f"{_digest(folder / name)}  {name}\n" for name in sorted(names)]
    replace_file(folder / NAME, os.fsencode("".join(lines)))


def unseal(folder: Path) -> None:
    """Allows the files to change."""
    with naming(folder / NAME):
        (folder / NAME).unlink(missing_ok=True)


def check(path: Path) -> Path:
    """The path itself; `UserError` if its folder is sealed and the file has changed since."""
    if not path.with_name(NAME).exists():
        return path
    if _sealed(path.parent).get(path.name) != _digest(path):
        raise UserError(f"{path}: damaged or edited since it was written (see {NAME}); restore it or make it again")
    return path


def check_folder(folder: Path) -> None:
    """`UserError` if the folder is sealed and any of its sealed files has changed since."""
    sealed = _sealed(folder) if (folder / NAME).exists() else {}
    for name, digest in sealed.items():
        if digest != _digest(folder / name):
            raise UserError(f"{folder / name}: damaged since it was written (see {NAME}); make it again")


def _sealed(folder: Path) -> dict[str, str]:
    """The checksum of each file, by name; `UserError` if the list itself is damaged."""
    with naming(folder / NAME):
        content = (folder / NAME).read_bytes()
    lines = re.findall(rb"([0-9a-f]{64})  ([^\0\n]+)\n", content)
    if b"".join(b"%b  %b\n" % line for line in lines) != content:
        raise UserError(f"{folder / NAME}: damaged; restore it, or make what it seals again")
    return {os.fsdecode(name): digest.decode() for digest, name in lines}


def _digest(path: Path) -> str:
    with naming(path), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
