"""Checks of the checks: each likely fault of `mutants.toml`, put into a copy of the sources, is found by name."""

import inspect
import os
import re
import shutil
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from amago_core.agent import Agent
from amago_core.config import Config, Rollout
from amago_core.sequences import Batch, Packing

REPOSITORY = Path(__file__).resolve().parents[2]
COPIED = ("amago_core", "benchmarks", "results", "tests/amago_core", "tests/benchmarks")
MUTANTS: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("mutants.toml").read_text())["mutant"]
#: A failure that tells the fault; text that no longer runs at all would be found by any test.
FOUND = re.compile(r"failure: (?!(Name|Attribute|Type|Import|Syntax)Error)")
LOSSES = ("amago_core/agent.py", "amago_core/nets/actor_critic.py", "amago_core/nets/popart.py")


def name(mutant: dict[str, Any]) -> str:
    return mutant["name"]


def copy_of_the_sources(folder: Path) -> Path:
    leave = shutil.ignore_patterns("runs", "reference", "published", "figures", "__pycache__")
    for part in COPIED:
        shutil.copytree(REPOSITORY / part, folder / part, ignore=leave)
    for file in ("pyproject.toml", "tests/conftest.py"):
        shutil.copy(REPOSITORY / file, folder / file)
    return folder


def outcomes(folder: Path, nodes: list[str]) -> dict[str, str]:
    """Node id (relative to tests/) -> `passed`, or the first line of why not, of the tests as they are in the copy."""
    report = folder / "report.xml"
    options = ["-q", "-p", "no:cacheprovider", f"--junitxml={report}", f"--rootdir={folder}"]
    command = [sys.executable, "-m", "pytest", *options, *(f"tests/{node}" for node in nodes)]
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr  # ran to the end, with or without failures
    found = {}
    for case in ET.parse(report).iter("testcase"):
        file = case.attrib["classname"].removeprefix("tests.").replace(".", "/")
        problem = next(iter(case), None)
        why = "passed" if problem is None else f"{problem.tag}: {problem.attrib['message']}".splitlines()[0]
        found[f"{file}.py::{case.attrib['name']}"] = why
    return found


def of(node: str, found: dict[str, str]) -> list[str]:
    """The outcomes of a node: of one parametrisation, or of all of a test."""
    return [why for case, why in found.items() if case == node or case.startswith(f"{node}[")]


@pytest.fixture(scope="module")
def unharmed(tmp_path_factory: pytest.TempPathFactory) -> None:
    """All named tests pass in a copy without a mutant."""
    nodes = sorted({node for mutant in MUTANTS for node in mutant["killed_by"]})
    found = outcomes(copy_of_the_sources(tmp_path_factory.mktemp("unharmed")), nodes)
    assert all(of(node, found) for node in nodes)
    assert set(found.values()) == {"passed"}, {case: why for case, why in found.items() if why != "passed"}


@pytest.mark.slow
@pytest.mark.usefixtures("unharmed")
@pytest.mark.parametrize("mutant", MUTANTS, ids=name)
def test_a_mutant_is_killed(
    mutant: dict[str, Any], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    file = copy_of_the_sources(tmp_path) / mutant["file"]
    file.write_text(file.read_text().replace(mutant["old"], mutant["new"]))
    found = outcomes(tmp_path, mutant["killed_by"])
    survived = [node for node in mutant["killed_by"] if not any(map(FOUND.match, of(node, found)))]
    assert not survived, found
    record_property("mutant", mutant["name"])
    record_property("killed_by", mutant["killed_by"])


@pytest.mark.parametrize("mutant", MUTANTS, ids=name)
def test_a_mutant_still_applies(mutant: dict[str, Any]) -> None:
    """Its text is there once, so whoever moves it moves the mutant too; its replacement is Python; its tests exist."""
    text = (REPOSITORY / mutant["file"]).read_text()
    assert text.count(mutant["old"]) == 1
    compile(text.replace(mutant["old"], mutant["new"]), mutant["file"], "exec")
    assert mutant["killed_by"]
    for node in mutant["killed_by"]:
        file, test = node.split("[")[0].split("::")
        assert f"\ndef {test}(" in (REPOSITORY / "tests" / file).read_text(), f"there is no {node}"


def test_names_are_unique() -> None:
    assert len({name(mutant) for mutant in MUTANTS}) == len(MUTANTS)


def small_agent(action_space: spaces.Space) -> Agent:
    config = Config(encoder_hidden=(4,), encoder_width=4, width=4, layers=1, heads=1, actor_critic_hidden=(4,))
    return Agent(config, spaces.Box(-1, 1, (1,), np.float32), action_space, Rollout(3), np.random.SeedSequence(0))


def blank_batch(agent: Agent) -> Batch:
    flags = torch.zeros(3, dtype=torch.bool)
    action = torch.zeros(3, *agent.actions.field.shape)
    fields = {"observation": torch.zeros(3, 1), "action": action, "reward": torch.zeros(3)}
    return Batch(Packing([3]), torch.arange(3), {**fields, "terminal": flags, "reset": flags})


def test_every_function_of_the_losses_has_a_mutant() -> None:
    """Of the agent, its actor and critics, and PopArt: all that runs, in discrete and in continuous losses."""
    agents = [small_agent(space) for space in (spaces.Discrete(3), spaces.Box(-1, 1, (1,), np.float32))]
    sources = {str(REPOSITORY / file): file for file in LOSSES}
    called: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename in sources and not code.co_name.startswith("<"):
            called.add(code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        for agent in agents:
            agent.losses(blank_batch(agent))
    finally:
        sys.setprofile(before)
    assert {"losses", "evaluate_actions", "update"} <= {code.co_name for code in called}

    def mutated(code: CodeType) -> bool:
        text = inspect.getsource(code)
        return any(m["file"] == sources[code.co_filename] and m["old"] in text for m in MUTANTS)

    assert [code.co_qualname for code in called if not mutated(code)] == []
