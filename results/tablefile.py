"""One table file: appended to line by line, written whole, or read.

A line is a row, so a crash costs at most the line being written, and a reader can tell that it is torn. Readers never
write.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import os
import sys
import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from results import renames, schema
from results.errors import UserError
from results.schema import Row

csv.field_size_limit(sys.maxsize)  # the csv module's default of 128 KiB would make a long message unreadable


class TableWriter:
    """Appends rows to a table file, one whole line per write.

    An existing file is continued: its header must match (`UserError` otherwise), and a torn last line, left by a
    crash, is cut off with a warning. If a write fails, the file is left as it was.
    """

    def __init__(self, path: Path, table: str) -> None:
        self.path = path
        self.table = table
        self._width = len(schema.columns(table))
        header = _line(schema.columns(table))
        with naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(path, "a+b", buffering=0)  # noqa: SIM115 (closed by `close`)
        try:
            self._continue(header)
        except BaseException:
            self.close()
            raise

    def _continue(self, header: bytes) -> None:
        self._file.seek(0)
        content = self._file.read()
        lines, torn = _split(content)
        if torn:
            warnings.warn(f"{self.path}: cut off the torn last line {torn[:60]!r}", stacklevel=3)
            self._file.truncate(len(content) - len(torn))
        if not lines:
            self._write(header)
        elif lines[0] != header.rstrip(b"\n"):
            _check_header(self.table, lines, self.path)
            self._width = len(_cells(lines[0], str(self.path)))  # a table from before keeps its columns

    def append(self, row: Row) -> None:
        """Adds the row. `UserError` if it does not fit the table or cannot be written."""
        self._write(_line(schema.cells(self.table, row)[: self._width]))

    def _write(self, line: bytes) -> None:
        end = self._file.seek(0, io.SEEK_END)
        with naming(self.path):
            try:
                written = 0
                while written < len(line):  # a nearly full disk accepts part of a line, then raises
                    written += self._file.write(line[written:])
            except OSError:
                self._file.truncate(end)
                raise

    def sync(self) -> int:
        """Makes all rows durable; the size of the file, in bytes."""
        with naming(self.path):
            os.fsync(self._file.fileno())
        return self._file.seek(0, io.SEEK_END)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def write_table(path: Path, table: str, rows: Iterable[Row]) -> None:
    """Writes a whole table (.csv or .csv.gz); readers see either the old file or the new one. Same rows, same bytes."""
    content = b"".join([_line(schema.columns(table)), *(_line(schema.cells(table, row)) for row in rows)])
    if path.suffix == ".gz":
        packed = io.BytesIO()
        with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as stream:  # no name, no date: same bytes
            stream.write(content)
        content = packed.getvalue()
    replace_file(path, content)


def replace_file(path: Path, content: bytes) -> None:
    """Writes `content` to `path` atomically; after an error the old file is untouched."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(temporary, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def _line(cells: Sequence[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode("utf-8", errors="backslashreplace")


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turns an operating system's error into a line that names the file."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from error


def read_table(path: Path, table: str) -> list[Any]:
    """The rows of a .csv or .csv.gz file, as the table's dataclass, in file order, renamed settings by their new names.

    A torn last line (from a writer that died, or is still writing) is skipped with a warning. Anything else that does
    not fit the schema is a `UserError` that names file, line and column. The file is never changed.
    """
    lines, torn = _split(_content(path))
    if torn:
        warnings.warn(f"{path}, line {len(lines) + 1}: left out the torn last line {torn[:60]!r}", stacklevel=2)
    if not lines:
        return []
    _check_header(table, lines, path)
    names, added = _cells(lines[0], f"{path}, line 1"), dict.fromkeys(schema.ADDED.get(table, ()), "")
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        where = f"{path}, line {number}"
        cells = _cells(line, where)
        if len(cells) != len(names):
            raise UserError(f"{where}: {len(cells)} cells instead of {len(names)}")
        rows.append(renames.current_row(schema.parse(table, added | dict(zip(names, cells, strict=True)), where)))
    return rows


def _content(path: Path) -> bytes:
    with naming(path):
        content = path.read_bytes()
    if path.suffix != ".gz":
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: the compressed file is damaged ({error})") from None


def _split(content: bytes) -> tuple[list[bytes], bytes]:
    """The whole lines, and what follows the last line break."""
    *lines, torn = content.split(b"\n")
    return lines, torn


def _cells(line: bytes, where: str) -> list[str]:
    try:
        return next(csv.reader([line.decode("utf-8")], strict=True), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{where}: the line is damaged ({error})") from None


def _check_header(table: str, lines: list[bytes], path: Path) -> None:
    wanted = list(schema.columns(table))
    found = _cells(lines[0], f"{path}, line 1")
    if found in schema.headers(table):
        return
    where = f"{path}, line 1"
    if "schema" in found and len(lines) > 1:  # another version is a better explanation than a list of columns
        version = dict(zip(found, _cells(lines[1], f"{path}, line 2"), strict=False)).get("schema")
        if version != str(schema.SCHEMA_VERSION):
            schema.check_version(str(version), f"{path}, line 2")
    for name in wanted:
        if name not in found:
            raise UserError(f"{where}: column {name} is missing; this is not a table of {table} of this version")
    for name in found:
        if name not in wanted or found.count(name) > 1:
            raise UserError(f"{where}: column {name!r} is one too many; {table} has no such column")
    name = next(name for name, other in zip(found, wanted, strict=True) if name != other)
    raise UserError(f"{where}: column {name} is out of order; the order is {','.join(wanted)}")
