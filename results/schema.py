"""The columns, types and keys of every table; nothing is written or read that does not match them.

A table is a CSV file in UTF-8, one row per line. A cell is the shortest text that restores the value exactly; an empty
cell is `None` (in a text column, which has no `None`, the empty text). Numbers are always finite.
"""

from __future__ import annotations

import math
import operator
import typing
from dataclasses import dataclass, fields
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple

from results.errors import UserError

SCHEMA_VERSION = 1
HEADLINE_SPLITS = ("same", "test")  # scores of the third split, `train`, are shown beside them and never count
TIERS = ("smoke", "laptop", "paper")  # from seconds per run to the setting of the paper
Status = Literal["running", "finished", "failed", "interrupted"]


def run_id(tier: str, task: str, agent: str, seed: int | str) -> str:
    """The name of a run, and the key that joins the tables."""
    return f"{tier}:{task}:{agent}:{seed}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Episode:
    """One inner episode of an evaluation rollout. `success_*` is None if the task defines no success."""

    schema: int = SCHEMA_VERSION
    run_id: str
    protocol: str
    task: str
    split: str
    agent: str
    tier: str
    seed: int
    evaluation: int
    final: bool
    env_steps: int
    updates: int
    slot: int
    rollout: int
    episode: int
    instance: str
    episode_return: float
    episode_length: int
    success_any: bool | None
    success_last: bool | None
    finished: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """One evaluation of one split: statistics over whole rollouts, not inner episodes; success as the task declares."""

    schema: int = SCHEMA_VERSION
    run_id: str
    protocol: str
    task: str
    split: str
    agent: str
    tier: str
    seed: int
    evaluation: int
    final: bool
    env_steps: int
    updates: int
    wall_s: float
    return_mean: float
    return_median: float
    return_q1: float
    return_q3: float
    success_mean: float | None
    rollouts: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """The state of one run when the row was written; the last row of a run wins. `config` is compact JSON.

    `stream` is a checksum of the training, of all actions, observations and rewards in order (empty: not known).
    """

    schema: int = SCHEMA_VERSION
    run_id: str
    protocol: str
    task: str
    agent: str
    tier: str
    seed: int
    status: Status
    message: str
    commit: str
    dirty: bool
    config: str
    env_steps: int
    updates: int
    tokens: int
    parameters: int | None
    collect_s: float
    learn_s: float
    evaluate_s: float
    wall_s: float
    peak_rss_mb: float
    device: str
    attention: str
    dtype: str
    threads: int
    torch: str
    python: str
    started: str
    stream: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """One number from a paper: `value` of `metric`, at `x` if it is a series; [low, high] as the paper states them."""

    schema: int = SCHEMA_VERSION
    figure: str
    task: str
    agent: str
    metric: str
    x_kind: str
    x: float | None
    value: float
    low: float | None
    high: float | None
    n_seeds: int | None
    how: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskFacts:
    """What a reader of scores must know of a task; written with each run, so that no task is known only to its code.

    `random_return` and `high` are the returns that normalise to 0 and 1 (None: unknown). A seed is solved from a final
    return of `solved_at` on (None: the task has no such share); training ends early at `stop_return` (None: it does
    not).
    """

    schema: int = SCHEMA_VERSION
    task: str
    tier: str
    protocol: str
    random_return: float | None
    high: float | None
    high_source: str
    solved_at: float | None
    stop_return: float | None


RunRow = Episode | Curve | Run
Row = RunRow | Published | TaskFacts
TABLES: dict[str, type[Row]] = {
    "episodes": Episode,
    "curves": Curve,
    "runs": Run,
    "tasks": TaskFacts,
    "published": Published,
}
KEYS: dict[str, tuple[str, ...]] = {
    "episodes": ("run_id", "evaluation", "split", "slot", "rollout", "episode"),
    "curves": ("run_id", "evaluation", "split"),
    "runs": ("run_id",),
    "tasks": ("task", "tier", "protocol"),
    "published": ("figure", "task", "agent", "metric", "x_kind", "x"),
}


#: Columns at the end of a table that tables from before lack; there they are empty.
ADDED: dict[str, tuple[str, ...]] = {"runs": ("stream",)}


class Column(NamedTuple):
    name: str
    kind: type  # int, float, str or bool
    optional: bool
    choices: tuple[str, ...]  # empty: any value


def _column(name: str, hint: Any) -> Column:
    if typing.get_origin(hint) is Literal:
        return Column(name, str, False, typing.get_args(hint))
    if isinstance(hint, UnionType):
        (kind,) = (part for part in typing.get_args(hint) if part is not NoneType)
        return Column(name, kind, True, ())
    return Column(name, hint, False, ())


_COLUMNS: dict[str, tuple[Column, ...]] = {}
for _table, _row_type in TABLES.items():
    _hints = typing.get_type_hints(_row_type)
    _COLUMNS[_table] = tuple(_column(field.name, _hints[field.name]) for field in fields(_row_type))


def _known(table: str) -> tuple[Column, ...]:
    if table not in _COLUMNS:
        raise UserError(f"there is no table {table!r}; the tables are {', '.join(TABLES)}")
    return _COLUMNS[table]


def columns(table: str) -> tuple[str, ...]:
    """The names of the table's columns, in file order."""
    return tuple(column.name for column in _known(table))


def headers(table: str) -> list[list[str]]:
    """The headers that a file of the table may have: that of today, and without each of the columns added since."""
    names = list(columns(table))
    return [names[: len(names) - missing] for missing in range(len(ADDED.get(table, ())) + 1)]


def key(table: str, row: Row) -> tuple[Any, ...]:
    """What makes the row unique in its table."""
    return tuple(getattr(row, name) for name in KEYS[table])


def parse(table: str, row: dict[str, str], where: str) -> Row:
    """The typed row; `UserError` naming `where` and the column if a cell is missing, unknown or of another type."""
    known = _known(table)
    if missing := [column.name for column in known if column.name not in row]:
        raise UserError(f"{where}: column {missing[0]} is missing")
    if extra := row.keys() - {column.name for column in known}:
        raise UserError(f"{where}: {table} has no column {min(extra)}")
    check_version(row["schema"], where)
    values = {column.name: _parse_cell(column, row[column.name], where) for column in known}
    result = TABLES[table](**values)
    _check_run_id(result, where)
    return result


def cells(table: str, row: Row) -> list[str]:
    """The row as text, in file order; `UserError` if a value does not fit its column."""
    if type(row) is not TABLES.get(table):
        raise UserError(f"{table} cannot hold a row of type {type(row).__name__}")
    check_version(str(row.schema), table)
    _check_run_id(row, table)
    return [_format_cell(column, getattr(row, column.name), table) for column in _known(table)]


def check_version(version: str, where: str) -> None:
    """`UserError` unless the version is the one this code reads."""
    if version != str(SCHEMA_VERSION):
        raise UserError(
            f"{where}, column schema: version {version!r}, but this code reads version {SCHEMA_VERSION}; "
            "use the code that wrote it, or run again"
        )


def _check_run_id(row: Row, where: str) -> None:
    # A run folder copied to another seed, or columns shifted by another tool, would count a result twice.
    if not isinstance(row, RunRow):
        return
    expected = run_id(row.tier, row.task, row.agent, row.seed)
    if row.run_id != expected:
        raise UserError(f"{where}, column run_id: {row.run_id!r} does not fit the row, which belongs to {expected!r}")


def _parse_cell(column: Column, cell: str, where: str) -> Any:
    if cell == "" and column.kind is not str:
        if column.optional:
            return None
        raise UserError(f"{where}, column {column.name}: the cell is empty")
    try:
        if column.kind is bool:
            return {"true": True, "false": False}[cell]
        if column.kind is str:
            return _checked_choice(column, cell)
        if not cell.isascii() or "_" in cell or cell != cell.strip():  # Python itself accepts more
            raise ValueError
        number = column.kind(cell)
        if not math.isfinite(number):
            raise ValueError
        return number
    except (KeyError, ValueError, OverflowError):
        raise UserError(f"{where}, column {column.name}: {cell!r} is not {_wanted(column)}") from None


def _format_cell(column: Column, value: Any, where: str) -> str:
    if value is None and column.optional:
        return ""
    try:
        if column.kind is str:
            # One row is one line, whatever an exception's message contains.
            return " ".join(_checked_choice(column, value).splitlines())
        if column.kind is bool:
            return {True: "true", False: "false"}[value]
        if isinstance(value, bool):
            raise TypeError
        if column.kind is int:
            return str(operator.index(value))
        number = float(value)
        if isinstance(value, str) or not math.isfinite(number):
            raise TypeError
        return repr(number)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise UserError(f"{where}, column {column.name}: {value!r} is not {_wanted(column)}") from None


def _checked_choice(column: Column, text: Any) -> str:
    if not isinstance(text, str) or (column.choices and text not in column.choices):
        raise ValueError
    return text


def _wanted(column: Column) -> str:
    if column.choices:
        return f"one of {', '.join(column.choices)}"
    return {bool: "true or false", int: "an integer", float: "a finite number", str: "text"}[column.kind]
