"""What the README says works when it is done as written."""

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from benchmarks.catalog import get_task
from benchmarks.places import local, slurm
from benchmarks.places.executor import Outcome
from reproduce.cli import cli, main

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
AGENT, TASK, INTERFACE = (text for language, text in BLOCKS if language == "python")
COMMANDS = [line for language, text in BLOCKS if language == "bash" for line in text.splitlines()]


def examples(command):
    return re.findall(r"^ *(amago-bench .*)$", command.help.split("\b", 1)[1], re.MULTILINE)


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("amago-bench")])
def test_every_command_of_the_readme_parses(line):
    parse(line)


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_every_command_shows_an_example_that_parses(name):
    found = examples(cli.commands[name])
    assert found
    for line in found:
        assert parse(line) == name


def parse(line):
    _, name, *arguments = shlex.split(line, comments=True)
    cli.commands[name].make_context(name, arguments, parent=click.Context(cli))
    return name


class Idle:
    """An executor that makes nothing, and says that all is finished."""

    workers, poll_s, jobs, cancel_command = 1, 0.0, (), None

    def __init__(self, workers=None, partition=None, gpus=None):
        pass

    def submit(self, jobs, root):
        Idle.jobs = jobs

    def poll(self):
        return dict.fromkeys(Idle.jobs, "ended")

    def collect(self, job):
        return Outcome("finished")

    def cancel(self):
        pass


@pytest.mark.parametrize(
    "line", [*(c for c in COMMANDS if " sweep " in c), *examples(cli.commands["sweep"])], ids=lambda line: line[:60]
)
def test_every_sweep_command_makes_its_runs(line, tmp_path, monkeypatch, capsys):
    """Some tasks of the pattern have no laptop budget."""
    monkeypatch.setattr(Idle, "jobs", ())
    monkeypatch.setattr(local, "Local", Idle)
    monkeypatch.setattr(slurm, "Slurm", Idle)
    monkeypatch.setenv("AMAGO_BENCH_RESULTS", str(tmp_path))
    with pytest.raises(SystemExit) as end:
        main(shlex.split(line, comments=True)[1:])
    assert end.value.code == 0, capsys.readouterr().err
    assert bool(Idle.jobs) == ("--dry-run" not in line)
    assert all(job.tier in get_task(job.task).budgets for job in Idle.jobs)
    assert ("passive-1000," in capsys.readouterr().out) == ("passive-*" in line)


def test_every_script_and_file_it_names_is_there():
    scripts = [line.split()[1] for line in COMMANDS if line.startswith("bash ")]
    links = re.findall(r"\]\((?!http)([^)]+)\)", README)
    assert len(scripts) >= 2
    assert [name for name in scripts + links if not (REPOSITORY / name).is_file()] == []


@pytest.fixture
def shell(tmp_path):
    def run(*arguments):
        environment = os.environ | {
            "AMAGO_BENCH_RESULTS": str(tmp_path / "results"),
            "PYTHONPATH": str(REPOSITORY),
            "OMP_NUM_THREADS": "1",
        }
        done = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_the_agent_is_short_runs_and_learns(shell, tmp_path):
    assert len(AGENT.splitlines()) < 40
    (tmp_path / "my_agent.py").write_text(AGENT)
    (run_it, table) = (line for line in COMMANDS if "my_agent:HillClimber" in line)
    shell("-m", "reproduce.cli", *shlex.split(run_it)[1:])
    assert "my_agent:HillClimber" in shell("-m", "reproduce.cli", *shlex.split(table)[1:])
    rows = shell("-m", "reproduce.cli", "table", "--tier", "smoke", "--format", "csv").splitlines()
    row = dict(zip(rows[0].split(","), rows[1].split(","), strict=True))
    assert float(row["mean"]) > 0.4  # right away it has 0, and 0.5 is the best without memory


def test_the_task_is_short_and_can_be_played_and_compared(shell, tmp_path):
    """Its scale goes with its runs, so that a reader of the rows needs no file of the user's."""
    assert len(TASK.splitlines()) <= 25
    (tmp_path / "my_task.py").write_text(TASK)
    (run_it, table) = (line for line in COMMANDS if "my_task:POSITIONS" in line)
    shell("-m", "reproduce.cli", *shlex.split(run_it)[1:], "--agent", "random")
    (tmp_path / "my_task.py").unlink()
    assert "my_task:POSITIONS" in shell("-m", "reproduce.cli", *shlex.split(table)[1:])
    scores = (
        "from analysis import frames, scores; print(scores.with_normalised(frames.scores())"
        ".query('task == \"my_task:POSITIONS\"')['normalised'].tolist())"
    )
    (normalised,) = ast.literal_eval(shell("-c", scores))
    assert abs(normalised) < 0.1  # random play


def test_the_python_interface(shell, tmp_path):
    (tmp_path / "interface.py").write_text(INTERFACE + "print(len(episodes), 'episodes')\n")
    assert "100 episodes" in shell("interface.py")
