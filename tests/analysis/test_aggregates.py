"""Aggregates over tasks: the same tasks for all agents compared, by hand."""

import math

import pytest

from analysis import frames
from analysis.aggregates import over_tasks, render
from benchmarks.catalog import get_task

SUITE = "long_term_memory/popgym/"
EASY = [f"{SUITE}{name}Easy" for name in ("Autoencode", "Concentration", "CountRecall", "RepeatPrevious")]


@pytest.fixture
def write(write_run):
    def write(task, agent, scores, **kwargs):
        random, high = get_task(task).random_return, get_task(task).high
        for seed, score in enumerate(scores):
            write_run(task, agent, seed, random + score * (high - random), **kwargs)

    return write


def test_the_numbers_by_hand(write, tmp_path):
    for task, scores in zip(EASY, ([0.0, 0.2], [0.4, 0.6], [0.5, 0.7], [1.2, 1.0]), strict=True):
        write(task, "amago", scores)
    (row,) = over_tasks(frames.scores(tmp_path)).to_dict("records")
    assert (row["suite"], row["tasks"], row["n"], row["failed"]) == (SUITE[:-1], 4, 8, 0)
    assert row["iqm"] == pytest.approx((0.4 + 0.5 + 0.6 + 0.7) / 4)
    assert row["mean"] == pytest.approx(4.6 / 8)
    assert row["optimality_gap"] == pytest.approx((1 + 0.8 + 0.6 + 0.4 + 0.5 + 0.3) / 8)  # 1.2 makes up for nothing
    # variance 0.02 in each task, so 0.02 / 2 / 4 of the mean, with 4 degrees of freedom: t(0.975, 4) = 2.7764
    assert row["mean_high"] - row["mean"] == pytest.approx(2.7764 * math.sqrt(0.02 / 2 / 4), abs=1e-4)
    assert 0 < row["iqm_low"] < row["iqm"] < row["iqm_high"] < 1.2


def test_agents_are_compared_over_the_same_tasks(write, tmp_path):
    for task in EASY:
        write(task, "amago", [0.9 if task == EASY[0] else 0.1] * 2)
        write(task, "random", [0.0], updates=0)
    for task in EASY[:2]:
        write(task, "sb3-recurrent-ppo", [0.4, 0.4])
    write(EASY[0], "amago-gru", [0.3, 0.3])  # one task is no aggregate
    found = over_tasks(frames.scores(tmp_path))
    assert found[["tasks", "agent"]].to_numpy().tolist() == [[4, "amago"], [2, "amago"], [2, "sb3-recurrent-ppo"]]
    assert found["mean"].tolist() == pytest.approx([0.3, 0.5, 0.4])


def test_suites_tiers_and_tasks_without_a_scale_are_kept_apart(write, write_run, tmp_path):
    for task in EASY[:2]:
        write(task, "amago", [0.5, 0.6])
        write(task, "amago", [0.1, 0.2], tier="smoke")
    for corridor in (10, 30):
        write(f"long_term_memory/tmaze/passive-{corridor}", "amago", [1.0, 1.0])
    for name in ("A-v0", "B-v0"):
        write_run(f"foreign/gymnasium/{name}", "amago", 0, 100.0)
    found = over_tasks(frames.scores(tmp_path))
    assert sorted(zip(found["suite"], found["tier"], strict=True)) == [
        (SUITE[:-1], "laptop"), (SUITE[:-1], "smoke"), ("long_term_memory/tmaze", "laptop"),
    ]  # fmt: skip
    assert over_tasks(frames.scores(tmp_path, "laptop", "*tmaze*"))["mean"].tolist() == [1.0]


def test_failed_seeds_are_counted_and_a_second_configuration_is_not_mixed_in(write, write_run, tmp_path):
    for task in EASY[:2]:
        write(task, "amago", [0.5, 0.7, math.nan])
        for seed in (3, 4):
            write_run(task, "amago", seed, -5.0, config="another")
    (row,) = over_tasks(frames.scores(tmp_path)).to_dict("records")
    assert (row["n"], row["failed"], row["mean"]) == (6, 2, pytest.approx(0.6))


def test_text(write, tmp_path):
    assert render(over_tasks(frames.scores(tmp_path))) == ""
    for task in EASY[:2]:
        write(task, "amago", [0.5])
    found = render(over_tasks(frames.scores(tmp_path))).splitlines()
    assert found[1].split() == [SUITE[:-1], "laptop", "2", "amago", "2", "0", "0.500", "0.500", "0.500"]
    assert render(over_tasks(frames.scores(tmp_path)), "markdown").startswith("| over tasks | tier |")
