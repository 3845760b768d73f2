"""Renamed settings as a user meets them: old runs are found and stay finished, old names are refused with the new."""

import re
import shutil
import warnings

import pytest
import torch

from benchmarks import api
from benchmarks.runs.grid import missing
from benchmarks.runs.job import Job
from results.errors import UserError
from results.renames import RENAMED
from results.seal import NAME, seal
from results.store import COMMITTED, read_table

TASK = "long_term_memory/tmaze/passive-10"
NEW = "amago@corridor_epsilon=0.1,lr=1e-3,updates_per_iteration=1"
OLD = "amago@lr=1e-3,middle_epsilon=0.1,updates_per_iteration=1"
RUN = ["run", "--task", TASK, "--agent", NEW]


@pytest.fixture
def old_run(command, folder, tmp_path_factory):
    """The folder of a finished run, as it would be had the settings still had their old names."""
    made = tmp_path_factory.getbasetemp() / "old-run"
    parent = folder / "results/runs/smoke" / TASK
    if not made.exists():
        assert command(*RUN, "--quiet") == (0, "", "")
        for name in ("runs.csv", "curves.csv", "episodes.csv", "config.json"):
            path = parent / NEW / "seed-0" / name
            text = path.read_text().replace(NEW, OLD)
            for old, new in RENAMED.items():
                text = re.sub(rf'"{new}"', f'"{old}"', text)
            path.write_text(text)
        (parent / NEW / "seed-0" / "tasks.csv").unlink()  # runs did not state their task either
        seal(parent / NEW / "seed-0", ["runs.csv", "curves.csv", "episodes.csv", "config.json", "protocol.json"])
        shutil.copytree(parent / NEW, made)
        shutil.rmtree(parent / NEW)
    shutil.copytree(made, parent / OLD)
    return parent / OLD / "seed-0"


def is_one_line(result, *says):
    code, out, err = result
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert err.startswith("amago-bench: ")
    assert all(word in err for word in says), err


def test_a_run_finished_under_old_names_is_finished_and_found(command, old_run):
    before = {path: path.read_bytes() for path in old_run.rglob("*") if path.is_file()}
    assert '"target_rate"' in (old_run / "config.json").read_text()
    code, out, _ = command(*RUN)
    assert (code, f"is finished already: {old_run}" in out) == (0, True)
    sweep = command("sweep", "--task", TASK, "--agent", NEW, "--seeds", "1")
    assert sweep == (0, "nothing to run: all 1 runs are finished\n", "")
    run_id = f"smoke:{TASK}:{NEW}:0"
    assert re.search(rf"^{re.escape(run_id)} +finished ", command("status")[1], re.MULTILINE)
    assert NEW in command("table", "--agent", NEW)[1]
    said = command("evaluate", run_id, "--rollouts", "20")
    assert (said[0], said[2]) == (0, "")
    assert command("evaluate", str(old_run), "--rollouts", "20") == said
    assert before == {path: path.read_bytes() for path in old_run.rglob("*") if path.is_file()}
    assert api.load(TASK, NEW).folder == old_run
    assert command("merge", "--tier", "smoke")[1].startswith(f"{run_id}\n1 runs new")


def test_it_is_made_anew_in_its_place(command, old_run):
    assert command(*RUN, "--replace", "--quiet") == (0, "", "")
    assert not (old_run.parent.with_name(NEW)).exists()
    assert {row.agent for row in read_table(old_run / "runs.csv", "runs")} == {NEW}


def test_new_input_with_an_old_name_is_refused_with_the_new_one(command, folder):
    for old, new in RENAMED.items():
        says = f"the setting {old} is now called {new}"
        is_one_line(command("run", "--task", TASK, "--set", f"{old}=0.1"), says)
        is_one_line(command("run", "--task", TASK, "--agent", f"amago-gru@{old}=0.1"), says)
        is_one_line(command("sweep", "--task", TASK, "--agent", f"amago@{old}=0.1"), says)
        with pytest.raises(UserError, match=says):
            api.run(TASK, "amago", **{old: 0.1})
    assert not (folder / "results").exists()


def test_an_old_id_is_answered_with_the_new_one(command, old_run):
    is_one_line(command("evaluate", f"smoke:{TASK}:{OLD}:0"), f"did you mean smoke:{TASK}:{NEW}:0?")


def test_the_committed_rows_count_as_finished_and_not_as_changed_by_a_new_name(folder):
    shutil.copytree(COMMITTED / "reference", folder / "results" / "reference")
    jobs = [Job(TASK, agent, "laptop", seed) for agent in ("amago", "amago-gru") for seed in range(3)]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert missing(jobs, folder / "results") == []
    assert not [line for line in said for name in (*RENAMED, *RENAMED.values()) if f".{name}:" in str(line.message)]


def test_the_weights_of_an_older_agent_are_one_line(command, old_run):
    path = old_run / "checkpoint" / "agent.pt"
    weights = torch.load(path, weights_only=True)
    (old_run / "checkpoint" / NAME).unlink()
    for older in (
        {f"old_{name}": value for name, value in weights.items()},
        {name: torch.cat([value, value]) if value.ndim else value for name, value in weights.items()},
    ):
        torch.save(older, path)
        said = command("evaluate", str(old_run))
        is_one_line(said, "weights are those of another version", "its commit", "--replace")
