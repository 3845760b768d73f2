"""Run folders and reference tables: where they lie, how they come together, how they are merged."""

import dataclasses
import gzip
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from results import protocols, schema
from results.errors import UserError
from results.store import load, merge_runs, run_folder, write_table

Maker = dict[str, Callable[..., Any]]
AddRun = Callable[..., Path]
Write = Callable[..., Path]

pytestmark = pytest.mark.usefixtures("without_reference")
ID = "laptop:long_term_memory/tmaze/passive-10:amago:{}"


def returns(rows: list[Any]) -> list[float]:
    return [row.episode_return for row in rows]


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# --- places


def test_run_folder() -> None:
    folder = run_folder(Path("/r"), "laptop", "long_term_memory/tmaze/passive-10", "amago@batch=8,lr=3e-4", 2)
    assert folder == Path("/r/runs/laptop/long_term_memory/tmaze/passive-10/amago@batch=8,lr=3e-4/seed-2")


@pytest.mark.parametrize(
    ("tier", "task", "agent"),
    [
        ("..", "a/b", "x"),
        ("laptop", "../../etc", "x"),
        ("laptop", "/etc", "x"),
        ("laptop", "a//b", "x"),
        ("laptop", "a/b", "x/y"),
        ("laptop", "a/b", ""),
        ("laptop", "a/b", "x\0"),
        ("laptop", "a/b", "é" * 128),
    ],
)
def test_run_folder_stays_below_the_root(tier: str, task: str, agent: str) -> None:
    with pytest.raises(UserError, match="cannot be part of a folder's name"):
        run_folder(Path("/r"), tier, task, agent, 0)


# --- load


def test_load_of_nothing_is_empty(tmp_path: Path) -> None:
    assert load("runs", tmp_path) == load("curves", tmp_path) == load("episodes", tmp_path) == []


def test_load_takes_the_last_row_of_a_run(tmp_path: Path, add_run: AddRun) -> None:
    add_run(seed=0)
    add_run(seed=1, status="failed", message="out of memory")
    assert [(row.run_id, row.status) for row in load("runs", tmp_path)] == [
        (ID.format(0), "finished"),
        (ID.format(1), "failed"),
    ]


def test_load_by_tier(tmp_path: Path, add_run: AddRun) -> None:
    add_run()
    assert len(load("episodes", tmp_path, tier="laptop")) == 4
    assert load("episodes", tmp_path, tier="smoke") == []
    merge_runs(tmp_path, "laptop")
    assert load("episodes", tmp_path, sources=("reference",), tier="smoke") == []


def test_load_names_unknown_tables_and_sources(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no table 'curve'"):
        load("curve", tmp_path)
    with pytest.raises(UserError, match="no source 'run'; the sources are committed, reference, runs"):
        load("curves", tmp_path, sources=("run",))


def test_sources_come_together_and_the_run_folder_wins(tmp_path: Path, add_run: AddRun) -> None:
    for seed in (0, 1):
        add_run(seed=seed, final_return=1.0)
    merge_runs(tmp_path, "laptop")
    shutil.rmtree(tmp_path / "runs")
    add_run(seed=1, final_return=0.0, wall_s=1.5)
    add_run(seed=2, final_return=0.5)
    with pytest.warns(UserWarning, match=f"1 of the runs in .*reference have a run folder with .*{ID.format(1)}"):
        load("runs", tmp_path)
    episodes = [row for row in load("episodes", tmp_path) if row.final]
    assert [(row.seed, row.episode_return) for row in episodes] == [
        (0, 1.0), (0, 1.0), (1, 0.0), (1, 0.0), (2, 0.5), (2, 0.5),
    ]  # fmt: skip
    assert returns(load("episodes", tmp_path, sources=("reference",))) == [1.0] * 4
    assert {row.seed for row in load("curves", tmp_path, sources=("runs",))} == {1, 2}


def test_a_run_folder_that_was_merged_as_it_is_needs_no_word(tmp_path: Path, add_run: AddRun) -> None:
    add_run()
    merge_runs(tmp_path, "laptop")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(load("runs", tmp_path)) == 1


def test_a_run_folder_wins_whole(tmp_path: Path, add_run: AddRun) -> None:
    """A rerun that has no final evaluation yet must not borrow the reference's."""
    add_run(final_return=1.0)
    merge_runs(tmp_path, "laptop")
    (add_run(seed=0, status="failed") / "episodes.csv").unlink()
    with pytest.warns(UserWarning, match="run folder with other rows"):
        assert [row.status for row in load("runs", tmp_path)] == ["failed"]
    assert load("episodes", tmp_path) == []


def test_torn_line_in_one_run_loses_nothing_else(tmp_path: Path, add_run: AddRun) -> None:
    torn = add_run(seed=0) / "episodes.csv"
    torn.write_bytes(torn.read_bytes()[:-5])
    add_run(seed=1)
    with pytest.warns(UserWarning, match="left out the torn last line"):
        assert len(load("episodes", tmp_path)) == 7


def test_U90_duplicates_count_once_or_are_refused(tmp_path: Path, rows: Maker, write: Write, add_run: AddRun) -> None:
    """The same result twice in a file, in a copied folder or in both sources never has double weight."""
    folder = add_run()
    merge_runs(tmp_path, "laptop")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len([row for row in load("episodes", tmp_path) if row.final]) == 2
    shutil.copytree(folder, folder.with_name("seed-0-copy"))
    with pytest.raises(
        UserError, match=r"seed-0-copy/runs.csv: holds rows of run .*:0, which belongs in .*seed-0; move"
    ):
        load("runs", tmp_path)
    assert load("runs", tmp_path, ("committed",)) == [], "what does not read it does not stumble over it"
    shutil.rmtree(folder.with_name("seed-0-copy"))
    write(folder / "episodes.csv", "episodes", rows["episodes"](evaluation=1, final=True, rollout=0))
    with pytest.raises(
        UserError,
        match=r"episodes.csv: two rows of episodes have the same key .*evaluation=1, split=same, slot=1, roll",
    ):
        load("episodes", tmp_path)


def test_U90_a_rerun_is_an_explicit_replacement(tmp_path: Path, add_run: AddRun) -> None:
    """A second result for one run is refused without `replace`, whether its configuration or only its scores differ."""
    add_run(config='{"lr":0.1}', final_return=1.0)
    assert merge_runs(tmp_path, "laptop") == [ID.format(0)]
    before = tree(tmp_path / "reference")
    for changes, words in (
        ({"config": '{"lr":0.2}'}, "with another config"),
        ({"config": '{"lr":0.1}', "commit": "feed"}, "with another commit"),
        ({"config": '{"lr":0.1}', "final_return": 0.0}, "with other scores"),
    ):
        shutil.rmtree(tmp_path / "runs")
        add_run(**changes)
        with pytest.raises(UserError, match=f"{ID.format(0)} is there already {words}; pass --replace"):
            merge_runs(tmp_path, "laptop")
        assert tree(tmp_path / "reference") == before
    assert merge_runs(tmp_path, "laptop", replace=True) == [ID.format(0)]
    assert returns(load("episodes", tmp_path, sources=("reference",))) == [0.0, 0.0]


# --- merge


def test_merge_keeps_the_last_row_the_curves_and_the_final_episodes(tmp_path: Path, add_run: AddRun) -> None:
    folder = add_run(final_return=0.75)
    before = tree(folder)
    assert merge_runs(tmp_path, "laptop") == [ID.format(0)]
    assert tree(folder) == before
    reference = tmp_path / "reference" / "laptop"
    names = sorted(path.name for path in reference.iterdir())
    assert names == ["SHA256SUMS", "curves.csv", "episodes.csv.gz", "runs.csv", "tasks.csv"]
    assert [row.status for row in load("runs", tmp_path, ("reference",))] == ["finished"]
    assert [row.return_mean for row in load("curves", tmp_path, ("reference",))] == [0.25, 0.75]
    episodes = load("episodes", tmp_path, ("reference",))
    assert [(row.rollout, row.episode_return) for row in episodes] == [(0, 0.75), (1, 0.75)]


def test_every_run_states_its_task_and_the_last_word_counts(tmp_path: Path, add_run: AddRun) -> None:
    facts = schema.TaskFacts(
        task="long_term_memory/tmaze/passive-10", tier="laptop", protocol="abcd1234", random_return=-0.75, high=1.0,
        high_source="oracle", solved_at=0.95, stop_return=None,
    )  # fmt: skip
    other = dataclasses.replace(facts, protocol="other567", random_return=None, high=None, solved_at=None)
    for seed, row in enumerate((facts, other, dataclasses.replace(facts, high=0.9))):
        write_table(add_run(seed=seed) / "tasks.csv", "tasks", [row])
    add_run(seed=3)  # made before runs stated their task
    found = {row.protocol: row for row in load("tasks", tmp_path)}
    assert (found["abcd1234"].high, found["other567"]) == (0.9, other)
    merge_runs(tmp_path, "laptop")
    assert load("tasks", tmp_path, ("reference",)) == load("tasks", tmp_path, ("runs",)) == list(found.values())
    shutil.rmtree(tmp_path / "runs")
    write_table(add_run(seed=0) / "tasks.csv", "tasks", [facts])
    assert load("tasks", tmp_path)[0].high == 1.0, "a run folder counts more than the reference"


def test_merge_takes_finished_runs_only(tmp_path: Path, add_run: AddRun) -> None:
    for seed, status in enumerate(("running", "failed", "interrupted", "finished")):
        add_run(seed=seed, status=status)
    assert merge_runs(tmp_path, "laptop") == [ID.format(3)]
    assert merge_runs(tmp_path, "smoke") == []
    assert not (tmp_path / "reference" / "smoke").exists()


def test_merge_gives_the_same_bytes_in_any_order(tmp_path: Path, add_run: AddRun) -> None:
    for seed in (2, 0, 1):
        add_run(seed=seed)
    merge_runs(tmp_path, "laptop")
    reference, at_once = tmp_path / "reference" / "laptop", tmp_path / "at-once"
    shutil.move(reference, at_once)
    for seed in (2, 0, 1):
        shutil.move(tmp_path / "runs", tmp_path / "away")
        add_run(seed=seed)
        merge_runs(tmp_path, "laptop")
        shutil.rmtree(tmp_path / "runs")
        shutil.move(tmp_path / "away", tmp_path / "runs")
    assert tree(at_once) == tree(reference)
    packed = (at_once / "episodes.csv.gz").read_bytes()
    assert packed[3:8] == bytes(5), "no file name and no time in the archive's head"
    assert gzip.decompress(packed).count(b"\n") == 1 + 3 * 2


def test_merge_again_changes_nothing(tmp_path: Path, add_run: AddRun) -> None:
    add_run()
    merge_runs(tmp_path, "laptop")
    path = tmp_path / "reference" / "laptop" / "runs.csv"
    before = path.stat()
    assert merge_runs(tmp_path, "laptop") == []
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


def test_merge_goes_on_after_an_interrupted_one(tmp_path: Path, add_run: AddRun) -> None:
    add_run()
    merge_runs(tmp_path, "laptop")
    reference = tmp_path / "reference" / "laptop"
    whole = tree(reference)
    for name in ("runs.csv", "curves.csv"):  # the last to be written are the first to be lacking
        (reference / "SHA256SUMS").unlink()
        (reference / "runs.csv").unlink()
        (reference / name).unlink(missing_ok=True)
        assert merge_runs(tmp_path, "laptop") == [ID.format(0)]
        assert tree(reference) == whole


def test_merge_keeps_runs_without_a_folder(tmp_path: Path, add_run: AddRun) -> None:
    folder = add_run(seed=0)
    merge_runs(tmp_path, "laptop")
    shutil.rmtree(folder)
    add_run(seed=1)
    assert merge_runs(tmp_path, "laptop") == [ID.format(1)]
    assert [row.seed for row in load("runs", tmp_path, ("reference",))] == [0, 1]
    assert [row.seed for row in load("episodes", tmp_path, ("reference",))] == [0, 0, 1, 1]


def test_merge_registers_the_protocol(tmp_path: Path, add_run: AddRun, record: dict[str, Any]) -> None:
    add_run()
    merge_runs(tmp_path, "laptop")
    assert protocols.registered(tmp_path) == {protocols.protocol_id(record): record}


def test_merge_refuses_rows_of_another_protocol(tmp_path: Path, add_run: AddRun) -> None:
    path = add_run() / "protocol.json"
    path.write_text(path.read_text().replace("1.2.0", "1.3.0"))
    with pytest.raises(UserError, match=r"seed-0: its rows have protocol [0-9a-f]{8} but protocol.json is [0-9a-f]{8}"):
        merge_runs(tmp_path, "laptop")
    path.unlink()
    with pytest.raises(UserError, match=r"protocol.json: No such file"):
        merge_runs(tmp_path, "laptop")
    assert not (tmp_path / "reference").exists() and not (tmp_path / "protocols.json").exists()


def test_merge_refuses_a_finished_run_without_its_final_evaluation(tmp_path: Path, add_run: AddRun) -> None:
    (add_run() / "episodes.csv").unlink()
    with pytest.raises(UserError, match="marked finished but lacks its final evaluation"):
        merge_runs(tmp_path, "laptop")


def test_merge_refuses_duplicates_in_the_reference(tmp_path: Path, add_run: AddRun) -> None:
    add_run()
    merge_runs(tmp_path, "laptop")
    path = tmp_path / "reference" / "laptop" / "runs.csv"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, lines[-1]]))
    (path.parent / "SHA256SUMS").unlink()
    for read in (lambda: load("runs", tmp_path), lambda: merge_runs(tmp_path, "laptop")):
        with pytest.raises(UserError, match=r"laptop/runs.csv: two rows of runs have the same key"):
            read()
