"""Which runs a sweep makes: the grid, and what of it is missing."""

import json

import pytest

from benchmarks.agents import parse_grid
from benchmarks.catalog import get_task
from benchmarks.runs.grid import grid, missing, shortened
from benchmarks.runs.job import Job
from benchmarks.runs.plan import plan
from results.errors import UserError

TASK = "long_term_memory/tmaze/passive-10"


def jobs(count):
    return [Job(TASK, "amago", "smoke", seed) for seed in range(count)]


# --- the grid ---


def test_every_combination_once_seed_by_seed():
    made = grid([TASK, TASK], ["amago", "random"], seeds=2)
    assert made == [Job(TASK, agent, "smoke", seed) for seed in (0, 1) for agent in ("amago", "random")]
    assert [job.seed for job in grid([TASK], ["amago"], "laptop")] == list(get_task(TASK).budget("laptop").seeds)
    assert [job.seed for job in grid([TASK], ["amago"], seeds=(7, 3))] == [7, 3]


def test_settings_multiply_and_have_one_name():
    settings = parse_grid(["lr=1e-4,3e-4", "discounts=(0.9,0.97),(0.99),()"])
    assert settings == {"lr": ["1e-4", "3e-4"], "discounts": ["0.9+0.97", "0.99", "+"]}
    made = [job.agent for job in grid([TASK], ["amago@lr=1,width=64"], seeds=1, settings=settings)]
    lists = ("0.9+0.97", "0.99", "+")
    assert made == [f"amago@discounts={each},lr={lr},width=64" for lr in ("1e-4", "3e-4") for each in lists]
    (python,) = grid([TASK], ["amago"], seeds=1, settings={"discounts": [(0.9, 0.97)], "lr": [0.1]})
    assert python.agent == "amago@discounts=0.9+0.97,lr=0.1"


@pytest.mark.parametrize(
    ("pairs", "says"),
    [(["lr"], "key=value"), (["lr=1,"], "key=value"), (["=1"], "key=value")],
)
def test_settings_of_another_form_are_refused(pairs, says):
    with pytest.raises(UserError, match=says):
        grid([TASK], ["amago"], settings=parse_grid(pairs))


def test_what_no_agent_can_play_is_left_out_and_said():
    said = []
    made = grid(["long_term_memory/tmaze/passive-1*"], ["oracle", "scripted"], "laptop", 1, say=said.append)
    assert {job.agent for job in made} == {"oracle"}
    budget, policy = said
    assert budget.startswith("left out, without a budget at the tier laptop: long_term_memory/tmaze/passive-1000")
    assert policy.startswith("left out, without such a policy: scripted on long_term_memory/tmaze/passive-10")
    with pytest.raises(UserError, match="there is no run to make"):
        grid([TASK], ["scripted"], say=said.append)


def test_a_long_list_of_names_is_shortened():
    assert shortened(["a", "b", "c"]) == "a, b, c"
    assert shortened(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"


# --- what is missing ---


def test_missing_counts_only_what_is_finished(tmp_path, run_row):
    from results.schema import Run
    from results.store import TableWriter, run_folder

    for seed, status in enumerate(("finished", "failed", "running")):
        folder = run_folder(tmp_path, "smoke", TASK, "amago", seed)
        folder.mkdir(parents=True)
        with TableWriter(folder / "runs.csv", "runs") as table:
            row: Run = run_row(jobs(3)[seed], status)
            table.append(row)
    assert [job.seed for job in missing(jobs(4) + jobs(1), tmp_path)] == [1, 2, 3]


def write_run(path, row):
    from results.store import TableWriter

    path.parent.mkdir(parents=True)
    with TableWriter(path, "runs") as table:
        table.append(row)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"budget.env_steps": 1}, r"budget.env_steps: 1 -> \d+"),
        ({"hyperparameters.width": 1}, r"hyperparameters.width: 1 -> \d+"),
        ({"protocol": "12345678"}, r'protocol: "12345678" -> "[0-9a-f]{8}"'),
    ],
)
def test_a_run_folder_with_another_configuration_is_refused(tmp_path, run_row, change, said):
    (job,) = jobs(1)
    folder = tmp_path / "runs" / "smoke" / TASK / "amago" / "seed-0"
    write_run(folder / "runs.csv", run_row(job, "finished", **change))
    with pytest.raises(UserError, match=rf"^{job.run_id} was made with another {said}; .*--replace.*--results$"):
        missing([job], tmp_path)


@pytest.mark.parametrize("where", ["runs/smoke/{}/amago/seed-{}", "reference/smoke"])
@pytest.mark.parametrize("status", ["finished", "failed"])
def test_with_replace_only_what_differs_is_made_anew(tmp_path, run_row, where, status):
    differs, same, absent = jobs(3)
    write_run(tmp_path / where.format(TASK, 0) / "runs.csv", run_row(differs, status, **{"hyperparameters.width": 1}))
    write_run(tmp_path / "runs/smoke" / TASK / "amago/seed-1/runs.csv", run_row(same, "interrupted"))
    again = Job(TASK, "amago", "smoke", 0, replace=True)
    assert missing([differs, same, absent], tmp_path, replace=True) == [again, same, absent]


def test_all_runs_that_are_refused_are_counted(tmp_path, run_row):
    for job in jobs(3):
        folder = tmp_path / "runs" / "smoke" / TASK / "amago" / f"seed-{job.seed}"
        write_run(folder / "runs.csv", run_row(job, "finished", **{"hyperparameters.width": 1}))
    with pytest.raises(UserError, match=r"^smoke:.*:amago:0 was made with another .*width: 1 .* \(and 2 more"):
        missing(jobs(3), tmp_path)


def test_another_number_of_threads_is_no_other_result(tmp_path, run_row):
    (job,) = jobs(1)
    write_run(tmp_path / "runs" / "smoke" / TASK / "amago" / "seed-0" / "runs.csv", run_row(job, "finished", threads=2))
    assert missing([job], tmp_path) == missing([job], tmp_path, replace=True) == []


def test_a_reference_run_with_another_configuration_counts_and_is_said(tmp_path, run_row):
    (job,) = jobs(1)
    change = {"hyperparameters.width": 1}
    write_run(tmp_path / "reference" / "smoke" / "runs.csv", run_row(job, "finished", **change))
    with pytest.warns(UserWarning, match=r"^1 of the reference runs were made with another configuration .*width: 1 "):
        assert missing([job, Job(TASK, "amago", "smoke", 1)], tmp_path) == [Job(TASK, "amago", "smoke", 1)]


@pytest.fixture
def run_row():
    from results.schema import Run

    def make(job, status, **changes):
        """A row of the job as it would be made now; `changes` are by key, with dots."""
        made = plan(job.task, job.agent, job.tier, job.seed).identity | changes
        config = {key: made[key] for key in ("budget", "hyperparameters", "settings", "threads")}
        for key, value in changes.items():
            part, _, name = key.partition(".")
            if name:
                config[part][name] = value
        return Run(
            run_id=job.run_id, protocol=made["protocol"], task=job.task, agent=job.agent, tier=job.tier, seed=job.seed,
            status=status, message="", commit="", dirty=False, config=json.dumps(config), env_steps=1, updates=0,
            tokens=0, parameters=None, collect_s=0.0, learn_s=0.0, evaluate_s=0.0, wall_s=1.0, peak_rss_mb=1.0,
            device="cpu", attention="", dtype="float32", threads=1, torch="", python="3.11",
            started="2026-01-01T00:00:00Z",
        )  # fmt: skip

    return make
