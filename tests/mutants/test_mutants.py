"""Checks of the checks: each mutant is killed by its test, which passes without it."""

import ast
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mutants.mutants import MUTANTS
from tests.mutants.mutation import Mutant

REPOSITORY = Path(__file__).resolve().parents[2]
each_mutant = pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)


def outcomes(checks: list[str], report: Path, mutant: str = "") -> list[str]:
    """`passed`, or the first line of why not, of every test of the checks."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.mutants.mutation"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", "MUTANT": mutant}
    nodes = [f"tests/{check}" for check in checks]
    done = subprocess.run(
        [*command, f"--junitxml={report}", *nodes], cwd=REPOSITORY, env=environment, capture_output=True, text=True
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr  # ran to the end, with or without failures
    problems = [next(iter(case), None) for case in ET.parse(report).iter("testcase")]
    return ["passed" if each is None else f"{each.tag}: {each.attrib['message']}".splitlines()[0] for each in problems]


@pytest.fixture(scope="module")
def unharmed(tmp_path_factory: pytest.TempPathFactory) -> None:
    """All checks pass without a mutant, so a failure with one is its doing."""
    found = outcomes(
        sorted({mutant.killed_by for mutant in MUTANTS}), tmp_path_factory.mktemp("unharmed") / "report.xml"
    )
    assert set(found) == {"passed"}, found


@pytest.mark.slow
@pytest.mark.usefixtures("unharmed")
@each_mutant
def test_a_mutant_is_killed(mutant: Mutant, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """By an assertion: a program that no longer runs at all would be found by any test."""
    found = outcomes([mutant.killed_by], tmp_path / "report.xml", mutant.name)
    assert any(re.match(r"failure: (AssertionError|assert |Failed)", each) for each in found), found
    record_property("mutant", mutant.name)
    record_property("killed_by", mutant.killed_by)


@each_mutant
def test_a_mutant_still_finds_its_place_and_its_check(mutant: Mutant) -> None:
    mutant.code()
    file, _, test = mutant.killed_by.partition("::")
    tree = ast.parse((REPOSITORY / "tests" / file).read_text())
    tests = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert test.split("[")[0] in tests, f"there is no {mutant.killed_by}"


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("amago_core.learner:Learner.no_such", "lost: there is no amago_core.learner:Learner.no_such any more"),
        ("amago_core.nowhere:update", "lost: there is no amago_core.nowhere:update any more"),
        ("amago_core.learner:Learner.state_dict", "lost: changes 0 places in amago_core.learner:Learner.state_dict"),
        ("amago_core.learner:Learner.update", r"lost: changes \d\d places in amago_core.learner:Learner.update"),
    ],
)
def test_a_mutant_that_does_not_find_its_one_place_says_so(target: str, says: str) -> None:
    def lost(node: ast.AST) -> str | None:
        return "True" if isinstance(node, ast.Name) and target.endswith("update") else None

    with pytest.raises(LookupError, match=f"mutant {says}"):
        Mutant(target, "", lost).code()


def test_names_are_unique() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
