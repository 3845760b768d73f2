"""Tables as text for a terminal or as Markdown, and numbers in their cells; `-` is a missing number.

The `z` in a format makes a -0.000 a 0.000. A mean and its bounds have the same digits, so that it never lies outside.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def lay_out(header: Sequence[str], body: Sequence[Sequence[str]], format: str = "text") -> list[str]:
    """The lines of a table; `format` is `text` or `markdown`."""
    if format == "markdown":
        return [f"| {' | '.join(line)} |" for line in (header, ["---"] * len(header), *body)]
    widths = [max(map(len, column)) for column in zip(header, *body, strict=True)]
    padded = ([cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in (header, *body))
    return ["  ".join(line).rstrip() for line in padded]


def empty(value: float | None) -> bool:
    return value is None or math.isnan(value)


def number(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:z.3f}"


def interval(value: float | None, low: float | None, high: float | None) -> str:
    return number(value) if empty(low) else f"{value:z.3f} [{low:z.3f}, {high:z.3f}]"


def duration(seconds: float | None) -> str:
    if seconds is None or math.isnan(seconds):
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02d}s"
