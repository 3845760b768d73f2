import shutil
import subprocess
from pathlib import Path

import pytest

from results.errors import UserError
from results.seal import check, check_folder, seal, unseal
from results.store import load, merge_runs


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    for name in ("a.csv", "b.csv", "other.txt"):
        (tmp_path / name).write_text(f"{name}\n0.75\n")
    seal(tmp_path, ["b.csv", "a.csv"])
    return tmp_path


def test_sealed_files_that_are_whole_are_read(sealed: Path) -> None:
    assert check(sealed / "a.csv") == sealed / "a.csv"


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="it needs sha256sum")
def test_the_seal_is_what_sha256sum_reads(sealed: Path) -> None:
    said = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=sealed, capture_output=True, text=True, check=True)
    assert said.stdout == "a.csv: OK\nb.csv: OK\n"


def test_every_flipped_bit_is_found(sealed: Path) -> None:
    path = sealed / "a.csv"
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        with pytest.raises(UserError, match=r"a\.csv: damaged or edited"):
            check(path)


def test_every_flipped_bit_of_the_seal_is_found(sealed: Path) -> None:
    """For the file whose line it hits; a seal is there, so it must name the file."""
    path = sealed / "SHA256SUMS"
    whole = path.read_bytes()
    for bit in range(8 * whole.index(b"\n")):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        with pytest.raises(UserError, match="damaged"):
            check(sealed / "a.csv")


def test_a_whole_folder(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "weights.pt").write_text("weights")
    check_folder(tmp_path)  # not sealed
    seal(tmp_path, ["agent/weights.pt"])
    check_folder(tmp_path)
    (tmp_path / "agent" / "weights.pt").write_text("weighty")
    with pytest.raises(UserError, match=r"agent/weights\.pt: damaged"):
        check_folder(tmp_path)


def test_a_sealed_file_that_is_gone(sealed: Path) -> None:
    (sealed / "a.csv").unlink()
    with pytest.raises(UserError, match=r"a\.csv: No such file"):
        check(sealed / "a.csv")


def test_an_unsealed_folder_may_change(sealed: Path) -> None:
    unseal(sealed)
    (sealed / "a.csv").write_text("other")
    assert check(sealed / "a.csv").read_text() == "other"


def test_reference_tables_are_sealed_and_a_table_that_is_gone_is_named(tmp_path: Path, add_run) -> None:
    add_run()
    merge_runs(tmp_path, "laptop")
    path = tmp_path / "reference/laptop/curves.csv"
    path.write_text(path.read_text().replace("0.25", "0.35"))
    for read in (lambda: load("curves", tmp_path, ("reference",)), lambda: merge_runs(tmp_path, "laptop")):
        with pytest.raises(UserError, match=r"laptop/curves\.csv: damaged or edited"):
            read()
    path.unlink()
    with pytest.raises(UserError, match=r"curves\.csv: No such file"):
        load("curves", tmp_path, ("reference",))


def test_an_interrupted_merge_leaves_no_seal_and_goes_on(tmp_path: Path, add_run, monkeypatch) -> None:
    add_run()
    merge_runs(tmp_path, "laptop")
    add_run(seed=1)

    def full(*arguments: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr("results.store.write_table", full)
        with pytest.raises(OSError, match="disk full"):
            merge_runs(tmp_path, "laptop")
    assert not (tmp_path / "reference/laptop/SHA256SUMS").exists()
    assert len(merge_runs(tmp_path, "laptop")) == 1
    assert len(load("runs", tmp_path, ("reference",))) == 2
