"""`import amago_bench`: the suite's names for Python users."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import amago_bench as ab

REPOSITORY = Path(__file__).resolve().parents[1]
TASK = "long_term_memory/tmaze/passive-10"


class Right:
    """Always goes right."""

    def __init__(self, spec):
        pass

    def learn(self, envs, seeds):
        yield ab.Progress(updates=1)

    def act(self, step, memory, rng):
        return np.zeros(len(step.first), int), memory

    def save(self, folder):
        pass

    def load(self, folder):
        pass


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.setenv("AMAGO_BENCH_RESULTS", str(tmp_path))
    monkeypatch.setitem(sys.modules, Right.__module__, sys.modules[__name__])  # pytest imports tests under other names


def test_a_class_and_a_task_object_are_as_good_as_their_names(here):
    run = ab.run(ab.tasks()[TASK], Right)
    agent = f"{Right.__module__}:Right"
    assert repr(run) == f"<smoke:{TASK}:{agent}:0, finished after 0 steps>"
    assert len(run.rows("runs")) == 1 and run.rows("tasks")["high"].tolist() == [1.0]
    assert ab.load(TASK, Right).folder == ab.load(TASK, agent).folder == run.folder
    assert ab.table(task=TASK, agents=[agent])["mean"].tolist() == [0.0]  # it never turns


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("results", "under the name 'results', which a package of AMAGO Bench has"),
        ("reproduce", "rename your reproduce.py"),
    ],
)
def test_what_stands_in_the_place_of_ours_is_one_clear_line(name, says, tmp_path):
    (tmp_path / f"{name}.py").write_text("MINE = 1\n")
    code = f"import sys; sys.path += [{str(REPOSITORY)!r}]; import amago_bench"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert says in done.stderr.splitlines()[-1]
