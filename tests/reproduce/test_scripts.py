"""The shell scripts, with a stand-in for Python where the environment would be made."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

# Answers as Python does: its version, whether it is new enough, its venv module, pip. Notes what it is asked to do.
PYTHON = """#!/bin/sh
echo "$@" >> "{log}"
case "$*" in
    *print*) echo {version} ;;
    *"< (3, 11)"*) exit {too_old} ;;
    "-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python"
                 printf '#!/bin/sh\\necho ran "$@"\\n' > "$3/bin/amago-bench"; chmod +x "$3/bin/amago-bench" ;;
    *"pip "*) exit {pip} ;;
esac
"""


@pytest.fixture
def copy(tmp_path):
    """A repository with the scripts and nothing else."""
    (tmp_path / "repo").mkdir()
    shutil.copytree(REPOSITORY / "reproduce", tmp_path / "repo/reproduce", ignore=shutil.ignore_patterns("*.py"))
    (tmp_path / "repo/requirements.lock").write_text("click==8.5.1\n")
    (tmp_path / "repo/pyproject.toml").write_text("")
    return tmp_path / "repo"


@pytest.fixture
def run_all(copy, tmp_path):
    def run(*arguments, version="3.11", too_old=0, pip=0):
        python = tmp_path / "python"
        python.write_text(PYTHON.format(log=tmp_path / "log", version=version, too_old=too_old, pip=pip))
        python.chmod(0o755)
        (tmp_path / "log").write_text("")
        done = subprocess.run(
            ["bash", copy / "reproduce/run_all.sh", *arguments],
            cwd="/", env=os.environ | {"PYTHON": str(python)}, capture_output=True, text=True,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr, (tmp_path / "log").read_text().splitlines()

    return run


def installations(calls):
    return sum(" install " in call for call in calls)


def test_makes_the_environment_once_and_hands_the_arguments_on(run_all, copy):
    code, output, calls = run_all("--tier", "laptop")
    assert (code, output.splitlines()[-1]) == (0, "ran reproduce --tier laptop")
    assert installations(calls) == 2
    code, output, calls = run_all()
    assert (code, output, installations(calls)) == (0, "ran reproduce\n", 0)


@pytest.mark.parametrize("name", ["requirements.lock", "pyproject.toml"])
def test_makes_it_again_for_another_lock_or_project(run_all, copy, name):
    run_all()
    (copy / ".venv/left-over").touch()
    (copy / name).write_text("another\n")
    assert installations(run_all()[2]) == 2
    assert not (copy / ".venv/left-over").exists()


def test_makes_it_again_where_the_repository_has_moved(run_all, copy, tmp_path):
    run_all()
    text = (copy / ".venv/.amago-bench").read_text()
    (copy / ".venv/.amago-bench").write_text(text.replace(str(copy), "/elsewhere"))
    assert installations(run_all()[2]) == 2


def test_an_installation_that_failed_is_tried_again(run_all):
    code, output, _ = run_all(pip=1)
    assert code == 2
    assert output.splitlines()[-1].startswith("run_all.sh: the installation failed")
    assert installations(run_all()[2]) == 2


def test_a_python_that_is_too_old_is_said_in_one_line(run_all, copy):
    code, output, _ = run_all(version="3.9", too_old=1)
    assert code == 2
    assert len(output.splitlines()) == 1
    assert "Python 3.11 or newer is needed" in output
    assert "is 3.9" in output
    assert not (copy / ".venv").exists()


def test_an_environment_of_the_users_own_is_left_alone(run_all, copy):
    (copy / ".venv").mkdir()
    (copy / ".venv/mine").touch()
    code, output, _ = run_all()
    assert (code, (copy / ".venv/mine").exists()) == (2, True)
    assert "was not made by this script" in output


def test_help_makes_nothing(run_all, copy):
    code, output, calls = run_all("--help")
    assert (code, calls, (copy / ".venv").exists()) == (0, [], False)
    assert "--tier" in output


@pytest.mark.slow
def test_a_fresh_clone_comes_to_its_figures_and_then_has_nothing_to_do(tmp_path):
    subprocess.run(["git", "clone", "-q", REPOSITORY, tmp_path / "clone"], check=True)
    environment = {key: value for key, value in os.environ.items() if key not in ("AMAGO_BENCH_RESULTS", "PYTHONPATH")}

    def run():
        script = tmp_path / "clone/reproduce/run_all.sh"
        done = subprocess.run(["bash", script], cwd="/", env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    figures = [line.strip() for line in run().splitlines() if line.strip().endswith((".png", ".pdf"))]
    assert figures
    assert all(Path(path).stat().st_size > 1000 for path in figures)
    written = [Path(path).stat().st_mtime for path in figures]
    assert "nothing to run" in run()
    assert [Path(path).stat().st_mtime for path in figures] == written
