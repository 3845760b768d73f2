"""What sweeps say about the runs that they are still going to make."""

import subprocess
import sys

from benchmarks.places.queue import announcing, queued
from benchmarks.runs.job import Job

JOBS = [Job("long_term_memory/tmaze/passive-10", "amago", seed=seed) for seed in range(3)]


def test_what_waits_is_known_until_the_sweep_ends(tmp_path):
    assert queued(tmp_path) == []
    with announcing(tmp_path) as announce, announcing(tmp_path) as other:
        announce(JOBS)
        other(JOBS[:1])
        assert sorted(job.seed for job in queued(tmp_path)) == [0, 0, 1, 2]
        announce(JOBS[2:])
        other([])
        assert queued(tmp_path) == JOBS[2:]
    assert queued(tmp_path) == []
    assert list((tmp_path / "runs/.sweeps").iterdir()) == []


def test_a_sweep_that_was_killed_waits_for_nothing(tmp_path):
    text = f"""
import os
from pathlib import Path
from benchmarks.places.queue import announcing
from benchmarks.runs.job import Job
with announcing(Path({str(tmp_path)!r})) as announce:
    announce([Job("t", "a")])
    os._exit(9)
"""
    subprocess.run([sys.executable, "-c", text], check=False)
    assert queued(tmp_path) == []
    assert len(list((tmp_path / "runs/.sweeps").iterdir())) == 1
    with announcing(tmp_path):
        assert len(list((tmp_path / "runs/.sweeps").iterdir())) == 1  # the living one's
