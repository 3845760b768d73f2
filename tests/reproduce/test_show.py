"""`show`, settings that an agent from outside declares, and what docs/agents.md says of both."""

import json
import re
import shlex
import sys
from pathlib import Path

import click
import pytest

from reproduce.cli import cli

DOCS = (Path(__file__).resolve().parents[2] / "docs/agents.md").read_text()
(EXAMPLE,) = re.findall(r"^```python\n(.*?)^```$", DOCS, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^amago-bench .*$", DOCS, re.MULTILINE)
TASK = "long_term_memory/tmaze/passive-10"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("AMAGO_BENCH_RESULTS", str(tmp_path / "results"))
    monkeypatch.chdir(tmp_path)
    for module in ("my_constant", "mine"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    (tmp_path / "my_constant.py").write_text(EXAMPLE)
    yield tmp_path
    for module in ("my_constant", "mine"):
        sys.modules.pop(module, None)


def settings(out):
    """Name -> (value, default), from a table without blanks in them."""
    return {line.split()[0]: tuple(line.split()[1:3]) for line in out.splitlines()[1:]}


def test_the_values_are_those_of_preset_task_and_tier(command):
    shown = settings(command("show", "amago-gru@layers=1,steps=500", "--task", TASK, "--tier", "paper")[1])
    assert shown["sequence_model"] == ("gru", "transformer")
    assert shown["gamma"] == ("0.9999", "0.999")  # the paper's in T-Maze
    assert shown["layers"] == ("1", "3")
    assert shown["encoder_hidden"][1] == "512+512"
    assert settings(command("show", "amago-gru")[1])["gamma"] == ("0.999", "0.999")
    assert "learning rate of AdamW\n" in command("show", "amago")[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["amago", "--task", TASK, "--tier", "lapto"], "laptop"),
        (["amagoo"], "did you mean amago"),
        (["amago@learning_rate=1e-4"], "agent amago: it has no setting 'learning_rate'; it is called lr here"),
        (["sb3-ppo@net_arch=8"], "it is called hidden here"),
        (["nothing:Here"], "No module named 'nothing'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(command, arguments, said):
    code, out, err = command("show", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_agents_without_settings_say_so(command, folder):
    (folder / "mine.py").write_text("from benchmarks.agents.random import Random\nclass Mine(Random): pass\n")
    for agent in ("random", "mine:Mine"):
        assert command("show", agent) == (0, f"agent {agent} declares no settings\n", "")


def test_the_agent_of_the_documentation_gets_what_was_set(command, folder):
    code, out, _ = command("show", "my_constant:Constant@action=2")
    assert code == 0 and out.splitlines()[1].split() == ["action", "2", "0", "the", "action", "it", "takes"]
    agent = ["--agent", "my_constant:Constant", "--task", TASK, "--quiet"]
    assert command("run", *agent, "--set", "action=1")[0] == 0
    run = folder / "results/runs/smoke" / TASK / "my_constant:Constant@action=1/seed-0"
    assert json.loads((run / "config.json").read_text())["hyperparameters"] == {"action": 1}
    for text, said in {
        "arm=1": "agent my_constant:Constant: it has no setting 'arm'; it is called action here (the action it takes)",
        "action=up": "setting action=up: expected int",
        "action=-1": "action must be at least 0, not -1",
    }.items():
        code, _, err = command("run", *agent, "--set", text)
        assert (code, err.count("\n")) == (2, 1)
        assert said in err


@pytest.mark.parametrize(
    "body",
    [
        "Settings = 3",
        "Settings = dict",
        "@dataclass\n    class Settings:\n        a: int",
        "@dataclass\n    class Settings:\n        a: object = dataclass",
    ],
)
def test_settings_that_are_no_record_of_defaults_are_one_line(command, folder, body):
    head = "from dataclasses import dataclass\nfrom benchmarks.agents.random import Random\n"
    (folder / "mine.py").write_text(f"{head}class Mine(Random):\n    {body}\n")
    code, _, err = command("show", "mine:Mine")
    assert (code, err.count("\n")) == (2, 1)
    assert "agent mine:Mine: its Settings must be a dataclass in which every field has a default that JSON" in err


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_of_the_documentation_parses(line):
    _, name, *arguments = shlex.split(line, comments=True)
    cli.commands[name].make_context(name, arguments, parent=click.Context(cli))
