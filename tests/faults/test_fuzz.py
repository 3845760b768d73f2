"""1,000 damaged files: each is refused in one line or means what it meant before; nothing in a file is ever executed.

150 of them are in the fast suite. The tables of an unfinished run and `claims.yaml` have no checksums: there a change
that leaves a well-formed file is an edit. No result comes from the first, and git guards the second.
"""

import json
import os
import shutil
import warnings
from collections import Counter
from dataclasses import fields

import numpy as np
import pytest
import torch

from amago_core import checkpoint
from analysis.claims import load_claims
from benchmarks import api
from reproduce.commands.report import CLAIMS
from results.errors import UserError
from results.protocols import protocol_id, registered
from results.schema import TABLES
from results.store import load, merge_runs, read_table

AMOUNTS = [150, pytest.param(1000, marks=pytest.mark.slow)]
TABLE_FILES = ("runs.csv", "curves.csv", "episodes.csv", "tasks.csv")


# --- damage ---


def flip(rng, content):
    at = rng.integers(len(content))
    return content[:at] + bytes([content[at] ^ 1 << rng.integers(8)]) + content[at + 1 :]


def truncate(rng, content):
    return content[: rng.integers(len(content))]


def insert(rng, content):
    at = rng.integers(len(content) + 1)
    return content[:at] + rng.bytes(rng.integers(1, 9)) + content[at:]


def cut(rng, content):
    begin = rng.integers(len(content))
    return content[:begin] + content[begin + rng.integers(1, 20) :]


def zero(rng, content):
    """A block that never reached the disk."""
    begin, length = rng.integers(len(content)), rng.integers(1, 512)
    return content[:begin] + bytes(len(content[begin : begin + length])) + content[begin + length :]


def swap(rng, content):
    lines = content.split(b"\n")
    i, j = rng.integers(len(lines), size=2)
    lines[i], lines[j] = lines[j], lines[i]
    return b"\n".join(lines)


def repeat(rng, content):
    lines = content.split(b"\n")
    i = rng.integers(len(lines))
    return b"\n".join([*lines[: i + 1], *lines[i:]])


DAMAGE = (flip, truncate, insert, cut, zero, swap, repeat)


def damaged(rng, content):
    """Another content; swapped lines may be the same ones."""
    while (changed := DAMAGE[rng.integers(len(DAMAGE))](rng, content)) == content:
        pass
    return changed


def fuzz(files, read, amount, errors=(UserError,), seed=0):
    """Damages one of the files, reads, and repairs it; what came of it, as a count of refused, same and other.

    `read` gives something that can be compared. Anything raised that is not in `errors` fails the test.
    """
    rng, outcome = np.random.default_rng(seed), Counter()
    before = read()
    for _ in range(amount):
        path = files[rng.integers(len(files))]
        whole = path.read_bytes()
        path.write_bytes(damaged(rng, whole))
        try:
            found = read()
        except errors as error:
            outcome["refused"] += 1
            assert str(error).count("\n") == 0
            assert str(error)
        else:
            outcome["same" if found == before else "other"] += 1
        path.write_bytes(whole)
    assert read() == before
    return outcome


# --- files with checksums ---


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A results folder with a finished run and its merged reference rows."""
    root = tmp_path_factory.mktemp("results")
    api.run("long_term_memory/tmaze/passive-10", "random", root=root)
    merge_runs(root, "smoke")
    return root


def everything(root):
    """All that the commands read of the local runs, through the functions that they call."""
    (folder,) = root.glob("runs/**/seed-0")
    run = api.load(folder)
    rows = [row for table in ("runs", "curves", "episodes", "tasks") for row in load(table, root, ("runs",))]
    shutil.rmtree(root / "reference", ignore_errors=True)
    merge_runs(root, "smoke")
    merged = [path.read_bytes() for path in sorted((root / "reference" / "smoke").iterdir())]
    return rows, merged, (run.task.id, run.seed), run.rows("curves").to_csv()


@pytest.mark.parametrize("amount", AMOUNTS)
def test_a_finished_run(finished, amount):
    (folder,) = finished.glob("runs/**/seed-0")
    files = [folder / name for name in (*TABLE_FILES, "config.json", "protocol.json", "SHA256SUMS")]
    outcome = fuzz(files, lambda: everything(finished), amount)
    assert outcome["other"] == 0
    assert outcome["refused"] > 0.9 * amount  # the rest: lines of the seal that changed places


@pytest.mark.parametrize("amount", AMOUNTS)
def test_reference_tables(finished, amount):
    files = sorted((finished / "reference" / "smoke").iterdir())
    assert [path.name for path in files] == ["SHA256SUMS", "curves.csv", "episodes.csv.gz", "runs.csv", "tasks.csv"]
    read = lambda: [load(table, finished, ("reference",)) for table in ("runs", "curves", "episodes", "tasks")]  # noqa: E731
    outcome = fuzz(files, read, amount)
    assert outcome["other"] == 0
    assert outcome["refused"] > 0.9 * amount


@pytest.mark.parametrize("amount", AMOUNTS)
def test_registered_protocols(finished, amount):
    outcome = fuzz([finished / "protocols.json"], lambda: registered(finished), amount)
    assert outcome["other"] == 0
    (folder,) = finished.glob("runs/**/seed-0")
    record = json.loads((folder / "protocol.json").read_text())
    assert registered(finished) == {protocol_id(record): record}


@pytest.mark.parametrize("amount", AMOUNTS)
def test_checkpoints(tmp_path, amount):
    weights = {"layer": torch.arange(12.0).reshape(3, 4), "steps": 7}
    folder = checkpoint.write(tmp_path, lambda inside: checkpoint.save_state(inside / "agent.pt", weights))

    def read():
        checkpoint.verify(folder)
        state = checkpoint.load_state(folder / "agent.pt")
        return state["layer"].tolist(), state["steps"]

    files = sorted(path for path in folder.rglob("*") if path.is_file())
    assert len(files) == 2
    outcome = fuzz(files, read, amount, (checkpoint.Damaged, checkpoint.WrongFormat))
    assert outcome["other"] == 0
    assert outcome["refused"] > 0.9 * amount


# --- files without ---


@pytest.mark.parametrize("amount", AMOUNTS)
def test_tables_of_an_unfinished_run(finished, tmp_path, amount):
    (folder,) = finished.glob("runs/**/seed-0")
    files = [shutil.copy(folder / name, tmp_path / name) for name in TABLE_FILES]

    def read():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a torn last line
            rows = [row for path in files for row in read_table(path, path.stem)]
        for row in rows:  # what is accepted is well-formed
            assert {field.name for field in fields(row)} == {field.name for field in fields(TABLES[row_table(row)])}
        return rows

    outcome = fuzz(files, read, amount)
    assert outcome["refused"] > 0.3 * amount


def row_table(row):
    return next(name for name, kind in TABLES.items() if isinstance(row, kind))


@pytest.mark.parametrize("amount", AMOUNTS)
def test_claims(tmp_path, amount):
    path = tmp_path / "claims.yaml"
    shutil.copy(CLAIMS, path)
    outcome = fuzz([path], lambda: load_claims(path), amount)
    assert outcome["refused"] > 0.3 * amount


# --- files that carry code ---


class Payload:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_checkpoint_that_carries_code_is_refused(tmp_path):
    """Even with a manifest that fits: a checksum says what was written, not that it is harmless."""
    mark = tmp_path / "executed"

    def fill(folder):
        torch.save({"layer": torch.zeros(2), "hook": Payload(mark)}, folder / "agent.pt")

    folder = checkpoint.write(tmp_path / "checkpoint", fill)
    checkpoint.verify(folder)
    with pytest.raises(Exception, match=r"(?i)weights.only"):
        checkpoint.load_state(folder / "agent.pt")
    assert not mark.exists()
    torch.load(folder / "agent.pt", weights_only=False)  # the payload does work
    assert mark.exists()


def test_claims_that_carry_code_are_refused(tmp_path):
    mark, path = tmp_path / "executed", tmp_path / "claims.yaml"
    path.write_text(f"schema: 1\nclaims: !!python/object/apply:os.mkdir ['{mark}']\n")
    with pytest.raises(UserError, match=r"claims\.yaml:2"):
        load_claims(path)
    assert not mark.exists()
