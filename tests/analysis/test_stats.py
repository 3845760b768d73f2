"""Statistics against numbers worked out by hand."""

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import t as student

from analysis import stats
from analysis.stats import Scores

NAN = math.nan


def scores(failed="error", **runs):
    return Scores.of(runs, failed=failed)


# --- one task


def test_share_interval_by_hand():
    all_five = stats.share_interval(5, 5)
    assert (all_five.value, all_five.high) == (1.0, 1.0)
    assert all_five.low == pytest.approx(0.025 ** (1 / 5))  # P(5 of 5 | p) = p^5 = 0.025
    none = stats.share_interval(0, 3, confidence=0.9)
    assert none.low == 0.0 and none.high == pytest.approx(1 - 0.05 ** (1 / 3))
    assert stats.share_interval(1, 2).low == pytest.approx(1 - math.sqrt(0.975))  # P(X >= 1) = 1 - (1 - p)^2 = 0.025


def test_share_interval_counts_failures_in_n():
    share = stats.share_interval(2, 4, failed=2)
    assert (share.value, share.n, share.failed, share.kind) == (0.5, 4, 2, "binomial")
    with pytest.raises(ValueError, match="impossible"):
        stats.share_interval(3, 4, failed=2)
    assert stats.share_interval(0, 0).kind == "empty"


def test_mean_interval_by_hand():
    # 1, 2, 3: mean 2, standard error 1 / sqrt(3), t(0.975, 2) = 4.3027
    interval = stats.mean_interval([1, 2, 3], failed="error")
    assert interval.low == pytest.approx(2 - 4.30265 / math.sqrt(3), abs=1e-4)
    assert interval.high == pytest.approx(2 + 4.30265 / math.sqrt(3), abs=1e-4)
    assert (interval.n, interval.kind) == (3, "t")


@pytest.mark.parametrize(("values", "kind"), [([], "empty"), ([2.0], "single"), ([1.0, 1.0, 1.0], "degenerate")])
def test_no_interval_where_there_is_none(values, kind):
    interval = stats.mean_interval(values, failed="error")
    assert (interval.low, interval.high, interval.kind) == (None, None, kind)


def test_failed_seeds_follow_an_explicit_policy():
    values = [1, NAN, 3]
    excluded = stats.mean_interval(values, failed="exclude")
    assert (excluded.value, excluded.n, excluded.failed) == (2.0, 2, 1)
    with pytest.raises(ValueError, match="1 of 3 runs failed"):
        stats.mean_interval(values, failed="error")
    with pytest.raises(ValueError, match="infinite"):
        stats.mean_interval([1, math.inf], failed="exclude")


# --- runs x tasks


def test_aggregates_by_hand():
    s = scores(a=[0, 1], b=[0.5, 0.5], c=[2, 4])
    assert stats.mean(s) == pytest.approx((0.5 + 0.5 + 3) / 3)
    assert stats.median(s) == 0.5
    # sorted 0 .5 .5 1 2 4, a sixth each: the middle half takes half of the first .5, the second .5, 1, half of 2
    assert stats.interquartile_mean(s) == pytest.approx((0.25 + 0.5 + 1 + 1) / 3)
    assert stats.optimality_gap(s) == pytest.approx((1 + 0 + 0.5 + 0.5 + 0 + 0) / 6)
    assert stats.performance_profile(s, [0, 0.5, 3]) == pytest.approx([5 / 6, 3 / 6, 1 / 6])


def test_every_task_weighs_the_same_however_many_runs_it_has():
    s = scores(a=[1, 1, 1, 1, 1, 1], b=[0])
    assert stats.mean(s) == pytest.approx(0.5)
    assert stats.interquartile_mean(s) == pytest.approx(0.5)
    assert stats.performance_profile(s, [0.5]) == pytest.approx([0.5])


def test_interquartile_mean_is_the_trimmed_mean_where_four_divides_n():
    values = np.random.default_rng(0).normal(size=8)
    assert stats.interquartile_mean(scores(a=values)) == pytest.approx(np.sort(values)[2:6].mean())


def test_probability_of_improvement_by_hand():
    better, worse = scores(a=[1, 2], b=[0, 0]), scores(a=[1, 0, 3], b=[0, 0])
    # a: 1 beats 0, ties 1, loses to 3; 2 beats 1 and 0, loses to 3: 3.5 of 6. b: all ties
    assert stats.probability_of_improvement(better, worse) == pytest.approx((3.5 / 6 + 0.5) / 2)
    assert stats.probability_of_improvement(worse, better) == pytest.approx(1 - (3.5 / 6 + 0.5) / 2)
    with pytest.raises(ValueError, match="same tasks"):
        stats.probability_of_improvement(better, scores(a=[1]))


def test_a_task_without_runs_is_an_error():
    with pytest.raises(ValueError, match="task b has no run"):
        scores(a=[1], b=[NAN], failed="exclude")
    assert scores(a=[1, NAN], failed="exclude").failed == 1


def test_stratified_mean_by_hand():
    # a: s^2 = 2, n = 2; b: s^2 = 1, n = 3. Parts of the variance: 2 / 2 / 4 = 1/4 and 1 / 3 / 4 = 1/12
    interval = stats.stratified_mean(scores(a=[0, 2], b=[4, 5, 6]))
    freedom = (1 / 4 + 1 / 12) ** 2 / ((1 / 4) ** 2 / 1 + (1 / 12) ** 2 / 2)
    half = student.ppf(0.975, freedom) * math.sqrt(1 / 4 + 1 / 12)
    assert interval.value == pytest.approx(3.0)
    assert (interval.low, interval.high) == (pytest.approx(3 - half), pytest.approx(3 + half))
    assert (interval.n, interval.kind) == (5, "stratified t")


def test_stratified_mean_of_one_task_is_students():
    values = [1.0, 4.0, 2.0, 7.0]
    one, many = stats.mean_interval(values, failed="error"), stats.stratified_mean(scores(a=values))
    assert (many.low, many.high) == (pytest.approx(one.low), pytest.approx(one.high))


@pytest.mark.parametrize("interval", [stats.stratified_mean, lambda s: stats.bootstrap(s, stats.mean)])
def test_aggregates_without_an_interval(interval):
    assert interval(scores(a=[1, 2], b=[1])).kind == "single"
    assert interval(scores(a=[0.1] * 3, b=[0.7] * 3)).kind == "degenerate"  # 0.1 is not the mean of three of it


def test_bootstrap_is_seeded_and_draws_within_tasks():
    s = scores(a=[0, 1, 2], b=[10, 20])
    first, again = (stats.bootstrap(s, stats.interquartile_mean) for _ in range(2))
    assert first == again
    assert stats.bootstrap(s, stats.mean, seed=1, draws=99) != stats.bootstrap(s, stats.mean, draws=99)
    extremes = stats.bootstrap(s, stats.mean, confidence=1.0)
    assert (extremes.low, extremes.high) == (5.0, 11.0)  # never a run of one task in the place of the other's


@pytest.mark.parametrize(
    "statistic", [stats.mean, stats.median, stats.interquartile_mean, stats.optimality_gap], ids=lambda f: f.__name__
)
def test_statistics_are_the_same_one_by_one_and_stacked(statistic):
    one = scores(a=[0, 1, 2], b=[10, 20])
    other = Scores(one.tasks, one.task, one.values[::-1].copy())
    stacked = Scores(one.tasks, one.task, np.stack([one.values, other.values]))
    assert statistic(stacked) == pytest.approx([statistic(one), statistic(other)])


# --- two agents


def test_permutation_by_hand():
    test = stats.permutation_test({"a": [3, 4]}, {"a": [1, 2]})
    assert (test.p, test.smallest_p, test.difference, test.kind) == (pytest.approx(1 / 6), 1 / 6, 2.0, "exact")
    # 2, 4 against 1, 3: of the six pairs only {3, 4} and {2, 4} sum to 6 or more
    assert stats.permutation_test({"a": [2, 4]}, {"a": [1, 3]}).p == pytest.approx(2 / 6)
    assert stats.permutation_test({"a": [1, 1]}, {"a": [1, 1]}).p == 1.0
    assert stats.permutation_test({"a": [0.1 + 0.2] * 5}, {"a": [0.3] * 5}).p > 0.003  # one of 252


def test_permutation_stays_within_tasks():
    # pooled, 10 and 11 against 0 and 1 would be sure; each task alone gives one of two ways
    test = stats.permutation_test({"a": [1], "b": [11]}, {"a": [0], "b": [10]})
    assert (test.p, test.n) == (1 / 4, (2, 2))


def test_five_against_five_is_enough_and_three_against_three_is_not():
    five = stats.permutation_test({"a": [1.0] * 5}, {"a": [0.0] * 5})
    three = stats.permutation_test({"a": [1.0] * 3}, {"a": [0.0] * 3})
    assert (five.p, three.p) == (pytest.approx(1 / 252), pytest.approx(1 / 20))


@pytest.mark.parametrize("draw", [lambda rng: rng.normal(size=5), lambda rng: rng.integers(2, size=5)])
def test_no_more_false_alarms_than_stated(draw):
    """Agents that are the same, with returns spread or solved-or-not: 5 % of the comparisons find one above."""
    rng = np.random.default_rng(0)
    found = [stats.permutation_test({"a": draw(rng)}, {"a": draw(rng)}).p <= 0.05 for _ in range(1000)]
    assert np.mean(found) <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 1000)
    # A share of exactly a half, on all outcomes of 5 to 12 seeds: the bound that decides is above it no more often.
    for n in range(5, 13):
        above = [k for k in range(n + 1) if stats.share_interval(k, n, confidence=0.9).low > 0.5]
        assert 0 < sum(math.comb(n, k) for k in above) / 2**n <= 0.05


def test_a_failed_run_counts_against_the_claim():
    test = stats.permutation_test({"a": [5, NAN]}, {"a": [1, NAN]})  # becomes 5, 1 against 1, 5
    assert (test.difference, test.failed) == (0.0, (1, 1))
    with pytest.raises(ValueError, match="task a has no finished runs"):
        stats.permutation_test({"a": [NAN]}, {"a": [NAN]})
    with pytest.raises(ValueError, match="task a has no finished runs"):
        stats.permutation_test({"a": []}, {"a": [1]})


def test_monte_carlo_agrees_with_enumeration_and_never_says_zero():
    rng = np.random.default_rng(1)
    better = {task: rng.normal(0.6, 1, 5) for task in "ab"}
    worse = {task: rng.normal(0.0, 1, 5) for task in "ab"}
    exact = stats.permutation_test(better, worse)
    drawn = stats.permutation_test(better, worse, limit=20_000)
    assert (exact.kind, drawn.kind) == ("exact", "monte carlo")
    assert drawn.p == pytest.approx(exact.p, abs=4 * math.sqrt(exact.p / 20_000))
    assert drawn == stats.permutation_test(better, worse, limit=20_000)
    sure = stats.permutation_test({"a": np.arange(12) + 100.0}, {"a": np.arange(12)}, limit=1000)
    assert sure.p == sure.smallest_p == 1 / 1001


def test_holm_by_hand():
    assert stats.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert stats.holm([0.9, 0.8]) == [1.0, 1.0]
    assert stats.holm([]) == []


def test_the_statistics_need_numpy_and_scipy_only():
    code = "import sys, analysis.stats; print(*sorted({m.split('.')[0] for m in sys.modules} & set(sys.argv[1:])))"
    others = ["pandas", "arch", "rliable", "statsmodels", "sklearn", "matplotlib", "seaborn", "torch"]
    said = subprocess.run([sys.executable, "-c", code, *others], capture_output=True, text=True, check=True)
    assert said.stdout == "\n"
