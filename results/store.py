"""Where the tables lie, and how they are read and merged.

A run owns its folder, `<root>/runs/<tier>/<task>/<agent>/seed-<n>/`, and appends to files of its own; nobody else
writes there. What is worth keeping is merged into `<root>/reference/<tier>/`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from results import schema
from results.errors import UserError
from results.tablefile import TableWriter, read_table, replace_file, write_table

__all__ = [
    "TableWriter",
    "load",
    "read_published",
    "read_table",
    "replace_file",
    "results_root",
    "run_folder",
    "run_folders",
    "write_table",
]

PACKAGE = Path(__file__).resolve().parent
SOURCES = ("reference", "runs")


def results_root() -> Path:
    """The folder that holds runs/ and reference/: $AMAGO_BENCH_RESULTS, or the repository's results/."""
    configured = os.environ.get("AMAGO_BENCH_RESULTS")
    return Path(configured).expanduser() if configured else PACKAGE


def run_folder(root: Path, tier: str, task: str, agent: str, seed: int) -> Path:
    """The folder of one run. `UserError` if a name could leave the results folder."""
    for name in (tier, *task.split("/"), agent):
        if name in ("", ".", "..") or any(mark in name for mark in "/\\\0") or len(name.encode()) > 255:
            raise UserError(f"{name!r} cannot be part of a folder's name; rename the tier, task or agent")
    return root / "runs" / tier / task / agent / f"seed-{seed}"


def load(table: str, root: Path | None = None, sources: Sequence[str] = SOURCES, tier: str | None = None) -> list[Any]:
    """All rows of a table: the reference results and the local run folders under `root` (default `results_root()`).

    `runs` gives one row a run, its last. A run that stands in both sources is taken from its run folder, with one
    warning. Two rows with one key are a `UserError`. `published` is read from the repository, whatever `root` is.
    """
    if table == "published":
        return read_published()
    schema.columns(table)  # an unknown table is said before anything is read
    if unknown := set(sources) - set(SOURCES):
        raise UserError(f"there is no source {min(unknown)!r}; the sources are {', '.join(SOURCES)}")
    root = root or results_root()
    local = _from_runs(table, root, tier) if "runs" in sources else []
    if "reference" not in sources:
        return local
    reference = _from_reference(table, root, tier)
    own = _local_ids(root, tier) if "runs" in sources else set()
    if both := own & {row.run_id for row in reference}:
        warnings.warn(
            f"{len(both)} runs stand in {root / 'runs'} and in {root / 'reference'}; "
            f"the run folders are used ({min(both)}{', ...' if len(both) > 1 else ''})",
            stacklevel=2,
        )
    return [row for row in reference if row.run_id not in both] + local


def read_published() -> list[Any]:
    """The published numbers, one row each."""
    path = PACKAGE / "published" / "amago_figures.csv"
    return unique("published", read_table(path, "published"), path)


def unique(table: str, rows: list[Any], where: Path) -> list[Any]:
    """The rows, if no two have one key; of `runs` the last row of each run."""
    seen = {schema.key(table, row): row for row in rows}
    if table == "runs":
        return list(seen.values())
    if len(seen) < len(rows):
        counted: set[tuple[Any, ...]] = set()
        for row in rows:
            key = schema.key(table, row)
            if key in counted:
                named = ", ".join(f"{name}={value}" for name, value in zip(schema.KEYS[table], key, strict=True))
                raise UserError(f"{where}: two rows of {table} have the same key ({named}); a result would count twice")
            counted.add(key)
    return rows


def run_folders(root: Path, tier: str | None = None) -> list[Path]:
    """Every folder under `root` in which a run has begun, in order of path."""
    return sorted(path.parent for path in (root / "runs").glob(f"{tier or '*'}/**/seed-*/runs.csv"))


def _from_runs(table: str, root: Path, tier: str | None) -> list[Any]:
    rows: list[Any] = []
    for folder in run_folders(root, tier):
        path = folder / f"{table}.csv"
        if path.exists():
            rows += unique(table, read_table(path, table), path)
    return unique(table, rows, root / "runs")


def _local_ids(root: Path, tier: str | None) -> set[str]:
    return {row.run_id for row in _from_runs("runs", root, tier)}


def _from_reference(table: str, root: Path, tier: str | None) -> list[Any]:
    rows: list[Any] = []
    for folder in sorted((root / "reference").glob(tier or "*")):
        path = reference_file(folder, table)
        if path.exists():
            rows += unique(table, read_table(path, table), path)
    return rows


def reference_file(folder: Path, table: str) -> Path:
    """Where a reference folder holds the table; the episodes are many and packed."""
    return folder / (f"{table}.csv.gz" if table == "episodes" else f"{table}.csv")
