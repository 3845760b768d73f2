"""Columns, types and keys."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from results import schema
from results.errors import UserError

Maker = dict[str, Callable[..., Any]]


COLUMNS = {
    "episodes": """schema run_id protocol task split agent tier seed evaluation final env_steps updates slot rollout
        episode instance episode_return episode_length success_any success_last finished""",
    "curves": """schema run_id protocol task split agent tier seed evaluation final env_steps updates wall_s return_mean
        return_median return_q1 return_q3 success_mean rollouts""",
    "runs": """schema run_id protocol task agent tier seed status message commit dirty config env_steps updates tokens
        parameters collect_s learn_s evaluate_s wall_s peak_rss_mb device attention dtype threads torch python
        started stream""",
    "published": "schema figure task agent metric x_kind x value low high n_seeds how source",
}


@pytest.mark.parametrize("table", COLUMNS)
def test_columns_and_their_order(table: str) -> None:
    assert schema.columns(table) == tuple(COLUMNS[table].split())


def test_cells_are_the_shortest_exact_text(rows: Maker) -> None:
    cells = dict(zip(schema.columns("curves"), schema.cells("curves", rows["curves"]()), strict=True))
    assert cells["return_mean"] == "0.30000000000000004"
    assert cells["return_median"] == "1.0"
    assert cells["success_mean"] == ""
    assert cells["final"] == "true"
    assert cells["rollouts"] == "100"


@pytest.mark.parametrize("table", ["episodes", "curves", "runs"])
def test_parse_gives_back_what_cells_wrote(table: str, rows: Maker) -> None:
    row = rows[table]()
    cells = dict(zip(schema.columns(table), schema.cells(table, row), strict=True))
    assert schema.parse(table, cells, "here") == row


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_round_trip_exactly(value: float) -> None:
    column = schema.Column("value", float, False, ())
    back = schema._parse_cell(column, schema._format_cell(column, value, "here"), "here")
    assert math.copysign(1, back) == math.copysign(1, value) and back == value


def test_numpy_numbers_are_written_as_numbers(rows: Maker) -> None:
    row = rows["episodes"](
        seed=np.int64(4), episode_return=np.float32(0.1), success_any=np.bool_(True), episode_length=np.int32(7)
    )
    cells = dict(zip(schema.columns("episodes"), schema.cells("episodes", row), strict=True))
    assert (cells["seed"], cells["success_any"], cells["episode_length"]) == ("4", "true", "7")
    assert np.float32(cells["episode_return"]) == np.float32(0.1)


@pytest.mark.parametrize(
    ("table", "changes", "words"),
    [
        ("episodes", {"episode_return": math.nan}, "column episode_return: nan is not a finite number"),
        ("episodes", {"episode_return": math.inf}, "column episode_return: inf is not a finite number"),
        ("episodes", {"episode_return": "1.0"}, "column episode_return: '1.0' is not a finite number"),
        ("episodes", {"episode_return": None}, "column episode_return: None is not a finite number"),
        ("episodes", {"episode_length": 11.0}, "column episode_length: 11.0 is not an integer"),
        ("episodes", {"episode_length": True}, "column episode_length: True is not an integer"),
        ("episodes", {"success_any": 0.5}, "column success_any: 0.5 is not true or false"),
        ("episodes", {"instance": 3}, "column instance: 3 is not text"),
        ("runs", {"status": "done"}, "column status: 'done' is not one of running, finished, failed, interrupted"),
        ("runs", {"schema": 2}, "column schema: version '2'"),
        ("runs", {"run_id": "laptop:other:amago:0"}, "column run_id: 'laptop:other:amago:0' does not fit"),
    ],
)
def test_writing_refuses_what_does_not_fit(table: str, changes: dict[str, Any], words: str, rows: Maker) -> None:
    with pytest.raises(UserError) as caught:
        schema.cells(table, rows[table](**changes))
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("column", "cell", "words"),
    [
        ("seed", "1.0", "'1.0' is not an integer"),
        ("seed", "1_0", "'1_0' is not an integer"),
        ("seed", " 1", "' 1' is not an integer"),
        ("seed", "٣", "'٣' is not an integer"),
        ("seed", "", "the cell is empty"),
        ("return_mean", "nan", "'nan' is not a finite number"),
        ("return_mean", "1e999", "'1e999' is not a finite number"),
        ("return_mean", "0,5", "'0,5' is not a finite number"),
        ("rollouts", "9" * 400, "is not an integer"),
        ("final", "True", "'True' is not true or false"),
        ("schema", "0", "version '0', but this code reads version 1"),
        ("schema", "", "version ''"),
        ("run_id", "laptop:other:amago:0", "does not fit the row"),
    ],
)
def test_reading_refuses_and_names_place_and_column(column: str, cell: str, words: str, rows: Maker) -> None:
    cells = dict(zip(schema.columns("curves"), schema.cells("curves", rows["curves"]()), strict=True))
    with pytest.raises(UserError) as caught:
        schema.parse("curves", cells | {column: cell}, "file.csv, line 7")
    assert str(caught.value).startswith(f"file.csv, line 7, column {column}: ")
    assert words in str(caught.value)


def test_a_row_needs_all_columns_and_no_other(rows: Maker) -> None:
    cells = dict(zip(schema.columns("curves"), schema.cells("curves", rows["curves"]()), strict=True))
    with pytest.raises(UserError, match="here: curves has no column colour"):
        schema.parse("curves", cells | {"colour": "red"}, "here")
    del cells["tier"]
    with pytest.raises(UserError, match="here: column tier is missing"):
        schema.parse("curves", cells, "here")


def test_a_row_goes_into_its_own_table_only(rows: Maker) -> None:
    with pytest.raises(UserError, match="curves cannot hold a row of type Episode"):
        schema.cells("curves", rows["episodes"]())


def test_unknown_table_names_the_tables() -> None:
    with pytest.raises(UserError, match="'epsiodes'; the tables are episodes, curves, runs, tasks, published"):
        schema.columns("epsiodes")


def test_keys_tell_rows_apart(rows: Maker) -> None:
    first = rows["episodes"]()
    assert schema.key("episodes", first) == (
        "laptop:long_term_memory/tmaze/passive-10:amago:0", 3, "same", 1, 2, 0,
    )  # fmt: skip
    assert schema.key("episodes", rows["episodes"](split="train")) != schema.key("episodes", first)
    for name in ("evaluation", "slot", "rollout", "episode", "seed"):
        assert schema.key("episodes", rows["episodes"](**{name: 9})) != schema.key("episodes", first)
    assert schema.key("episodes", rows["episodes"](episode_return=5.0)) == schema.key("episodes", first)
