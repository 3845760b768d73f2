"""What the executor for Ray says where there is no Ray; with a real one, see test_engines.py."""

import os
import sys
from pathlib import Path

import pytest

from benchmarks.places import open_place
from benchmarks.places.ray import start
from benchmarks.runs.job import Job
from results.errors import UserError


def test_without_ray_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"^--on ray needs ray: pip install 'amago-bench\[ray\]'$"):
        open_place("ray")


def test_a_task_is_a_run_in_a_process_of_its_own_or_its_last_line(tmp_path, monkeypatch):
    monkeypatch.chdir(Path.cwd())  # back again afterwards
    record = Job("long_term_memory/tmaze/passive-10", "random").to_json()
    assert start(record, str(tmp_path / "results"), str(tmp_path)) == ("finished", "")
    assert Path.cwd() == tmp_path
    status, message = start(Job("nowhere", "random").to_json(), str(tmp_path), "/is/not/there")
    assert status == "failed"
    assert "unknown task 'nowhere'" in message
    assert os.getcwd() == str(tmp_path)
