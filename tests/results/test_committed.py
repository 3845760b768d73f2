"""The reference results that come with the project are read beside whatever folder holds the user's."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from results import store
from results.errors import UserError
from results.store import load, merge_runs, results_root

AddRun = Callable[..., Path]
PASSIVE = "long_term_memory/tmaze/passive-10"


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AMAGO_BENCH_RESULTS", raising=False)


def made(rows: list[Any], agent: str, task: str = PASSIVE, tier: str = "laptop") -> list[int]:
    return sorted(row.seed for row in rows if (row.tier, row.task, row.agent) == (tier, task, agent))


def test_results_are_in_the_checkout_else_in_the_current_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert results_root() == Path(store.__file__).parent
    monkeypatch.setattr(store, "COMMITTED", tmp_path / "site-packages/results")  # as an installed wheel has it
    assert results_root() == tmp_path / "results"
    monkeypatch.setenv("AMAGO_BENCH_RESULTS", "")
    assert results_root() == tmp_path / "results"


def test_the_variable_names_another_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AMAGO_BENCH_RESULTS", str(tmp_path / "mine"))
    assert results_root() == tmp_path / "mine"
    (tmp_path / "mine").touch()
    with pytest.raises(UserError, match=r"mine, which is a file; set it to a folder"):
        results_root()


@pytest.mark.parametrize("table", ["runs", "curves", "episodes"])
def test_another_folder_has_the_committed_rows_beside_it(table: str, tmp_path: Path) -> None:
    committed = load(table, store.COMMITTED, ("reference",))
    assert committed
    assert load(table, tmp_path) == committed
    assert load(table, tmp_path, ("reference", "runs")) == []
    assert load(table, tmp_path, tier="smoke") == []


def test_the_checkouts_own_folder_has_them_once(tmp_path: Path) -> None:
    own = load("runs", store.COMMITTED, ("reference", "runs"), "paper")
    assert own and load("runs", store.COMMITTED, tier="paper") == own


@pytest.mark.parametrize("how", ["a run folder", "a failed run", "merged"])
@pytest.mark.parametrize("table", ["runs", "curves", "episodes"])
def test_where_an_agent_was_run_on_a_task_no_committed_row_of_it_is_read(
    how: str, table: str, tmp_path: Path, add_run: AddRun
) -> None:
    """Not even other seeds: one mean must not be half of this code and half of older code."""
    folder = add_run(seed=1, status="failed" if how == "a failed run" else "finished")
    if how == "a failed run":
        (folder / "curves.csv").unlink()
        (folder / "episodes.csv").unlink()
    elif how == "merged":
        merge_runs(tmp_path, "laptop")
        folder.rename(tmp_path / "moved away")
    rows = load(table, tmp_path)
    expected = [] if how == "a failed run" and table != "runs" else [1]
    assert sorted(set(made(rows, "amago"))) == expected
    assert set(made(rows, "amago-gru")) == set(range(5))
    assert set(made(rows, "amago", PASSIVE.replace("-10", "-30"))) == set(range(5))


def test_a_copy_of_the_reference_counts_once(tmp_path: Path) -> None:
    (tmp_path / "reference").symlink_to(store.COMMITTED / "reference")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(load("runs", tmp_path)) == len(load("runs", store.COMMITTED, ("reference",)))
