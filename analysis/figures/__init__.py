"""The figures by name: the runs that each needs, as data, and how to draw it. Light to import: no matplotlib."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

from analysis.drawing import Drawing, paths
from results.errors import UserError
from results.store import results_root

ENTRY_POINTS = "amago_bench.figures"


@dataclass(frozen=True)
class FigureSpec:
    """A figure. `runs` says for each tier which tasks it shows and how many seeds an agent has there.

    `only` says for each tier which agents play not all of these tasks, and which they do play. `drawings` are modules
    with a function `draw(tier, root) -> Drawing`, by the name of the file without the tier.
    """

    title: str
    drawings: Mapping[str, str]
    agents: tuple[str, ...]
    runs: Mapping[str, Mapping[str, int]]
    only: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)

    def tasks(self, tier: str) -> tuple[str, ...]:
        """The tasks of a tier. Raises UserError for a tier that the figure does not have."""
        if tier not in self.runs:
            raise UserError(f"figure '{self.title}' has no tier '{tier}' (known: {', '.join(self.runs)})")
        return tuple(self.runs[tier])

    def cells(self, tier: str) -> Iterator[tuple[str, str, int]]:
        """Every (task, agent, seeds) that the figure asks for at a tier. Raises UserError as `tasks` does."""
        fewer = self.only.get(tier, {})
        for task in self.tasks(tier):
            for agent in self.agents:
                if task in fewer.get(agent, (task,)):
                    yield task, agent, self.runs[tier][task]

    def files(self, tier: str, root: Path) -> list[Path]:
        """All that `write` writes. Raises UserError as `tasks` does."""
        self.tasks(tier)
        return [path for name in self.drawings for path in paths(root / "figures", f"{name}-{tier}")]

    def write(self, tier: str, root: Path | None = None) -> list[Path]:
        """Draws from the tables under `root` (default: `results.store.results_root()`); returns the files written."""
        from analysis.style import paper_style

        root = root or results_root()
        files = self.files(tier, root)
        with paper_style():
            for name, module in self.drawings.items():
                drawing: Drawing = import_module(module).draw(tier, root)
                drawing.save(root / "figures", f"{name}-{tier}")
        return files


def _tmaze(**seeds_by_corridor: int) -> dict[str, int]:
    return {f"long_term_memory/tmaze/passive-{name[1:]}": seeds for name, seeds in seeds_by_corridor.items()}


def _popgym(*names: str) -> tuple[str, ...]:
    return tuple(f"long_term_memory/popgym/{name}" for name in names)


# The 39 tasks of the paper: three levels of each of these (agent.md 10.4).
_POPGYM_FAMILIES = (
    "Autoencode", "Battleship", "Concentration", "CountRecall", "HigherLower", "MineSweeper", "MultiarmedBandit",
    "NoisyPositionOnlyCartPole", "NoisyPositionOnlyPendulum", "PositionOnlyCartPole", "PositionOnlyPendulum",
    "RepeatFirst", "RepeatPrevious",
)  # fmt: skip
_POPGYM_39 = _popgym(*(family + level for family in _POPGYM_FAMILIES for level in ("Easy", "Medium", "Hard")))
_POPGYM_LAPTOP = _popgym(
    "CountRecallEasy", "MineSweeperEasy", "MultiarmedBanditEasy", "PositionOnlyCartPoleEasy", "RepeatPreviousEasy",
    "RepeatPreviousMedium",
)  # fmt: skip
_POPGYM_SMOKE = _popgym("PositionOnlyPendulumEasy", "RepeatPreviousEasy")

#: The figures of this repository.
FIGURES: dict[str, FigureSpec] = {
    "passive-tmaze": FigureSpec(
        title="Passive T-Maze",
        drawings={"passive-tmaze": "analysis.figures.passive_tmaze"},
        agents=("amago", "amago-gru", "amago-memoryless"),
        runs={
            "smoke": _tmaze(n10=1, n30=1),
            "laptop": _tmaze(n10=5, n30=5, n100=5, n300=3),
            "paper": _tmaze(n10=5, n30=5, n100=5, n300=5, n1000=5, n3000=5, n10000=5),
        },
    ),
    "popgym": FigureSpec(
        title="POPGym summary",
        drawings={
            "popgym": "analysis.figures.popgym_summary",
            "popgym-curves": "analysis.figures.popgym_curves",
            "popgym-recall": "analysis.figures.popgym_recall",
        },
        agents=("amago", "amago-naive", "amago-gru", "amago-memoryless", "sb3-recurrent-ppo", "sb3-ppo"),
        runs={
            "smoke": dict.fromkeys(_POPGYM_SMOKE, 1),
            "laptop": dict.fromkeys(_POPGYM_LAPTOP, 5),
            "paper": dict.fromkeys(_POPGYM_39, 3),
        },
        only={
            "smoke": {"sb3-recurrent-ppo": (), "sb3-ppo": ()},
            "laptop": {
                "sb3-recurrent-ppo": _popgym("RepeatPreviousEasy", "RepeatPreviousMedium"),
                "sb3-ppo": (),
            },
        },
    ),
}


def figures() -> Mapping[str, FigureSpec]:
    """Ours, and those of installed packages: entry points of the group `ENTRY_POINTS` that name a `FigureSpec`.

    One that cannot be loaded, or has the name of one of ours, is skipped with a warning.
    """
    found = dict(FIGURES)
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            spec = entry.load()
            if not isinstance(spec, FigureSpec) or entry.name in found:
                raise TypeError("it is not an analysis.figures.FigureSpec, or its name is taken")
            found[entry.name] = spec
        except Exception as error:  # a broken package must not take the other figures away
            warnings.warn(f"figure {entry.name} = {entry.value} is skipped: {error}", stacklevel=2)
    return found
