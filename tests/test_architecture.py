"""The arrows between the packages, and rules that hold for every source file."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
ALLOWED = {
    "amago_core": set(),
    "results": set(),
    "analysis": {"results"},
    "benchmarks": {"amago_core", "results"},
    "reproduce": {"benchmarks", "analysis", "results", "amago_core"},
    "amago_bench": {"reproduce", "benchmarks", "analysis"},  # only the names that Python users import
}
FOREIGN = {  # what the two lowest packages may use beside the standard library
    "amago_core": {"torch", "numpy", "gymnasium", "flash_attn"},
    "results": {"numpy"},
}
NEVER = {"analysis": {"torch", "gymnasium"}}
GLOBAL_DRAW = re.compile(
    r"(np|numpy)\.random\.(seed|rand|randn|randint|random|choice|shuffle|permutation|normal|uniform|RandomState)"
    r"|torch\.(manual_seed|seed|cuda\.manual_seed(_all)?)"
)
FILES = sorted(path for package in ALLOWED for path in (REPOSITORY / package).rglob("*.py"))


def imports(path):
    """The first part of every module that a file imports, anywhere in it."""
    package = path.relative_to(REPOSITORY).parts[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield package if node.level else node.module.split(".")[0]


def name(path):
    return str(path.relative_to(REPOSITORY))


def test_there_are_files_of_every_package():
    assert {name(path).split("/")[0] for path in FILES} == set(ALLOWED)


@pytest.mark.parametrize("path", FILES, ids=name)
def test_arrows(path):
    package = name(path).split("/")[0]
    found = set(imports(path)) - {package}
    assert found & set(ALLOWED) <= ALLOWED[package]
    assert not found & NEVER.get(package, set())
    if package in FOREIGN:
        assert found - set(ALLOWED) - sys.stdlib_module_names <= FOREIGN[package]


@pytest.mark.parametrize("path", sorted((REPOSITORY / "tests/amago_core").glob("*.py")), ids=name)
def test_the_core_is_tested_without_the_other_packages(path):
    """Nor by code that a test keeps as text and runs in a process of its own."""
    found = set(re.findall(r"^\s*(?:from|import) (\w+)", path.read_text(), re.MULTILINE))
    assert not found & (set(ALLOWED) - {"amago_core"})


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_file_holds_one_idea(path):
    assert len(path.read_text().splitlines()) <= 400


@pytest.mark.parametrize("path", FILES, ids=name)
def test_no_global_generator(path):
    """PyTorch's initialisers know no other generator; they may use it where it is put back afterwards."""
    tree = ast.parse(path.read_text())
    lent = {
        call
        for block in ast.walk(tree)
        if isinstance(block, ast.With) and "torch.random.fork_rng(" in ast.unparse(block.items[0])
        for call in ast.walk(block)
    }
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node not in lent]
    assert [call.lineno for call in calls if GLOBAL_DRAW.fullmatch(ast.unparse(call.func))] == []
    assert "random" not in set(imports(path))


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["list"], ["status"], ["table"], ["verdicts"], ["run", "--help"], ["show", "amago"]],
    ids=" ".join,
)
def test_commands_that_read_tables_import_no_torch(arguments, tmp_path):
    script = (
        "import sys\nfrom reproduce.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as end: print(end.code or 0, 'torch' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=REPOSITORY,
        env=os.environ | {"AMAGO_BENCH_RESULTS": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.stderr.strip().endswith("0 False"), done.stderr
