"""The commands that report: what they print, and what they say where there is nothing."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from analysis.frames import FIRST_TUNING_SEED
from reproduce.commands.report import figure, merge, table, verdicts
from results.schema import Run, run_id
from results.store import TableWriter, run_folder

TASK = "long_term_memory/tmaze/passive-10"
ZEROS = dict.fromkeys(
    ["env_steps", "updates", "tokens", "collect_s", "learn_s", "evaluate_s", "wall_s", "peak_rss_mb"], 0
)
TEXTS = dict.fromkeys(["message", "commit", "config", "device", "attention", "dtype", "torch", "python"], "")


def write_failed_run(root: Path, agent: str, seed: int = 0) -> None:
    run = Run(
        **ZEROS, **TEXTS, run_id=run_id("laptop", TASK, agent, seed), protocol="abcd1234", task=TASK, agent=agent,
        tier="laptop", seed=seed, status="failed", dirty=False, parameters=None, threads=1,
        started="2025-01-01T00:00:00Z",
    )  # fmt: skip
    with TableWriter(run_folder(root, "laptop", TASK, agent, seed) / "runs.csv", "runs") as writer:
        writer.append(run)


@pytest.fixture
def root(tmp_path: Path, without_reference: None) -> Path:
    for agent in ("amago", "random"):
        write_failed_run(tmp_path, agent)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--agent", "amgo"], "no runs of the agent 'amgo' there; did you mean amago?"),
        (["--agent", "xyz"], "no runs of the agent 'xyz' there; there are amago, random"),
        (["--task", "long_term_memory/tmaze/pasive-10"], f"did you mean {TASK}?"),
        (["--task", "popgym/*"], f"no runs of a task 'popgym/*'; there are {TASK}"),
    ],
)
def test_a_filter_that_matches_nothing(root, arguments, said):
    found = CliRunner().invoke(table, ["--results", str(root), *arguments])
    assert found.exit_code == 1 and said in found.stderr and found.stdout == ""


def test_one_of_two_agents_is_shown_and_the_other_is_said(root):
    found = CliRunner().invoke(table, ["--results", str(root), "--agent", "amago", "--agent", "xyz"])
    assert found.exit_code == 0 and "no runs of the agent 'xyz'" in found.stderr and TASK in found.stdout


def test_what_matches_and_what_has_not_run_at_all_is_no_error(root):
    assert CliRunner().invoke(table, ["--results", str(root), "--agent", "amago"]).exit_code == 0
    shutil.rmtree(root / "runs")
    assert CliRunner().invoke(table, ["--results", str(root), "--agent", "amago"]).output == "no runs match\n"


def test_tuning_seeds_are_left_out_with_a_word_and_shown_when_asked_for(tmp_path, without_reference):
    write_failed_run(tmp_path, "amago", FIRST_TUNING_SEED)
    shared = ["--results", str(tmp_path)]
    without, asked = CliRunner().invoke(table, shared), CliRunner().invoke(table, [*shared, "--tuning"])
    assert without.stdout == "no runs match\n"
    assert "1 run left out: seeds from 1000 on are for tuning; --tuning shows them" in without.stderr
    assert TASK in asked.stdout and asked.stderr == ""
    write_failed_run(tmp_path, "amago")  # a result beside it
    assert "1 run left out" in CliRunner().invoke(table, shared).stderr


def test_aggregates_and_memory_spans_follow_the_table(root):
    shared = ["--tier", "laptop", "--task", "long_term_memory/tmaze/*"]
    found = CliRunner().invoke(table, shared)  # the committed reference results
    assert found.exit_code == 0
    heads = [line.split("  ")[0] for line in found.stdout.splitlines() if line.startswith(("task ", "over", "memory"))]
    assert heads == ["task", "over tasks", "memory span"]
    for other in (["--format", "csv"], ["--metric", "success"]):
        assert "over tasks" not in CliRunner().invoke(table, [*shared, *other]).stdout


@pytest.mark.parametrize(
    "arguments", [[figure, "popgym", "--tier", "smoke"], [table], [verdicts], [merge]], ids=lambda a: a[0].name
)
def test_a_results_folder_that_is_not_there_is_an_error_and_is_not_made(tmp_path, arguments):
    command, *rest = arguments
    found = CliRunner().invoke(command, [*rest, "--results", str(tmp_path / "nosuch")])
    assert found.exit_code == 2 and "nosuch' does not exist" in found.stderr and found.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_figure_is_told_with_its_caption(tmp_path):
    found = CliRunner().invoke(figure, ["popgym", "--tier", "smoke", "--results", str(tmp_path)])
    assert found.exit_code == 0
    said = [" ".join(part.split()) for part in found.stdout.split("\n\n")]
    for i, name in enumerate(("popgym-smoke", "popgym-curves-smoke", "popgym-recall-smoke")):
        files = [tmp_path / "figures" / f"{name}.{end}" for end in ("png", "pdf", "csv", "md")]
        assert said[2 * i : 2 * i + 2] == [" ".join(map(str, files)), files[-1].read_text().strip()]
