"""The figures of the paper that can be reproduced: which runs each needs, and what draws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType

from benchmarks.sweep import Job

TMAZE = "long_term_memory/tmaze/passive-"


@dataclass(frozen=True)
class Figure:
    """One figure. Its name is that of its claims and, with underscores, of its module and its published series."""

    name: str
    title: str
    tasks: Mapping[str, tuple[str, ...]]  # tier -> shell patterns of task ids
    agents: tuple[str, ...]

    def jobs(self, tier: str, seeds: int | None = None) -> list[Job]:
        """The runs it needs, seed by seed so that an early look compares like with like. `seeds`: 0 to seeds - 1."""
        from benchmarks.catalog import match

        tasks = [task for pattern in self.tasks.get(tier, ()) for task in match(pattern)]
        wanted = {task.id: task.budget(tier).seeds if seeds is None else range(seeds) for task in tasks}
        order = sorted({seed for of_task in wanted.values() for seed in of_task})
        return [
            Job(task.id, agent, tier, seed)
            for seed in order for task in tasks if seed in wanted[task.id] for agent in self.agents
        ]  # fmt: skip

    def draw(self, tier: str, root: Path, folder: Path) -> list[Path]:
        """Draw it from the tables under `root` into `folder`; the files written."""
        files: list[Path] = import_module(f"analysis.figures.{self.name.replace('-', '_')}").draw(tier, root, folder)
        return files


FIGURES: Mapping[str, Figure] = MappingProxyType({
    figure.name: figure
    for figure in (
        Figure(
            name="passive-tmaze",
            title="Passive T-Maze: return against corridor length",
            tasks={
                "smoke": (f"{TMAZE}10", f"{TMAZE}30"),
                "laptop": (f"{TMAZE}10", f"{TMAZE}30", f"{TMAZE}100", f"{TMAZE}300"),
                "paper": (f"{TMAZE}*",),
            },
            agents=("amago", "amago-gru", "amago-memoryless"),
        ),
    )
})  # fmt: skip


def all_jobs(figures: Sequence[Figure], tier: str, seeds: int | None = None) -> list[Job]:
    """The runs of several figures, each once."""
    return list(dict.fromkeys(job for figure in figures for job in figure.jobs(tier, seeds)))
