"""The paper's numbers in our schema, against values read by hand from the source table."""

from collections import Counter
from pathlib import Path
from typing import Any

from results import store
from results.tablefile import write_table


def values(**wanted: Any) -> list[float]:
    return [
        row.value
        for row in store.load("published")
        if all(getattr(row, name) == value for name, value in wanted.items())
    ]


def test_counts() -> None:
    assert Counter(row.figure for row in store.load("published")) == {
        "dark_key_to_door": 200,
        "popgym_summary": 24 + 68,
        "half_cheetah_vel": 84,
        "wind": 82,
        "crafter": 43,
        "passive_tmaze": 19,
    }


def test_tmaze() -> None:
    def at(agent: str, x: float) -> list[float]:
        return values(task=f"long_term_memory/tmaze/passive-{x:.0f}", agent=agent, metric="return_mean_max", x=x)

    assert at("amago", 10000) == [1.0]
    assert at("ni2022-rnn", 256) == [-0.6]
    assert at("ni2023-transformer", 1500) == [1.0]
    assert [row.x for row in store.load("published") if row.figure == "passive_tmaze" and row.agent == "amago"] == [
        1500, 2000, 3000, 4000, 5000, 8000, 10000,
    ]  # fmt: skip


def test_learning_curves() -> None:
    assert values(figure="half_cheetah_vel", agent="amago", x=612464) == [-57.6]
    assert values(figure="half_cheetah_vel", agent="amago-memoryless", x_kind="updates")[-1] == -280.8
    assert values(figure="half_cheetah_vel", agent="varibad") == [-82.5]
    assert values(figure="dark_key_to_door", agent="amago", x_kind="env_steps")[-1] == 39.5
    assert values(figure="dark_key_to_door", agent="amago-gru")[-1] == 3.45
    assert values(figure="wind", agent="oracle") == [62.0]


def test_bands_hold_their_value() -> None:
    bands = [(row.low, row.value, row.high) for row in store.load("published") if row.low is not None]
    assert bands == [(-62.6, -57.6, -52.6), (-353.0, -280.8, -208.0), (33.7, 39.5, 43.4)]


def test_crafter_is_a_share() -> None:
    assert values(task="open_world/crafter/all", agent="amago") == [0.62]
    assert values(task="open_world/crafter/collect-stone", agent="amago-memoryless") == [0.39]
    assert values(task="open_world/crafter/make-stone-pickaxe", agent="amago-no-relabel") == [0.0]
    assert all(0 <= value <= 1 for value in values(figure="crafter"))


def test_popgym_boxes() -> None:
    assert values(metric="return", agent="amago", x_kind="mean") == [0.629]
    assert values(metric="return", agent="popgym-gru", x_kind="q1") == [-0.299]
    assert values(metric="return_standardised", agent="amago-naive", x_kind="median") == [0.971]
    below = values(metric="return_standardised", agent="amago", x_kind="below_q1_point")
    assert len(below) == 10 and min(below) == 0.5858


def test_every_row_says_where_it_is_from() -> None:
    for row in store.load("published"):
        assert row.how == "measured from the vector figure" and "2310.09971" in row.source


def test_file_is_as_the_store_writes_it(tmp_path: Path) -> None:
    write_table(tmp_path / "again.csv", "published", store.load("published"))
    committed = store.COMMITTED / "published" / "amago_figures.csv"
    assert (tmp_path / "again.csv").read_bytes() == committed.read_bytes()
