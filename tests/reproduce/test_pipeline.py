import os
import time

import pytest

from analysis.figures import FIGURES
from benchmarks.catalog import get_task
from reproduce.pipeline import jobs, refresh

NAME = "passive-tmaze"


def test_jobs_go_seed_by_seed_and_each_stands_once():
    wanted = jobs([NAME, NAME], "laptop")
    assert len(set(wanted)) == len(wanted) == 3 * (5 + 5 + 5 + 3)
    assert [job.seed for job in wanted] == sorted(job.seed for job in wanted)
    assert len(jobs([NAME], "laptop", seeds=2)) == 3 * 4 * 2


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("tier", ["smoke", "laptop", "paper"])
def test_every_figure_asks_for_runs_that_can_be_made(name, tier):
    for job in jobs([name], tier):
        get_task(job.task).budget(tier)


def test_refresh_writes_once_and_again_when_a_table_changes(tmp_path):
    files, fresh = refresh(NAME, "smoke", tmp_path)
    assert fresh
    assert [path.name for path in files] == [f"{NAME}-smoke.{kind}" for kind in ("png", "pdf", "csv", "md")]
    assert refresh(NAME, "smoke", tmp_path) == (files, False)
    files[1].unlink()
    assert refresh(NAME, "smoke", tmp_path)[1]
    folder = tmp_path / "reference/smoke"
    folder.mkdir(parents=True)
    (folder / "protocols.csv").touch()
    os.utime(folder / "protocols.csv", (time.time() + 5,) * 2)
    assert refresh(NAME, "smoke", tmp_path)[1]
