"""From a tier to its figures: which runs are needed, and which files are out of date."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from analysis.figures import figures
from benchmarks.runs.job import Job
from results.store import COMMITTED, reference_folders

ANALYSIS = Path(__file__).resolve().parents[1] / "analysis"


def jobs(names: Iterable[str], tier: str, seeds: int | Sequence[int] | None = None) -> list[Job]:
    """The runs that figures need at a tier, each once, seed by seed so that an early look compares like with like.

    `seeds`: these everywhere (a number N: 0 to N-1), instead of the seeds that each figure asks for.
    """
    known = figures()
    wanted = [
        (seed, task, agent)
        for name in names
        for task, agent, planned in known[name].cells(tier)
        for seed in (range(planned) if seeds is None else range(seeds) if isinstance(seeds, int) else seeds)
    ]
    return [Job(task, agent, tier, seed) for seed, task, agent in dict.fromkeys(sorted(wanted, key=lambda w: w[0]))]


def refresh(name: str, tier: str, root: Path) -> tuple[list[Path], bool]:
    """The files of a figure under `root`, and whether they had to be rewritten.

    They are rewritten if a table or the drawing code is newer, or a file is missing.
    """
    figure = figures()[name]
    files = figure.files(tier, root)
    if all(path.exists() for path in files):
        written = min(path.stat().st_mtime for path in files)
        if all(path.stat().st_mtime <= written for path in _sources(tier, root)):
            return files, False
    return figure.write(tier, root), True


def _sources(tier: str, root: Path) -> Iterator[Path]:
    yield from ANALYSIS.rglob("*.py")
    for folder in (*reference_folders(COMMITTED, tier), *reference_folders(root, tier)):
        yield from folder.glob("*.csv*")
    for table in ("runs", "curves"):
        yield from (root / "runs" / tier).rglob(f"{table}.csv")
