"""An installed wheel does what the README says, in an empty folder and without a checkout."""

import os
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from reproduce.shadows import PACKAGES

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text()
TMAZE = "long_term_memory/tmaze/passive-10"
FIRST_RUN = f"smoke:{TMAZE}:random:0"
CODE = """
from benchmarks.agents.random import Random

class MyAgent(Random):
    pass
"""
ENVIRONMENT = """
import gymnasium

gymnasium.register("MyEnv-v0", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=20)
"""

#: What makes a command of the README one of seconds.
SMALLER = {
    "--tier laptop": "--tier smoke",
    "passive-*": "passive-[13]0",
    "--seeds 0-4": "--seeds 0",
    "amago-bench bench": "amago-bench bench --only start_up",
}


def readme_commands() -> list[str]:
    return [line for line in README.splitlines() if line.startswith("amago-bench ")]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, because a build leaves files beside the sources."""

    def ignored(folder, names):
        return ["__pycache__", "runs", "figures"] if Path(folder) == REPOSITORY / "results" else ["__pycache__"]

    copy = tmp_path_factory.mktemp("source")
    for package in PACKAGES:
        shutil.copytree(REPOSITORY / package, copy / package, ignore=ignored)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / file, copy)
    built = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-build-isolation", "--wheel-dir", built, copy)
    return next(built.glob("*.whl"))


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory):
    site = tmp_path_factory.mktemp("site")
    pip("install", "--target", site, wheel)
    return site


def pip(command, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "pip", command, "--quiet", "--no-deps", "--no-index", *arguments],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.fixture
def here(tmp_path):
    """The user's folder: agents, environments, a task, and modules with the names of our packages."""
    (tmp_path / "my_module.py").write_text(CODE)
    (tmp_path / "my_package.py").write_text(ENVIRONMENT)
    agent, task = (text.split("```")[0] for text in README.split("```python\n")[1:3])
    (tmp_path / "my_agent.py").write_text(agent)
    (tmp_path / "my_task.py").write_text(task)
    for name in PACKAGES:
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('the wrong module')\n")
    return tmp_path


@pytest.fixture
def command(site, here):
    """Calls the installed `amago-bench` in the user's folder; returns what it printed."""

    def run(line, code=0, python=("-P", site / "bin/amago-bench")):
        environment = os.environ | {"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
        environment.pop("AMAGO_BENCH_RESULTS", None)
        done = subprocess.run(
            [sys.executable, *python, *shlex.split(line, comments=True)[1:]],
            cwd=here, env=environment, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == code, f"{line}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    return run


def listing(folder):
    return {
        path: (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*.*") if path.suffix != ".pyc"
    }


def test_the_wheel_holds_every_file_that_is_read_and_no_other(wheel):
    data = {name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith(".py") and "dist-info" not in name}
    committed = [
        path
        for folder in ("results/published", "results/reference")
        for path in (REPOSITORY / folder).rglob("*")
        if path.is_file()
    ]
    others = {"reproduce/claims.yaml", "results/protocols.json"}
    assert data == others | {str(path.relative_to(REPOSITORY)) for path in committed}
    assert len(committed) > 5


def test_the_commands_work_and_write_only_to_results_of_the_current_folder(command, site, here):
    before = listing(site)
    beside = set(here.iterdir())
    shown = {}
    for line in (
        f"amago-bench run --task {TMAZE} --agent random",
        f"amago-bench run --task {TMAZE} --agent my_module:MyAgent",
        "amago-bench run --task my_task:POSITIONS --agent random",
        "amago-bench run --env CartPole-v1 --agent random",
        "amago-bench run --env my_package:MyEnv-v0 --agent random",
        f"amago-bench sweep --task {TMAZE} --agent random --agent my_module:MyAgent --seeds 0-1",
        f"amago-bench evaluate {FIRST_RUN}",
        *(line for line in readme_commands() if line.split()[1] not in ("run", "sweep", "evaluate", "bench")),
        "amago-bench merge --tier smoke",
        "amago-bench --help",
    ):
        shown[line.split()[1]] = command(line)
    assert listing(site) == before
    # Python caches the modules of the user.
    assert set(here.iterdir()) - beside - {here / "__pycache__"} == {here / "results"}
    assert {path.name for path in (here / "results").iterdir()} == {"figures", "protocols.json", "reference", "runs"}
    assert "2 of 4 runs are finished, 2 to make" in shown["sweep"]
    assert f"laptop:{TMAZE}:amago:0 reference" in " ".join(shown["status"].split())
    assert "SUPPORTED" in shown["verdicts"]  # by the committed reference
    assert str(here / "results/figures/passive-tmaze-laptop.png") in shown["figure"]
    assert "as locked" not in shown["doctor"]


def test_a_module_of_the_users_in_the_place_of_ours_is_one_line(command, here):
    (here / "reproduce.py").unlink()
    (here / "results.py").unlink()
    (here / "benchmarks.py").unlink()
    (here / "amago_core.py").unlink()
    (here / "amago_bench.py").unlink()
    said = command("amago-bench list", code=2, python=("-m", "reproduce.cli"))
    assert said.count("\n") == 1
    assert said.startswith(f"amago-bench: Python finds {here / 'analysis.py'} under the name 'analysis'")
    (here / "analysis.py").unlink()
    assert TMAZE in command("amago-bench list", python=("-m", "reproduce.cli"))


def test_from_python_results_are_there_too(command, here):
    for name in PACKAGES:
        (here / f"{name}.py").unlink()
    (here / "mine.py").write_text(
        f"import amago_bench\nprint(len(amago_bench.run({TMAZE!r}, 'random').rows('episodes')))\n"
    )
    assert command("python", python=("mine.py",)).splitlines()[-1] == "100"
    assert (here / "results/runs/smoke").is_dir()


@pytest.mark.slow
def test_every_command_of_the_readme_works_at_smoke_scale(command, site, here):
    before = listing(site)
    for line in [*readme_commands(), "amago-bench reproduce", "amago-bench doctor --seeds", "amago-bench table"]:
        for large, small in SMALLER.items():
            line = line.replace(large, small)
        command(line)
    assert listing(site) == before
