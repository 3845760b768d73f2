"""The POPGym rules decided by hand-worked scores, through the real tables and the real claims file."""

import math
from pathlib import Path

import pytest

from analysis.claims import load_claims
from analysis.verdicts import load_verdicts, to_text
from benchmarks.catalog import get_task

CLAIMS = load_claims(Path(__file__).parents[2] / "reproduce" / "claims.yaml")
RULES = {claim.id: claim.rule for claim in CLAIMS}
PREFIX = "long_term_memory/popgym/"
RECALL = [f"{PREFIX}{name}" for name in ("CountRecallEasy", "RepeatPreviousEasy", "RepeatPreviousMedium")]
SIX = RULES["P1-laptop"].tasks


@pytest.fixture
def judged(tmp_path, write_run):
    """`judged(claim, {(task, agent): normalised scores of seeds 0, 1, ...})`"""

    def judge(claim, scores, **kwargs):
        for (task, agent), values in scores.items():
            random, high = get_task(task).random_return, get_task(task).high
            for seed, value in enumerate(values):
                write_run(task, agent, seed, random + value * (high - random), **kwargs)
        return {each.claim.id: each for each in load_verdicts(CLAIMS, tmp_path)}[claim]

    return judge


def alike(tasks, **values):
    return {(task, agent.replace("_", "-")): scores for task in tasks for agent, scores in values.items()}


def test_differences_are_on_the_scale_of_the_best_run(judged):
    # the best run of each task has 0.5, so 0.4 and 0.3 are 0.8 and 0.6 of it
    scores = alike(SIX, amago=[0.4] * 5, amago_naive=[0.3] * 5, amago_gru=[0.5])
    found = judged("P1-laptop", scores)
    assert found.outcome == "supported" and found.test.difference == pytest.approx(0.2)
    # a third agent that is three times as good makes the same returns 0.27 and 0.2
    found = judged("P1-laptop", {(task, "amago-memoryless"): [1.5] for task in SIX})
    assert found.outcome == "inconclusive" and found.test.difference == pytest.approx(1 / 15)
    assert "below the 0.1 that the rule asks for" in found.reason


def test_recall_is_corrected_over_the_three_laptop_comparisons(judged):
    found = judged("P5-laptop", alike(RECALL, amago=[0.8, 0.9], amago_gru=[0.1, 0.2]))
    # all of C(4, 2)^3 = 216 ways are below it, times the three comparisons of the figure at this tier
    assert found.test.p == pytest.approx(3 / 216) and found.outcome == "supported"


def test_a_task_without_a_run_of_one_agent_is_said(judged):
    found = judged("P5-laptop", alike(RECALL[:2], amago=[0.8, 0.9], amago_gru=[0.1]))
    assert found.outcome == "inconclusive" and found.reason == "no finished run of amago on RepeatPreviousMedium"


@pytest.mark.parametrize(
    ("returns", "outcome"),
    [
        ([0.6, 0.7, 0.6, 0.7, 0.65], "supported"),
        ([0.4, 0.3, 0.4, 0.3, 0.35], "contradicted"),
        ([0.5, 0.51, 0.49, 0.5, 0.5], "inconclusive"),
        ([0.6, 0.7, 0.6, 0.7, math.nan], "inconclusive"),  # a failed run leaves the mean open
        ([0.6, 0.7, 0.6, 0.7], "inconclusive"),  # too few
        ([0.6] * 5, "inconclusive"),  # no interval
    ],
)
def test_a_mean_over_tasks(judged, returns, outcome):
    found = judged("P3-laptop", alike(SIX, amago=returns))
    assert found.outcome == outcome, found.reason


def test_the_bounds_of_a_mean_by_hand(judged):
    # each task: variance 0.0025 of 5 seeds with mean 0.65; the six means add up to a variance of 0.0025 / 5 / 6 and
    # Satterthwaite's 24 degrees of freedom, t(0.95, 24) = 1.7109
    found = judged("P3-laptop", alike(SIX, amago=[0.6, 0.7, 0.6, 0.7, 0.65]))
    half = 1.7109 * math.sqrt(0.0025 / 5 / 6)
    assert found.reason == f"mean 0.650 [{0.65 - half:.3f}, {0.65 + half:.3f}], n = 30"
    assert "mean normalised over 6 tasks >= 0.5" in to_text([found])


def test_no_task_collapses(judged):
    scores = alike(SIX, amago=[0.5] * 5, amago_gru=[0.9])
    assert judged("P4-laptop", scores).outcome == "supported"  # 0.56 of the best run everywhere
    found = judged("P4-laptop", {(SIX[0], "amago-naive"): [1.1]})
    assert found.outcome == "inconclusive" and found.reason == "CountRecallEasy 0 of 5"


def test_the_naive_agent_collapses_on_five_tasks_more(judged):
    tasks = RULES["P4b"].tasks
    naive = {(task, "amago-naive"): [0.3 if i < 5 else 0.9] * 3 for i, task in enumerate(tasks)}
    found = judged("P4b", alike(tasks, amago=[1.0] * 3) | naive, tier="paper")
    assert found.outcome == "supported" and found.test.difference == pytest.approx(5 / 39)
