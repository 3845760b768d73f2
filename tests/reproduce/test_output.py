"""Who reads the output of a command, and in what encoding, does not matter to a training."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from results.store import read_table

COMMAND = f"{shlex.quote(sys.executable)} -m reproduce.cli"
RUN = f"{COMMAND} run --task long_term_memory/tmaze/passive-10 --agent random"
SWEEP = f"{COMMAND} sweep --task long_term_memory/tmaze/passive-10 --agent random --seeds 1"


def shell(line: str, results: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    line = f"set -o pipefail; {line}"
    environment = {**os.environ, "AMAGO_BENCH_RESULTS": str(results), **environment}
    return subprocess.run(["bash", "-c", line], env=environment, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("command", [RUN, SWEEP], ids=["run", "sweep"])
@pytest.mark.parametrize("reader", ["| true", "> /dev/full", ">&-"])
def test_a_training_goes_on_without_its_output(command, reader, tmp_path):
    done = shell(f"{command} {reader}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("standard output cannot be written") <= 1
    assert len(done.stderr.splitlines()) <= 1
    assert [read_table(path, "runs")[-1].status for path in tmp_path.rglob("runs.csv")] == ["finished"]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_folder_that_the_terminal_cannot_spell_costs_no_run(encoding, tmp_path):
    folder = tmp_path / "Ergebnisse-ж"
    done = shell(RUN, folder, PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, "")
    assert [read_table(path, "runs")[-1].status for path in folder.rglob("runs.csv")] == ["finished"]
