"""Budgets of one's own: part of the agent's id, and nothing that the agent itself is told as a setting."""

import json

import pytest

from benchmarks.runs.grid import grid
from benchmarks.runs.plan import plan
from results.errors import UserError

TASK = "long_term_memory/tmaze/passive-10"


def test_an_override_changes_the_budget_and_the_id_and_no_hyperparameter(tmp_path):
    own = plan(TASK, "amago@steps=500,lr=1e-3", settings={"num_envs": "4"}, root=tmp_path)
    tiers = plan(TASK, "amago@lr=1e-3", root=tmp_path)
    assert own.agent == "amago@lr=1e-3,num_envs=4,steps=500"
    assert (own.budget.env_steps, own.budget.num_envs) == (500, 4) and own.budget.seeds == tiers.budget.seeds
    assert own.config["budget"]["env_steps"] == 500
    assert own.config["hyperparameters"] == tiers.config["hyperparameters"]
    assert own.protocol == tiers.protocol, "it plays the same task"
    assert own.identity != tiers.identity and own.folder != tiers.folder
    json.dumps(own.identity)


def test_an_agent_without_settings_has_a_budget_too(tmp_path):
    assert plan(TASK, "random@evaluations=3", root=tmp_path).budget.evaluations == 3
    (job,) = grid([TASK], ["random"], seeds=1, settings={"evaluations": ["3"]})
    assert job.agent == "random@evaluations=3"


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "many", "٣"])
@pytest.mark.parametrize("make", [plan, lambda task, agent: grid([task], [agent])])
def test_what_is_no_number_of_steps_is_one_line(make, value):
    with pytest.raises(UserError, match=rf"^steps is '{value}'; it must be a whole number from 1 on$"):
        make(TASK, f"amago@steps={value}")
