"""Where the tables are, and how they are read and merged.

A run owns its folder, `<root>/runs/<tier>/<task>/<agent>/seed-<n>/`, and appends to its own files; nobody else writes
there. What is worth keeping is merged into `<root>/reference/<tier>/`. The results that come with the project, in a
checkout as in a wheel, lie beside this file.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from results import protocols, renames, schema, seal
from results.errors import UserError
from results.tablefile import TableWriter, read_table, replace_file, write_table

__all__ = [
    "COMMITTED",
    "TableWriter",
    "in_checkout",
    "load",
    "merge_runs",
    "read_published",
    "read_table",
    "reference_folders",
    "replace_file",
    "results_root",
    "run_folder",
    "run_folders",
    "unique",
    "write_table",
]

COMMITTED = Path(__file__).resolve().parent  # reference/, published/ and protocols.json; only a checkout writes here
SOURCES = ("committed", "reference", "runs")


def in_checkout() -> bool:
    """Whether this code is a working copy of the repository, and not installed from a wheel."""
    return (COMMITTED.parent / "reproduce" / "run_all.sh").exists()  # in no wheel


def results_root() -> Path:
    """The user's results: $AMAGO_BENCH_RESULTS, else the checkout's results/, else results/ of the current folder.

    It holds runs/, figures/ and what was merged here, reference/. Raises UserError if the variable names a file.
    """
    configured = os.environ.get("AMAGO_BENCH_RESULTS")
    if not configured:
        return COMMITTED if in_checkout() else Path.cwd() / "results"
    root = Path(configured).expanduser()
    if root.exists() and not root.is_dir():
        raise UserError(f"AMAGO_BENCH_RESULTS is {root}, which is a file; set it to a folder")
    return root


def run_folder(root: Path, tier: str, task: str, agent: str, seed: int) -> Path:
    """The folder of one run, even if the run was made before a setting in the agent's id was renamed.

    Raises `UserError` if a name could leave the results folder.
    """
    for name in (tier, *task.split("/"), agent):
        if name in ("", ".", "..") or any(mark in name for mark in "/\\\0") or len(name.encode()) > 255:
            raise UserError(f"{name!r} cannot be part of a folder's name; rename the tier, task or agent")
    runs, name = root / "runs" / tier / task, f"seed-{seed}"
    if "@" in agent and not (runs / agent / name).exists():
        for older in sorted(runs.glob(f"*@*/{name}")):
            if renames.current_agent(older.parent.name) == agent:
                return older
    return runs / agent / name


def load(table: str, root: Path | None = None, sources: Sequence[str] = SOURCES, tier: str | None = None) -> list[Any]:
    """All rows of a table under `root` (default `results_root()`), beside them the committed reference results.

    Sources: `runs` are the run folders, `reference` what was merged under `root`, and `committed` the reference that
    comes with the project, if `root` is another folder. Where a task has runs of an agent at a tier under `root`, the
    committed ones are left out: the two were made by other code or on other machines, and never share a cell.

    `runs` has one row per run, its last. A run in both `runs` and `reference` is taken from its run folder, and the
    table `runs` warns if the two differ. Two rows with the same key are a `UserError`, but for `tasks`, which every run
    writes: there the last one counts. `published` is always the committed table.
    """
    if table == "published":
        return read_published()
    schema.columns(table)  # report an unknown table before reading anything
    if unknown := set(sources) - set(SOURCES):
        raise UserError(f"there is no source {min(unknown)!r}; the sources are {', '.join(SOURCES)}")
    root = root or results_root()
    if table == "tasks":
        return _tasks(root, sources, tier)
    folders = run_folders(root, tier)
    made = [_names(root, folder) for folder in folders]
    merged = _from_reference(table, root, tier)
    rows = [row for folder in folders for row in _from_folder(table, root, folder)] if "runs" in sources else []
    if "reference" in sources:
        if table == "runs":
            _warn_of_differences(merged, rows, root)
        own = {schema.run_id(*names) for names in made} if "runs" in sources else set()
        rows = [row for row in merged if row.run_id not in own] + rows
    if "committed" in sources and root.resolve() != COMMITTED:
        cells = {(row.tier, row.task, row.agent) for row in merged} | {names[:3] for names in made}
        committed = _from_reference(table, COMMITTED, tier)
        rows = [row for row in committed if (row.tier, row.task, row.agent) not in cells] + rows
    return rows


def _names(root: Path, folder: Path) -> tuple[str, str, str, str]:
    """Tier, task, agent and seed of a run folder, by its path: reading its rows would take a hundred times as long.

    The seed is a text, since a copied folder may have any name.
    """
    tier, *task, agent, seed = folder.relative_to(root / "runs").parts
    return tier, "/".join(task), renames.current_agent(agent), seed.removeprefix("seed-")


def _warn_of_differences(merged: Sequence[Any], local: Sequence[Any], root: Path) -> None:
    own = {row.run_id: row for row in local}
    if differing := [row.run_id for row in merged if own.get(row.run_id, row) != row]:
        warnings.warn(
            f"{len(differing)} of the runs in {root / 'reference'} have a run folder with other rows, "
            f"which are used ({min(differing)})",
            stacklevel=3,
        )


def _tasks(root: Path, sources: Sequence[str], tier: str | None) -> list[Any]:
    references = [*([COMMITTED] if "committed" in sources else []), *([root] if "reference" in sources else [])]
    folders = [folder for each in references for folder in sorted((each / "reference").glob(tier or "*"))]
    folders += run_folders(root, tier) if "runs" in sources else []
    return _last_of_each(row for folder in folders for row in _tasks_of(folder))


def _tasks_of(folder: Path) -> list[Any]:
    path = folder / "tasks.csv"  # older runs have none
    return read_table(seal.check(path), "tasks") if path.exists() else []


def _last_of_each(rows: Iterable[Any]) -> list[Any]:
    """The last row of each task, tier and protocol, in that order."""
    return _ordered("tasks", list({schema.key("tasks", row): row for row in rows}.values()))


def read_published() -> list[Any]:
    """The published numbers, one row each."""
    path = COMMITTED / "published" / "amago_figures.csv"
    return unique("published", read_table(path, "published"), path)


def unique(table: str, rows: list[Any], where: Path) -> list[Any]:
    """The rows themselves; `UserError` if two of them have the same key."""
    seen: set[tuple[Any, ...]] = set()
    for row in rows:
        key = schema.key(table, row)
        if key in seen:
            named = ", ".join(f"{name}={value}" for name, value in zip(schema.KEYS[table], key, strict=True))
            raise UserError(f"{where}: two rows of {table} have the same key ({named}); a result would count twice")
        seen.add(key)
    return rows


def run_folders(root: Path, tier: str | None = None) -> list[Path]:
    """Every folder under `root` in which a run has begun, in order of path."""
    found = []
    for folder, folders, files in os.walk(root / "runs" / (tier or "")):
        if os.path.basename(folder).startswith("seed-"):
            folders.clear()  # a run's checkpoints and trackers are many files
            if "runs.csv" in files:
                found.append(Path(folder))
    return sorted(found)


def _from_folder(table: str, root: Path, folder: Path) -> list[Any]:
    path = folder / f"{table}.csv"
    rows = _rows(path, table)
    for row in {row.run_id: row for row in rows}.values():
        home = run_folder(root, row.tier, row.task, row.agent, row.seed)
        if home != folder:  # a copied or renamed folder would count a result twice
            raise UserError(f"{path}: holds rows of run {row.run_id}, which belongs in {home}; move the folder away")
    return rows[-1:] if table == "runs" else unique(table, rows, path)


def _rows(path: Path, table: str) -> list[Any]:
    """The rows of a table that may not exist yet; a sealed one must exist."""
    return read_table(seal.check(path), table) if path.exists() or path.with_name(seal.NAME).exists() else []


def reference_folders(root: Path, tier: str | None = None) -> list[Path]:
    """The folders of reference tables under `root`, one a tier."""
    return sorted((root / "reference").glob(tier or "*"))


def _from_reference(table: str, root: Path, tier: str | None) -> list[Any]:
    return [row for folder in reference_folders(root, tier) for row in _merged(table, folder)]


def _merged(table: str, folder: Path) -> list[Any]:
    path = _reference_file(folder, table)
    return unique(table, _rows(path, table), path)


def _reference_file(folder: Path, table: str) -> Path:
    return folder / (f"{table}.csv.gz" if table == "episodes" else f"{table}.csv")  # the episodes are many


# --- merging ---------------------------------------------------------------------------------------------------------

MERGED = ("episodes", "curves", "runs")  # in the order of writing: a run that `runs` names has its other rows


def merge_runs(root: Path, tier: str, replace: bool = False) -> list[str]:
    """Merges the finished runs of a tier into the reference tables and returns the ids that are new or changed.

    A run's last row, its curves, the episodes of its final evaluation and what it says of its task are kept; its
    protocol is added to `root`/protocols.json. Rows of runs without a folder here stay. The same runs produce the same
    files. A run that is already there with other rows is a `UserError` unless `replace`; nothing is written then.
    """
    destination = root / "reference" / tier
    merged = _by_run({table: _merged(table, destination) for table in MERGED})
    records: dict[str, dict[str, Any]] = {}
    tasks = _tasks_of(destination)
    for folder in run_folders(root, tier):
        fresh = _finished(root, folder)
        if fresh is None:
            continue
        name = fresh["runs"][0].run_id
        known = merged.get(name)
        if fresh == known:
            continue
        if known and known["runs"] and not replace:  # without its row in `runs` an interrupted merge left the others
            difference = _difference(known, fresh)
            raise UserError(f"{destination}: {name} is there already {difference}; pass --replace to change it")
        records[name] = _protocol(folder, fresh)
        merged[name] = fresh
        tasks += _tasks_of(folder)
    if records:
        for record in records.values():
            protocols.register(record, root)
        seal.unseal(destination)  # first, so that an interrupted merge can be repeated
        files = [_reference_file(destination, table) for table in MERGED]
        for table, file in zip(MERGED, files, strict=True):
            rows = [row for tables in merged.values() for row in tables[table]]
            write_table(file, table, _ordered(table, rows))
        write_table(destination / "tasks.csv", "tasks", _last_of_each(tasks))
        seal.seal(destination, [*(file.name for file in files), "tasks.csv"])
    return sorted(records)


def _by_run(tables: dict[str, list[Any]]) -> dict[str, dict[str, list[Any]]]:
    runs: dict[str, dict[str, list[Any]]] = {}
    for table, rows in tables.items():
        for row in _ordered(table, rows):
            runs.setdefault(row.run_id, {name: [] for name in MERGED})[table].append(row)
    return runs


def _ordered(table: str, rows: list[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: schema.key(table, row))


def _finished(root: Path, folder: Path) -> dict[str, list[Any]] | None:
    """The rows of the run that a merge keeps; None if it has not finished."""
    tables = {table: _ordered(table, _from_folder(table, root, folder)) for table in MERGED}
    if not tables["runs"] or tables["runs"][0].status != "finished":
        return None
    tables["episodes"] = [row for row in tables["episodes"] if row.final]
    if not tables["episodes"] or not any(row.final for row in tables["curves"]):
        raise UserError(f"{folder}: the run is marked finished but lacks its final evaluation; run it with --replace")
    return tables


def _protocol(folder: Path, tables: dict[str, list[Any]]) -> dict[str, Any]:
    path = folder / "protocol.json"
    record = protocols.read_json(seal.check(path))
    try:
        name = protocols.protocol_id(record)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    if other := {row.protocol for rows in tables.values() for row in rows} - {name}:
        raise UserError(f"{folder}: its rows have protocol {min(other)} but protocol.json is {name}; run it again")
    return record


def _difference(known: dict[str, list[Any]], fresh: dict[str, list[Any]]) -> str:
    old, new = known["runs"][0], fresh["runs"][0]
    columns = [name for name in schema.columns("runs") if getattr(old, name) != getattr(new, name)]
    return f"with another {', '.join(columns)}" if columns else "with other scores"
