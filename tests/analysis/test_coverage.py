"""What the recommended intervals and tests promise, simulated for normal and for solved-or-not returns."""

import numpy as np
import pytest

from analysis import stats

pytestmark = pytest.mark.slow
REPEATS = 2000
SLACK = 2.5 * np.sqrt(0.05 * 0.95 / REPEATS)  # of a simulated 5 %


def normal(rng, tasks, seeds):
    centres, widths = rng.normal(0, 1, tasks), rng.uniform(0.2, 2, tasks)
    return centres, rng.normal(centres[:, None], widths[:, None], (REPEATS, tasks, seeds))


def two_point(rng, tasks, seeds):
    solved = rng.uniform(0.1, 0.95, tasks)
    return solved, (rng.random((REPEATS, tasks, seeds)) < solved[:, None]).astype(float)


@pytest.mark.parametrize("n", [1, 3, 5, 10])
@pytest.mark.parametrize("p", [0.05, 0.2, 0.5, 0.8, 0.95])
def test_binomial_interval_of_a_share(n, p):
    counts = np.random.default_rng(n).binomial(n, p, REPEATS)
    intervals = {k: stats.share_interval(k, n) for k in range(n + 1)}
    covered = np.mean([intervals[k].low <= p <= intervals[k].high for k in counts])
    assert covered >= 0.95 - SLACK


@pytest.mark.parametrize("returns", [normal, two_point])
@pytest.mark.parametrize(("tasks", "seeds"), [(20, 3), (39, 3), (39, 5)])
def test_stratified_t_of_many_tasks(returns, tasks, seeds):
    truth, samples = returns(np.random.default_rng(7), tasks, seeds)
    names = [f"t{i}" for i in range(tasks)]
    covered = []
    for sample in samples:
        estimate = stats.stratified_mean(stats.Scores.of(dict(zip(names, sample, strict=True)), failed="error"))
        covered.append(estimate.low <= truth.mean() <= estimate.high)
    assert np.mean(covered) >= 0.95 - SLACK


def test_students_t_is_not_recommended_for_three_solved_or_not_returns():
    """The reason for the rule: at p = 0.8 half of the samples are all equal, and the rest is what t covers."""
    sample = np.random.default_rng(3).random((REPEATS, 3)) < 0.8
    intervals = [stats.mean_interval(row.astype(float), failed="error") for row in sample]
    covered = np.mean([i.low is not None and i.low <= 0.8 <= i.high for i in intervals])
    assert covered == pytest.approx(0.48, abs=0.04)  # 1 - 0.8^3 - 0.2^3


@pytest.mark.parametrize("kind", ["normal", "two points", "skewed"])
@pytest.mark.parametrize("shape", [(5, 1), (5, 2)])
def test_false_alarms_of_the_permutation_test(kind, shape):
    seeds, tasks = shape
    rng = np.random.default_rng(11)
    draw = {
        "normal": lambda: rng.normal(size=(2, tasks, seeds)),
        "two points": lambda: (rng.random((2, tasks, seeds)) < 0.6).astype(float),
        "skewed": lambda: rng.exponential(size=(2, tasks, seeds)) ** 2,
    }[kind]
    alarms = 0
    for _ in range(1000):
        first, second = draw()
        arms = [{str(t): arm[t] for t in range(tasks)} for arm in (first, second)]
        alarms += stats.permutation_test(*arms).p <= 0.05
    assert alarms / 1000 <= 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / 1000)


def test_false_alarms_when_drawn_and_not_enumerated():
    rng = np.random.default_rng(13)
    alarms = [
        stats.permutation_test({"a": rng.normal(size=12)}, {"a": rng.normal(size=12)}, limit=199, seed=i).p <= 0.05
        for i in range(REPEATS)
    ]
    assert np.mean(alarms) <= 0.05 + SLACK
