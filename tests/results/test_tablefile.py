"""One file: whole lines in, whole rows out, and one clear line about anything else."""

import ast
import gzip
import multiprocessing
import os
import pickle
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import results
from results import schema
from results.errors import UserError
from results.schema import Published
from results.tablefile import TableWriter, read_table, replace_file, write_table

Maker = dict[str, Callable[..., Any]]
Write = Callable[..., Path]

HEADER = (
    "schema,run_id,protocol,task,split,agent,tier,seed,evaluation,final,env_steps,updates,wall_s,return_mean,"
    "return_median,return_q1,return_q3,success_mean,rollouts\n"
)
LINE = "1,smoke:a/b:amago:0,0f0f0f0f,a/b,same,amago,smoke,0,{},false,100,2,1.5,0.25,0.0,0.0,1.0,,4\n"


def unharmed(path: Path) -> list[Any]:
    """Reads the file; the test fails if reading changed it."""
    before = path.read_bytes()
    try:
        return read_table(path, "curves")
    finally:
        assert path.read_bytes() == before


@pytest.mark.parametrize("table", ["episodes", "curves", "runs"])
@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_round_trip(table: str, name: str, tmp_path: Path, rows: Maker) -> None:
    written = [rows[table](seed=0), rows[table](seed=1)]
    write_table(tmp_path / name, table, written)
    assert read_table(tmp_path / name, table) == written


def test_round_trip_published(tmp_path: Path) -> None:
    rows = [
        Published(
            figure="f", task="a/b", agent="amago", metric="m", x_kind="none", x=x, value=-0.6, low=None, high=1e-9,
            n_seeds=n, how="read", source="somebody, 2023",
        )
        for x, n in [(None, 3), (256.0, None)]
    ]  # fmt: skip
    write_table(tmp_path / "p.csv", "published", rows)
    assert read_table(tmp_path / "p.csv", "published") == rows
    assert (tmp_path / "p.csv").read_text().splitlines()[
        1
    ] == '1,f,a/b,amago,m,none,,-0.6,,1e-09,3,read,"somebody, 2023"'


def test_hand_written_rows_are_read(tmp_path: Path) -> None:
    path = tmp_path / "curves.csv"
    path.write_text(HEADER + LINE.format(0) + LINE.format(1))
    first, second = unharmed(path)
    assert (first.run_id, first.seed, first.evaluation, first.final) == ("smoke:a/b:amago:0", 0, 0, False)
    assert (first.return_mean, first.success_mean, first.rollouts, second.evaluation) == (0.25, None, 4, 1)


def test_text_survives_commas_quotes_and_unicode_but_stays_on_one_line(
    tmp_path: Path, write: Write, rows: Maker
) -> None:
    said = "ValueError: \"a\", 'b'\r\nat line 2: naïve → 心 \udcff"
    path = write(tmp_path / "runs.csv", "runs", rows["runs"](status="failed", message=said))
    assert read_table(path, "runs")[0].message == "ValueError: \"a\", 'b' at line 2: naïve → 心 \\udcff"
    assert path.read_bytes().count(b"\n") == 2
    long = "x" * 300_000  # more than the csv module takes by default
    path = write(tmp_path / "long.csv", "runs", rows["runs"](message=long))
    assert read_table(path, "runs")[0].message == long


def test_a_table_without_the_columns_added_since_is_read_and_continued(tmp_path: Path, rows: Maker) -> None:
    path, row = tmp_path / "runs.csv", rows["runs"]()
    write_table(path, "runs", [row])
    path.write_text("".join(line.rpartition(",")[0] + "\n" for line in path.read_text().splitlines()))
    with TableWriter(path, "runs") as writer:
        writer.append(row)
    assert [each.stream for each in read_table(path, "runs")] == ["", ""]
    assert {each.started for each in read_table(path, "runs")} == {row.started}


def test_each_row_is_on_disk_at_once(tmp_path: Path, rows: Maker) -> None:
    with TableWriter(tmp_path / "curves.csv", "curves") as writer:
        assert read_table(tmp_path / "curves.csv", "curves") == []
        for count in (1, 2, 3):
            writer.append(rows["curves"](evaluation=count))
            assert len(read_table(tmp_path / "curves.csv", "curves")) == count


def test_a_refused_row_leaves_no_trace(tmp_path: Path, rows: Maker) -> None:
    with TableWriter(tmp_path / "curves.csv", "curves") as writer:
        writer.append(rows["curves"](evaluation=0))
        with pytest.raises(UserError):
            writer.append(rows["curves"](evaluation=1, return_mean=float("nan")))
        writer.append(rows["curves"](evaluation=2))
    assert [row.evaluation for row in read_table(tmp_path / "curves.csv", "curves")] == [0, 2]


# --- torn and broken files


@pytest.mark.parametrize("cut", [1, 2, 20, 60])
def test_torn_last_line_is_left_out_with_a_warning(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "curves.csv"
    path.write_text((HEADER + LINE.format(0) + LINE.format(1))[:-cut])
    with pytest.warns(UserWarning, match=r"curves.csv, line 3: left out the torn last line"):
        read = unharmed(path)
    assert [row.evaluation for row in read] == [0]


def test_torn_header_and_empty_file_hold_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "curves.csv"
    path.write_bytes(b"")
    assert unharmed(path) == []
    path.write_text(HEADER[:30])
    with pytest.warns(UserWarning, match="line 1: left out the torn"):
        assert unharmed(path) == []


@pytest.mark.parametrize("cut", [1, 30, 150])
def test_writer_goes_on_after_a_torn_line(cut: int, tmp_path: Path, rows: Maker, write: Write) -> None:
    path = write(tmp_path / "curves.csv", "curves", rows["curves"](evaluation=0))
    whole = path.read_bytes()
    line = whole.splitlines(keepends=True)[1]
    path.write_bytes(whole + line[:-cut])
    with pytest.warns(UserWarning, match="cut off the torn last line"):
        write(path, "curves", rows["curves"](evaluation=1))
    assert path.read_bytes().startswith(whole)
    assert [row.evaluation for row in read_table(path, "curves")] == [0, 1]


def test_writer_goes_on_after_a_torn_header(tmp_path: Path, rows: Maker, write: Write) -> None:
    path = tmp_path / "curves.csv"
    path.write_text(HEADER[:30])
    with pytest.warns(UserWarning):
        write(path, "curves", rows["curves"]())
    assert len(read_table(path, "curves")) == 1


BROKEN = {
    "blank": (b"\n", "line 3: 0 cells instead of 19"),
    "short": (b"1,smoke:a/b:amago:0,0f0f\n", "line 3: 3 cells instead of 19"),
    "long": (LINE.format(1).encode().replace(b"\n", b",7\n"), "line 3: 20 cells instead of 19"),
    "number": (LINE.format(1).encode().replace(b"0.25", b"0.2x"), "line 3, column return_mean: '0.2x' is not a finite"),
    "bool": (LINE.format(1).encode().replace(b"false", b"0"), "line 3, column final: '0' is not true or false"),
    "bytes": (b"\xff\xfe" + LINE.format(1).encode(), "line 3: the line is damaged"),
    "quote": (b'"' + LINE.format(1).encode(), "line 3: the line is damaged"),
    "version": (b"2" + LINE.format(1).encode()[1:], "line 3, column schema: version '2'"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_middle_line_names_file_line_and_column(kind: str, tmp_path: Path) -> None:
    broken, words = BROKEN[kind]
    path = tmp_path / "curves.csv"
    path.write_bytes(HEADER.encode() + LINE.format(0).encode() + broken + LINE.format(2).encode())
    with pytest.raises(UserError) as caught:
        unharmed(path)
    assert str(path) in str(caught.value) and words in str(caught.value) and "\n" not in str(caught.value)


HEADERS = {
    "missing": (HEADER.replace(",tier", ""), "line 1: column tier is missing"),
    "extra": (HEADER.replace("\n", ",colour\n"), "line 1: column 'colour' is one too many"),
    "twice": (HEADER.replace("\n", ",tier\n"), "line 1: column 'tier' is one too many"),
    "reordered": (HEADER.replace("task,split", "split,task"), "line 1: column split is out of order"),
    "renamed": (HEADER.replace("updates", "steps"), "line 1: column updates is missing"),
    "none": (LINE.format(9), "line 1: column schema is missing"),
}


@pytest.mark.parametrize("kind", HEADERS)
def test_U94_schema_drift(kind: str, tmp_path: Path, rows: Maker, write: Write) -> None:
    """A drifted file is refused by reader and writer alike, with path, line and column, and stays as it was."""
    header, words = HEADERS[kind]
    path = tmp_path / "curves.csv"
    path.write_text(header + LINE.format(0))
    with pytest.raises(UserError) as caught:
        unharmed(path)
    assert str(path) in str(caught.value) and words in str(caught.value)
    before = path.read_bytes()
    with pytest.raises(UserError) as caught:
        write(path, "curves", rows["curves"]())
    assert words in str(caught.value)
    assert path.read_bytes() == before


def test_U94_another_version_is_named_before_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "curves.csv"
    path.write_text(HEADER.replace("\n", ",colour\n") + "2" + LINE.format(0)[1:-1] + ",red\n")
    with pytest.raises(UserError, match=r"line 2, column schema: version '2', but this code reads version 1"):
        unharmed(path)


def test_damaged_files_give_one_line_or_whole_rows(tmp_path: Path, rows: Maker) -> None:
    """1,000 mutated files: no other exception, no changed number passes as text of another type, nothing is written."""
    path = tmp_path / "curves.csv"
    write_table(path, "curves", [rows["curves"](evaluation=number) for number in range(3)])
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    refused = 0
    for _ in range(1000):
        damaged = bytearray(whole)
        at = int(rng.integers(len(damaged)))
        damaged[at : at + int(rng.integers(3))] = rng.bytes(int(rng.integers(3)))
        path.write_bytes(damaged)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                read = unharmed(path)
            except UserError as error:
                refused += 1
                assert str(path) in str(error) and "\n" not in str(error)
            else:
                for row in read:
                    schema.cells("curves", row)
    assert refused > 500


def test_damaged_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "curves.csv.gz"
    whole = gzip.compress((HEADER + LINE.format(0)).encode())
    for damaged in (whole[:-9], b"no archive", whole[:30] + b"\0\0\0" + whole[33:]):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"curves.csv.gz: the compressed file is damaged"):
            unharmed(path)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gone.csv: No such file or directory"):
        read_table(tmp_path / "gone.csv", "curves")


# --- writing under bad circumstances


def test_failed_write_leaves_the_lines_before(tmp_path: Path, rows: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "curves.csv"

    class NearlyFull:  # takes 20 bytes, then the disk is full
        def __init__(self, file: Any) -> None:
            self.file, self.left = file, 20

        def write(self, data: bytes) -> int:
            if self.left == 0:
                raise OSError(28, "No space left on device")
            count: int = self.file.write(data[: self.left])
            self.left -= count
            return count

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

    with TableWriter(path, "curves") as writer:
        writer.append(rows["curves"](evaluation=0))
        before, file = path.read_bytes(), writer._file
        monkeypatch.setattr(writer, "_file", NearlyFull(file))
        with pytest.raises(UserError, match="No space left on device"):
            writer.append(rows["curves"](evaluation=1))
        assert path.read_bytes() == before
        monkeypatch.setattr(writer, "_file", file)
        writer.append(rows["curves"](evaluation=2))
    assert [row.evaluation for row in read_table(path, "curves")] == [0, 2]


def test_whole_files_are_replaced_or_untouched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a" / "file"
    replace_file(path, b"older")
    with open(path, "rb") as reader:
        replace_file(path, b"old")
        assert reader.read() == b"older", "a reader keeps the file that it opened"

    def fail(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(UserError, match="file: No space left"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]


def _append_many(path: Path, maker: Callable[..., Any], count: int) -> None:
    with TableWriter(path, "curves") as writer:
        for number in range(count):
            writer.append(maker(evaluation=number))


def _append_until_killed(path: Path, maker: Callable[..., Any]) -> None:
    with TableWriter(path, "curves") as writer:
        number = 0
        while True:
            writer.append(maker(evaluation=number))
            number += 1


def test_U89_concurrent_writers(tmp_path: Path, rows: Maker) -> None:
    """8 processes append 100 rows each to files of their own and one is killed, while a reader reads all the time."""
    fork = multiprocessing.get_context("fork")
    paths = [tmp_path / f"{number}.csv" for number in range(9)]
    writers = [fork.Process(target=_append_many, args=(path, rows["curves"], 100)) for path in paths[:8]]
    victim = fork.Process(target=_append_until_killed, args=(paths[8], rows["curves"]))
    for process in [victim, *writers]:
        process.start()
    longest = dict.fromkeys(paths, 0)  # the most rows the reader has seen in each file
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a line may be half written at the moment it is read
        deadline = time.monotonic() + 120
        while any(process.is_alive() for process in writers) or longest[paths[8]] == 0:
            assert time.monotonic() < deadline, f"the writers got no further than {longest}"
            for path in paths:
                count = len(read_table(path, "curves")) if path.exists() else 0
                assert count >= longest[path], "a row that was there has gone"
                longest[path] = count
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        for process in [victim, *writers]:
            process.join()
        killed = read_table(paths[8], "curves")
    for path in paths[:8]:
        assert [row.evaluation for row in read_table(path, "curves")] == list(range(100))
    assert [row.evaluation for row in killed] == list(range(len(killed)))
    assert len(killed) >= longest[paths[8]]


# --- what the package may touch


class _Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (os.environ["BOMB_TARGET"],)


def test_nothing_unpickles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "exploded"
    monkeypatch.setenv("BOMB_TARGET", str(target))
    bomb = pickle.dumps(_Bomb())
    for name, content in (("t.csv", bomb + b"\n"), ("t.csv.gz", gzip.compress(bomb + b"\n")), ("u.csv.gz", bomb)):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError):
            read_table(tmp_path / name, "curves")
    assert not target.exists()


def test_the_package_imports_the_standard_library_only_and_nothing_that_runs_data() -> None:
    names: set[str] = set()
    for path in Path(results.__file__).parent.glob("*.py"):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add((node.module or "").split(".")[0])
            elif isinstance(node, ast.Name):
                assert node.id not in ("eval", "exec", "__import__"), f"{path}, line {node.lineno}"
    assert names <= sys.stdlib_module_names | {"numpy", "results"}
    assert not names & {"pickle", "marshal", "shelve", "runpy", "importlib"}


def test_header_of_the_hand_written_rows_is_the_schema() -> None:
    assert HEADER.strip().split(",") == list(schema.columns("curves"))
