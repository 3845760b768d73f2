"""The command as a user calls it, in a folder of his own."""

import shutil
from pathlib import Path

import pytest

from reproduce.cli import main

HERE = Path(__file__).resolve().parent


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Where the user stands, with his modules beside him; the results lie in `results/`."""
    for name in ("broken_envs.py", "leaving.py", "watching.py"):
        shutil.copy(HERE / name, tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # taken off again afterwards
    for name in ("AMAGO_BENCH_DEBUG", "AMAGO_BENCH_WORKERS", "AMAGO_BENCH_ENV_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AMAGO_BENCH_RESULTS", str(tmp_path / "results"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def command(capfd):
    """Calls `amago-bench`: (exit code, output, errors), what other processes print included."""

    def run(*arguments):
        with pytest.raises(SystemExit) as end:
            main(arguments)
        written = capfd.readouterr()
        return end.value.code, written.out, written.err

    return run
