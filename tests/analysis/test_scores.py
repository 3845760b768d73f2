"""Common scales, worked by hand."""

import math

import pandas as pd
import pytest

from analysis import frames, scores

NAN = math.nan
TASK = "long_term_memory/popgym/RepeatPreviousEasy"  # random -0.5, high 1


def test_normalised(write_run, tmp_path):
    for seed, value in enumerate([-0.5, 0.25, 1.0, NAN]):
        write_run(TASK, "amago", seed, value)
    write_run("foreign/gymnasium/CartPole-v1", "amago", 0, 500.0)
    found = scores.with_normalised(frames.scores(tmp_path)).set_index(["task", "seed"])["normalised"]
    assert found[TASK].tolist()[:3] == [0.0, 0.5, 1.0] and math.isnan(found[TASK, 3])
    assert math.isnan(found["foreign/gymnasium/CartPole-v1", 0])  # no known scale


def test_relative_and_collapsed(write_run, tmp_path):
    for agent, value in [("amago", 0.25), ("amago-naive", -0.2), ("amago-gru", -0.8), ("mine:Agent", 1.0)]:
        write_run(TASK, agent, 0, value)
    runs = scores.with_claim_metrics(frames.scores(tmp_path), ["amago", "amago-naive", "amago-gru"])
    found = runs.set_index("agent")[["relative", "collapsed"]]
    # normalised 0.5, 0.2, -0.2 and 1; the best of the figure's agents has 0.5
    assert found["relative"].to_dict() == pytest.approx(
        {"amago": 1.0, "amago-naive": 0.4, "amago-gru": 0.0, "mine:Agent": 2.0}
    )
    assert found.loc["amago", "collapsed"] == 0 and found.loc["amago-gru", "collapsed"] == 1


def test_what_nobody_learns_is_not_stretched(write_run, tmp_path):
    for agent, value in [("amago", -0.485), ("amago-naive", -0.515)]:  # normalised 0.01 and -0.01
        write_run(TASK, agent, 0, value)
    runs = scores.with_claim_metrics(frames.scores(tmp_path), ["amago", "amago-naive"]).set_index("agent")
    assert runs["relative"].to_dict() == pytest.approx({"amago": 0.1, "amago-naive": 0.0})
    assert (runs["collapsed"] == 1).all()


def test_nobody_is_better_than_random_and_a_failed_run(write_run, tmp_path):
    for seed, value in enumerate([-0.6, NAN]):
        write_run(TASK, "amago", seed, value)
    runs = scores.with_claim_metrics(frames.scores(tmp_path), ["amago"])
    assert runs["relative"][0] == 0 and runs["collapsed"][0] == 1
    assert runs[["relative", "collapsed"]].loc[1].isna().all()


def test_standardised_by_the_papers_rule():
    means = pd.DataFrame(
        {"a": [1.0, 0.0, 2.0, 3.0], "b": [0.0, 0.0, NAN, 3.0], "c": [0.25, 0.0, NAN, NAN]}, index=list("wxyz")
    )
    found = scores.standardised(means)
    assert found.loc["w"].tolist() == [1.0, 0.0, 0.25]
    assert found.loc[["x", "y", "z"]].isna().all(axis=None)  # all equal, one method, and both
