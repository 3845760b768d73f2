"""Disks and files that are full, read-only, moved, stale or damaged: one line, and what was written stays."""

import json
import os
import shutil
import subprocess

import pytest
import torch

from reproduce.commands import report
from results.store import read_table

TASK = "long_term_memory/tmaze/passive-10"
RUN = ["run", "--env", "broken_envs:Fine-v0", "--agent", "watching:Watcher", "--quiet"]
FOLDER = "runs/smoke/foreign/gymnasium/broken_envs:Fine-v0/watching:Watcher/seed-0"
DISK_KB = 512


@pytest.fixture(autouse=True)
def in_process(monkeypatch):
    monkeypatch.setenv("AMAGO_BENCH_WORKERS", "0")


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """A small disk that holds the results."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_KB}k", "tmpfs", folder], capture_output=True, text=True
    )
    if mount.returncode:
        pytest.skip(f"a small disk needs the right to mount one: {mount.stderr.strip()}")
    monkeypatch.setenv("AMAGO_BENCH_RESULTS", str(folder / "results"))
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def finished(command, folder, tmp_path_factory):
    """The results folder with the run of RUN, which is made once."""
    made = tmp_path_factory.getbasetemp() / "finished"
    if not made.exists():
        assert command(*RUN) == (0, "", "")
        shutil.copytree(folder / "results", made)
    shutil.copytree(made, folder / "results", dirs_exist_ok=True)
    return folder / "results"


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def is_one_line(result, *says):
    code, out, err = result
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert err.startswith("amago-bench: ")
    assert all(word in err for word in says), err


# --- disks ---


@pytest.mark.parametrize("free_kb", [0, 4, 8, 16, 20, 24, 28, 32, 40, 52])
def test_a_full_disk(command, disk, tmp_path, free_kb):
    """It fills at another moment for each size: at the first file, at a header, in a row, at a mirror, at progress."""
    assert command("run", "--task", TASK, "--agent", "random", "--quiet")[0] == 0
    before = contents(disk / "results")
    filler = disk / "filler"
    used = sum(path.stat().st_blocks for path in disk.rglob("*")) // 2
    filler.write_bytes(bytes((DISK_KB - used - free_kb) * 1024))
    is_one_line(command(*RUN), f"{FOLDER}/", "No space left on device")
    after = contents(disk / "results")
    assert {path: after[path] for path in before} == before
    for table in ("runs", "curves", "episodes"):  # whole rows only
        if (path := disk / "results" / FOLDER / f"{table}.csv").exists():
            read_table(path, table)
    filler.unlink()
    assert command(*RUN) == (0, "", "")
    assert command(*RUN, "--results", str(tmp_path / "other")) == (0, "", "")
    once, never = (
        read_table(root / FOLDER / "episodes.csv", "episodes") for root in (disk / "results", tmp_path / "other")
    )
    assert once == never


def test_a_disk_without_room_for_the_replay(command, disk):
    is_one_line(command("run", "--task", TASK, "--agent", "amago", "--quiet"), "MB of replay", "No space left")


def test_a_read_only_disk(command, disk):
    assert command(*RUN)[0] == 0
    before = contents(disk)
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    is_one_line(command(*RUN, "--seed", "1"), "Read-only file system", str(disk))
    is_one_line(command("merge", "--tier", "smoke"), "Read-only file system", str(disk))
    assert command(*RUN) == (0, "", "")  # finished already
    assert command("status")[0] == command("table")[0] == command("evaluate", str(disk / "results" / FOLDER))[0] == 0
    assert contents(disk) == before


# --- folders ---


def test_a_moved_run_is_evaluated_from_its_folder_alone(command, folder, finished):
    said = command("evaluate", str(finished / FOLDER))
    assert (said[0], "mean return 4.0000" in said[1]) == (0, True)
    shutil.move(finished / FOLDER, folder / "elsewhere")
    assert command("evaluate", str(folder / "elsewhere")) == said
    shutil.copytree(folder / "elsewhere", finished / FOLDER.replace("seed-0", "seed-1"))
    is_one_line(command("status"), "belongs in", "seed-0; move the folder away")


def test_moved_results_are_found_where_they_are(command, folder, finished):
    said = command("table")
    shutil.move(finished, folder / "elsewhere")
    assert command("table", "--results", str(folder / "elsewhere")) == said


def test_a_run_whose_folder_is_moved_away_under_it(command, folder):
    (folder / "mover.py").write_text(
        "import shutil, watching\n"
        "class Mover(watching.Watcher):\n"
        "    def learn(self, envs, seeds):\n"
        "        for i, progress in enumerate(super().learn(envs, seeds)):\n"
        "            if i == 300:\n"
        "                shutil.move('results', 'elsewhere')\n"
        "            yield progress\n"
    )
    arguments = ["run", "--env", "broken_envs:Fine-v0", "--agent", "mover:Mover", "--quiet"]
    is_one_line(command(*arguments), "No such file or directory", "mover:Mover/seed-0/")
    (moved,) = folder.glob("elsewhere/**/seed-0")
    assert not read_table(moved / "curves.csv", "curves")[0].final
    assert read_table(moved / "runs.csv", "runs")[-1].status == "failed"


def test_stale_temporary_files(command, folder):
    run = folder / "results" / FOLDER
    (run / ".checkpoint.tmp").mkdir(parents=True)
    (run / ".checkpoint.tmp" / "done").touch()
    for name in (".runs.csv.999.tmp", ".progress.json.999.tmp", ".config.json.999.tmp"):
        (run / name).write_text("half a li")
    assert command("status")[0] == 0
    assert command(*RUN) == (0, "", "")
    assert command("status")[0] == command("table")[0] == command("merge", "--tier", "smoke")[0] == 0


# --- damage ---


def test_a_table_of_another_schema(command, finished):
    path = finished / FOLDER / "runs.csv"
    path.write_text(path.read_text().replace("\n1,", "\n2,"))
    (path.parent / "SHA256SUMS").unlink()
    before = contents(finished)
    for arguments in (["status"], ["table"], ["verdicts"], ["merge", "--tier", "smoke"], RUN):
        is_one_line(command(*arguments), "runs.csv, line 2", "schema")
    assert contents(finished) == before


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "not sealed"])
@pytest.mark.parametrize(
    ("name", "text", "arguments"),
    [
        ("config.json", '{"run_id": "smo', RUN),
        ("config.json", '{"run_id": "smo', ["evaluate", FOLDER]),
        ("config.json", "[]", RUN),
        ("config.json", "{}", ["evaluate", FOLDER]),
        ("protocol.json", "", ["merge", "--tier", "smoke"]),
        ("protocol.json", "{}", ["merge", "--tier", "smoke"]),
        ("../" * 7 + "protocols.json", '{"00000000": 1}', ["merge", "--tier", "smoke"]),
        ("../" * 7 + "protocols.json", "\x00", ["merge", "--tier", "smoke"]),
    ],
)
def test_a_damaged_json_file_is_named_and_left_alone(command, finished, name, text, arguments, sealed):
    if not sealed:
        (finished / FOLDER / "SHA256SUMS").unlink()
    path = (finished / FOLDER / name).resolve()
    path.write_text(text)
    before = contents(finished)
    is_one_line(command(*(a.replace(FOLDER, str(finished / FOLDER)) for a in arguments)), path.name)
    assert contents(finished) == before


def test_a_progress_file_that_is_damaged_harms_nothing(command, finished):
    (finished / FOLDER / "progress.json").write_text('{"st')
    assert command("status")[0] == command(*RUN)[0] == 0
    command("sweep", "--task", "foreign/gymnasium/broken_envs:Fine-v0", "--agent", "watching:Watcher", "--seeds", "1")


@pytest.mark.parametrize(
    "text", ["schema: [", "", "schema: 2\nclaims: []", "!!python/object/apply:os.system [exit]", "\x00"]
)
def test_damaged_claims_are_one_line(command, folder, monkeypatch, text):
    (folder / "claims.yaml").write_text(text)
    monkeypatch.setattr(report, "CLAIMS", folder / "claims.yaml")
    is_one_line(command("verdicts"), "claims.yaml")


def test_a_damaged_checkpoint_of_a_finished_run(command, folder):
    command("run", "--task", TASK, "--agent", "amago", "--set", "updates_per_iteration=1", "--quiet")
    run = folder / "results/runs/smoke" / TASK / "amago@updates_per_iteration=1/seed-0"
    (path,) = (run / "checkpoint").glob("*.pt")
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    is_one_line(command("evaluate", str(run)), "agent.pt: damaged")
    (run / "checkpoint" / "SHA256SUMS").unlink()
    path.write_bytes(content[:middle])
    is_one_line(command("evaluate", str(run)), "checkpoint: the agent cannot be loaded from it")
    torch.save({"hook": Payload(folder / "executed")}, path)  # sealed or not, nothing in it runs
    is_one_line(command("evaluate", str(run)), "checkpoint: the agent cannot be loaded from it")
    assert not (folder / "executed").exists()
    assert json.loads((run / "progress.json").read_text())["status"] == "finished"


class Payload:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)
