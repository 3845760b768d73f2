"""The figures by name: the runs that each needs, as data, and how to draw it. Light to import: no matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from results.errors import UserError


@dataclass(frozen=True)
class FigureSpec:
    """A figure of the paper. `runs` says for each tier which tasks it shows and how many seeds an agent has there."""

    title: str
    module: str  # has draw(tier, root) -> list[Path]
    agents: tuple[str, ...]
    runs: Mapping[str, Mapping[str, int]]

    def tasks(self, tier: str) -> tuple[str, ...]:
        """The tasks of a tier. Raises UserError for a tier that the figure does not have."""
        if tier not in self.runs:
            raise UserError(f"figure '{self.title}' has no tier '{tier}' (known: {', '.join(self.runs)})")
        return tuple(self.runs[tier])

    def draw(self, tier: str, root: Path | None = None) -> list[Path]:
        """Draws from the tables under `root` (default: `results.store.results_root()`); returns the files written."""
        self.tasks(tier)
        paths: list[Path] = import_module(self.module).draw(tier, root)
        return paths


def _tmaze(**seeds_by_corridor: int) -> dict[str, int]:
    return {f"long_term_memory/tmaze/passive-{name[1:]}": seeds for name, seeds in seeds_by_corridor.items()}


FIGURES: dict[str, FigureSpec] = {
    "passive-tmaze": FigureSpec(
        title="Passive T-Maze",
        module="analysis.figures.passive_tmaze",
        agents=("amago", "amago-gru", "amago-memoryless"),
        runs={
            "smoke": _tmaze(n10=1, n30=1),
            "laptop": _tmaze(n10=5, n30=5, n100=5, n300=3),
            "paper": _tmaze(n10=5, n30=5, n100=5, n300=5, n1000=5, n3000=5, n10000=5),
        },
    ),
}
