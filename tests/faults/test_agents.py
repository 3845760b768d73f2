"""What an agent must not do to its run."""

import os

import pytest

from results.store import read_table

TASK = "long_term_memory/tmaze/passive-10"


def statuses(folder):
    return [read_table(path, "runs")[-1].status for path in folder.rglob("runs.csv")]


def test_an_agent_that_exits_is_a_failed_run_in_one_line(command, folder):
    code, _, err = command("run", "--task", TASK, "--agent", "leaving:Exits")
    assert (code, err) == (2, "amago-bench: the agent or its environment called sys.exit(0); it must not\n")
    assert statuses(folder) == ["failed"]


@pytest.mark.parametrize(("agent", "says"), [("Exits", "called sys.exit(0)"), ("Dies", "ended before the run did")])
def test_a_sweep_judges_by_the_row_and_not_by_the_exit_code(command, agent, says):
    code, _, err = command("sweep", "--task", TASK, "--agent", f"leaving:{agent}", "--seeds", "1")
    assert code == 1
    assert says in err


def test_an_agent_that_changes_the_folder_writes_one_run(command, folder, monkeypatch):
    monkeypatch.setenv("AMAGO_BENCH_RESULTS", "here")
    code, _, err = command("run", "--task", TASK, "--agent", "leaving:Wanders")
    assert (code, err) == (0, "")
    assert os.listdir() == []  # where it went
    assert statuses(folder) == ["finished"]
