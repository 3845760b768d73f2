"""Plain text for terminals and pipes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def aligned(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table whose columns are as wide as their widest cell; numbers are right-aligned. None is an empty cell."""
    body = [list(row) for row in rows]
    cells = [list(head), *([_cell(value) for value in row] for row in body)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    right = [bool(body) and all(isinstance(row[i], int | float | None) for row in body) for i in range(len(head))]
    return "\n".join(
        "  ".join(text.rjust(width) if flush else text.ljust(width)
                  for text, width, flush in zip(row, widths, right, strict=True)).rstrip()
        for row in cells
    )  # fmt: skip


def duration(seconds: float) -> str:
    """`45 s`, `12:30 min`, `3:05 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:z.4g}" if isinstance(value, float) else str(value)
