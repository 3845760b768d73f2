"""What was stored under the old names of settings is read under the new ones, and never rewritten."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from results import store
from results.renames import RENAMED, current_agent, current_identity, current_row
from results.schema import run_id
from results.store import load, merge_runs, read_table, run_folder
from results.tablefile import write_table

TASK = "long_term_memory/tmaze/passive-10"
OLD, NEW = "amago@lr=3e-4,middle_epsilon=0.1,target_rate=0.005", "amago@corridor_epsilon=0.1,lr=3e-4,tau=0.005"
OTHERS = ["my_module:MyAgent@edges=3", "sb3-ppo@target_rate=0.005", "amagolike@edges=3", "random", ""]


def config(**names: Any) -> str:
    return json.dumps({"hyperparameters": {"width": 64, **names}, "settings": names, "threads": 1})


def test_no_new_name_is_an_old_one() -> None:
    assert not set(RENAMED) & set(RENAMED.values())


@pytest.mark.parametrize(
    ("stored", "current"),
    [
        (OLD, NEW),
        (NEW, NEW),
        ("amago", "amago"),
        ("amago-gru@edges=1+3", "amago-gru@corridor_ends=1+3"),
        ("amago@critics=2,head_hidden=64+64", "amago@actor_critic_hidden=64+64,critics=2"),
        ("amago@head_activation=relu", "amago@actor_critic_activation=relu"),
        ("amago@edges_of=1,target_rates=2", "amago@edges_of=1,target_rates=2"),
        *((agent, agent) for agent in OTHERS),
    ],
)
def test_an_agent_id_reads_with_the_new_names_in_their_order(stored: str, current: str) -> None:
    assert current_agent(stored) == current


def test_an_identity_reads_with_the_new_names() -> None:
    stored = {"run_id": run_id("smoke", TASK, OLD, 3), "task": TASK, "agent": OLD, "tier": "smoke", "seed": 3}
    stored |= json.loads(config(target_rate=0.005, edges=[1, 3], head_hidden=[64], lr=3e-4))
    current = current_identity(stored)
    assert (current["agent"], current["run_id"]) == (NEW, run_id("smoke", TASK, NEW, 3))
    settings = {"tau": 0.005, "corridor_ends": [1, 3], "actor_critic_hidden": [64], "lr": 3e-4}
    assert current["hyperparameters"] == {"width": 64, **settings}
    assert current["settings"] == settings
    assert current_identity(current) == current
    assert (stored["agent"], "target_rate" in stored["settings"]) == (OLD, True)


@pytest.mark.parametrize("content", [{}, {"agent": 3}, {"agent": "amago", "settings": None}, {"agent": OTHERS[0]}])
def test_what_is_no_identity_of_ours_is_passed_on(content: dict[str, Any]) -> None:
    assert current_identity(content) == content


@pytest.mark.parametrize("table", ["episodes", "curves", "runs"])
@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_old_rows_read_as_new_ones(table: str, name: str, tmp_path: Path, rows: dict[str, Callable[..., Any]]) -> None:
    write_table(tmp_path / name, table, [rows[table](agent=OLD), rows[table](agent=OTHERS[0])])
    before = (tmp_path / name).read_bytes()
    assert read_table(tmp_path / name, table) == [rows[table](agent=NEW), rows[table](agent=OTHERS[0])]
    assert (tmp_path / name).read_bytes() == before


def test_the_configuration_of_a_row_reads_with_the_new_names(rows: dict[str, Callable[..., Any]]) -> None:
    old = rows["runs"](config=config(target_rate=0.005))
    assert json.loads(current_row(old).config) == json.loads(config(tau=0.005))
    for text in (config(tau=0.005), '{"target_rate":', '["target_rate"]'):  # nothing to do, and other programs' text
        assert current_row(rows["runs"](config=text)).config == text
    assert current_row(rows["runs"](agent=OTHERS[0], config=old.config)).config == old.config


def test_a_run_made_under_an_old_name_has_its_folder(tmp_path: Path, add_run: Callable[..., Path]) -> None:
    add_run(seed=0, agent=OLD)
    folder = next(tmp_path.glob("runs/**/seed-0"))
    assert folder.parent.name == OLD
    assert run_folder(tmp_path, "laptop", TASK, NEW, 0) == folder
    assert run_folder(tmp_path, "laptop", TASK, NEW, 1) == folder.parent.with_name(NEW) / "seed-1"
    assert run_folder(tmp_path, "laptop", TASK, "amago@tau=0.005", 0).parent.name == "amago@tau=0.005"
    assert [row.agent for row in load("runs", tmp_path, ("runs",))] == [NEW]


@pytest.mark.usefixtures("without_reference")
def test_a_run_counts_once_whatever_it_was_called_when(tmp_path: Path, add_run: Callable[..., Path]) -> None:
    add_run(agent=OLD)
    merge_runs(tmp_path, "laptop")
    assert merge_runs(tmp_path, "laptop") == []
    assert {row.agent for table in ("runs", "curves", "episodes") for row in load(table, tmp_path)} == {NEW}
    assert len(load("runs", tmp_path)) == 1
    folder = run_folder(tmp_path, "laptop", TASK, NEW, 0)
    folder.parent.rename(folder.parent.with_name(NEW))
    add_run(agent=OLD)
    with pytest.raises(store.UserError, match=f"{OLD}/.*, which belongs in .*{NEW}/seed-0; move the folder away"):
        load("runs", tmp_path)


def test_the_committed_rows_read_with_the_new_names() -> None:
    runs = [row for row in load("runs", store.COMMITTED, ("reference",)) if row.agent.startswith("amago")]
    assert len(runs) > 100
    for row in runs:
        names = json.loads(row.config)["hyperparameters"].keys()
        assert names >= set(RENAMED.values())
        assert not names & set(RENAMED)
