"""The two ends of each task's normalised score, as a committed table, so that reading results needs no environments.

`reproduce/scales.py` writes `scales.json` from the tasks, and a test checks that the two agree.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from results.protocols import read_json

PATH = Path(__file__).resolve().parent / "scales.json"


class Scale(NamedTuple):
    """The returns that normalise to 0 and 1; `source` says where `high` comes from."""

    random: float
    high: float
    source: str


@cache
def scales() -> dict[str, Scale]:
    """The scale of every task of this repository, by task id. Raises UserError if the file is damaged."""
    return {task: Scale(**entry) for task, entry in read_json(PATH).items()}
