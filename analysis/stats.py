"""Estimates, intervals and tests that hold at a handful of seeds. Standard practice after Agarwal et al. (2021).

A sample is always one number a **run** (seed), never one an episode. A run that failed is NaN, and every function that
meets one takes the policy `failed`: "exclude" leaves it out and counts it, "error" raises. Which interval for what:

- the share of seeds that solve a task: `share_interval`, exact for any n;
- a mean over many tasks: `stratified_mean`, Satterthwaite's t;
- one task's mean return: `mean_interval`, Student's t, honest for roughly normal returns only (a few solved-or-not
  returns are covered far less often than it says);
- other aggregates over many tasks: `bootstrap`, which is too narrow at few runs;
- two agents: `permutation_test`, exact for any distribution, `holm` over the tests of a figure.

One run, or runs that are all equal, have no interval: the kind is `single` or `degenerate` and the bounds are None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, prod
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, stdtrit  # scipy.stats has the same and takes a second to import

Floats = NDArray[np.float64]
Failed = Literal["error", "exclude"]
Kind = Literal["binomial", "t", "stratified t", "bootstrap", "single", "degenerate", "empty"]


@dataclass(frozen=True)
class Estimate:
    """A number with its interval, from `n` runs; `failed` runs had failed (the policy decides whether `n` has them)."""

    value: float | None
    low: float | None
    high: float | None
    n: int
    failed: int
    kind: Kind
    confidence: float = 0.95


@dataclass(frozen=True)
class Comparison:
    """A one-sided test that `better` is above `worse`. `p` can be no smaller than `smallest_p` at these n."""

    difference: float  # mean over tasks of the difference of means
    p: float
    smallest_p: float
    n: tuple[int, int]
    failed: tuple[int, int]
    kind: Literal["exact", "monte carlo"]


def _scores(values: ArrayLike) -> Floats:
    """The values, NaN for failed runs. Raises ValueError if one is infinite."""
    array = np.asarray(values, dtype=float)
    if np.isinf(array).any():
        raise ValueError("a score is infinite; find out why before it is averaged")
    return array


def _without_failures(values: ArrayLike, failed: Failed) -> tuple[Floats, int]:
    """The values with the policy applied to NaN, and how many were NaN."""
    array = _scores(values)
    bad = np.isnan(array)
    if bad.any() and failed == "error":
        raise ValueError(f"{bad.sum()} of {bad.size} runs failed (NaN); run them again, or choose failed='exclude'")
    return array[~bad], int(bad.sum())


# --- one task -------------------------------------------------------------------------------------------------------


def share_interval(successes: int, n: int, *, failed: int = 0, confidence: float = 0.95) -> Estimate:
    """Share of runs that succeeded, with the exact (Clopper-Pearson) interval; each side errs (1 - confidence) / 2.

    Failed runs are part of `n` and no successes.
    """
    if not 0 <= successes <= n - failed:
        raise ValueError(f"{successes} successes of {n} runs, {failed} of them failed, is impossible")
    if n == 0:
        return Estimate(None, None, None, 0, 0, "empty", confidence)
    side = (1 - confidence) / 2
    low = float(betaincinv(successes, n - successes + 1, side)) if successes else 0.0
    high = float(betaincinv(successes + 1, n - successes, 1 - side)) if successes < n else 1.0
    return Estimate(successes / n, low, high, n, failed, "binomial", confidence)


def mean_interval(values: ArrayLike, *, failed: Failed, confidence: float = 0.95) -> Estimate:
    """Mean of one task's runs with Student's t interval. Read the module's warning on solved-or-not returns."""
    sample, failures = _without_failures(values, failed)
    value = float(sample.mean()) if sample.size else None
    if (kind := _no_interval(sample)) is not None:
        return Estimate(value, None, None, sample.size, failures, kind, confidence)
    half = stdtrit(sample.size - 1, (1 + confidence) / 2) * sample.std(ddof=1) / np.sqrt(sample.size)
    return Estimate(value, float(value - half), float(value + half), sample.size, failures, "t", confidence)


def _no_interval(sample: Floats) -> Kind | None:
    if sample.size <= 1:
        return "single" if sample.size else "empty"
    return "degenerate" if np.ptp(sample) == 0 else None


# --- runs x tasks ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scores:
    """The runs of one agent on several tasks, with any number of runs per task.

    `values[..., M]` holds all runs one after another, `task[M]` the index of the task of each. Leading axes are
    bootstrap draws. Every task weighs the same, whatever its number of runs. Made from labelled rows only, so that
    runs and tasks cannot be taken for each other.
    """

    tasks: tuple[str, ...]
    task: NDArray[np.intp]
    values: Floats
    failed: int = 0

    @classmethod
    def of(cls, runs: Mapping[str, ArrayLike], *, failed: Failed) -> Scores:
        """From task -> its runs. Raises ValueError for a task without runs (a missing task would shift every mean)."""
        parts = [_without_failures(values, failed) for values in runs.values()]
        if empty := [name for name, (values, _) in zip(runs, parts, strict=True) if not values.size]:
            raise ValueError(f"task {empty[0]} has no run that could be averaged")
        if not parts:
            raise ValueError("no tasks to aggregate")
        sizes = [values.size for values, _ in parts]
        task = np.repeat(np.arange(len(parts)), sizes)
        return cls(tuple(runs), task, np.concatenate([values for values, _ in parts]), sum(n for _, n in parts))

    @property
    def counts(self) -> NDArray[np.intp]:
        """Runs of each task, [T]."""
        return np.bincount(self.task, minlength=len(self.tasks))

    @property
    def first(self) -> NDArray[np.intp]:
        """Where the runs of each task begin, [T]."""
        return np.cumsum(self.counts) - self.counts

    @property
    def constant(self) -> bool:
        """Whether the runs of each task are all equal; a sum of squares would miss it by rounding."""
        return bool((self.values == self.values[..., self.first[self.task]]).all())

    @property
    def weights(self) -> Floats:
        """Weight of each run, [M]: the same for each task, summing to 1."""
        return 1 / (self.counts[self.task] * len(self.tasks))

    def task_means(self) -> Floats:
        """Mean of each task, [..., T]."""
        return self.values @ (np.eye(len(self.tasks))[self.task] / self.counts)


def mean(scores: Scores) -> Floats:
    """Mean over tasks, [...]."""
    return scores.values @ scores.weights


def median(scores: Scores) -> Floats:
    """Median over tasks of each task's mean, [...]."""
    return np.median(scores.task_means(), axis=-1)


def interquartile_mean(scores: Scores) -> Floats:
    """Mean of the middle half of all runs, [...]; a run that straddles a quartile counts with the part inside."""
    order = np.argsort(scores.values, axis=-1)
    weights = scores.weights[order]
    end = np.cumsum(weights, axis=-1)
    inside = np.clip(end, 0.25, 0.75) - np.clip(end - weights, 0.25, 0.75)
    return (np.take_along_axis(scores.values, order, axis=-1) * inside).sum(-1) / inside.sum(-1)


def optimality_gap(scores: Scores) -> Floats:
    """Mean shortfall below 1, [...]; scores above it do not make up for others."""
    return np.maximum(1 - scores.values, 0) @ scores.weights


def performance_profile(scores: Scores, thresholds: ArrayLike) -> Floats:
    """Share of runs above each threshold, [..., K]."""
    return np.einsum("...mk,m->...k", scores.values[..., None] > np.asarray(thresholds), scores.weights)


def probability_of_improvement(better: Scores, worse: Scores) -> float:
    """Chance that a run of `better` beats one of `worse` on the same task, ties counting half, mean over tasks."""
    if better.tasks != worse.tasks:
        raise ValueError("both agents must have the same tasks in the same order")
    wins = [
        np.mean((np.sign(better.values[better.task == t][:, None] - worse.values[worse.task == t]) + 1) / 2)
        for t in range(len(better.tasks))
    ]
    return float(np.mean(wins))


def stratified_mean(scores: Scores, confidence: float = 0.95) -> Estimate:
    """Mean over tasks with Satterthwaite's t interval: tasks are fixed, runs vary within each."""
    value, n = float(mean(scores)), scores.values.size
    counts = scores.counts
    squares = (scores.values - scores.task_means()[scores.task]) ** 2
    if counts.min() < 2:
        return Estimate(value, None, None, n, scores.failed, "single", confidence)
    variances = np.bincount(scores.task, squares) / (counts - 1) / counts / len(counts) ** 2  # of each task's part
    total = variances.sum()
    if scores.constant:
        return Estimate(value, None, None, n, scores.failed, "degenerate", confidence)
    freedom = total**2 / (variances**2 / (counts - 1)).sum()
    half = float(stdtrit(freedom, (1 + confidence) / 2) * np.sqrt(total))
    return Estimate(value, value - half, value + half, n, scores.failed, "stratified t", confidence)


def bootstrap(
    scores: Scores,
    statistic: Callable[[Scores], Any],
    *,
    seed: int = 0,
    draws: int = 2000,
    confidence: float = 0.95,
) -> Estimate:
    """Percentile bootstrap of an aggregate, runs drawn within each task. Same data and seed, same result."""
    value, n = float(statistic(scores)), scores.values.size
    if scores.counts.min() < 2:
        return Estimate(value, None, None, n, scores.failed, "single", confidence)
    uniform = np.random.default_rng(seed).random((draws, n))
    drawn = scores.first[scores.task] + (uniform * scores.counts[scores.task]).astype(int)  # [draws, M]
    sample = statistic(Scores(scores.tasks, scores.task, scores.values[drawn]))
    if scores.constant or np.ptp(sample) == 0:
        return Estimate(value, None, None, n, scores.failed, "degenerate", confidence)
    low, high = np.quantile(sample, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(value, float(low), float(high), n, scores.failed, "bootstrap", confidence)


# --- two agents -----------------------------------------------------------------------------------------------------

Arm = Mapping[str, ArrayLike]


def permutation_test(better: Arm, worse: Arm, *, limit: int = 200_000, seed: int = 1) -> Comparison:
    """One-sided test that `better` is above `worse`; each maps a task to its runs.

    Runs change agents within their task. The statistic is the mean over tasks of the difference of means. All ways
    are counted while there are at most `limit`; beyond it, `limit` are drawn and the observed one is counted among
    them, which keeps the test valid. A failed run (NaN) counts against the claim: as the task's lowest score in
    `better`, as its highest in `worse`. Raises ValueError where a task has no finished run in either agent.
    """
    if better.keys() != worse.keys() or not better:
        raise ValueError("both agents must have the same tasks, and at least one")
    pairs = [_against(better[task], worse[task], task) for task in better]
    sizes = [(a.size, b.size) for a, b in pairs]
    difference = float(np.mean([a.mean() - b.mean() for a, b in pairs]))
    ways = [comb(n + m, n) for n, m in sizes]
    exact = prod(ways) <= limit
    if exact:
        null = np.zeros(1)
        for a, b in pairs:
            null = np.add.outer(null, _differences(a, b)).ravel()
    else:
        rng = np.random.default_rng(seed)
        null = sum((_drawn_differences(a, b, limit, rng) for a, b in pairs), np.zeros(limit))
    null /= len(pairs)
    tolerance = 1e-12 * max(1.0, float(np.abs(null).max()))  # sums in another order differ in the last digits
    reached = int((null >= difference - tolerance).sum())
    failures = [sum(int(np.isnan(np.asarray(x, dtype=float)).sum()) for x in arm.values()) for arm in (better, worse)]
    return Comparison(
        difference=difference,
        p=reached / null.size if exact else (reached + 1) / (limit + 1),
        smallest_p=1 / prod(ways) if exact else 1 / (limit + 1),
        n=(sum(n for n, _ in sizes), sum(m for _, m in sizes)),
        failed=(failures[0], failures[1]),
        kind="exact" if exact else "monte carlo",
    )


def _against(better: ArrayLike, worse: ArrayLike, task: str) -> tuple[Floats, Floats]:
    a, b = _scores(better), _scores(worse)
    pooled = np.concatenate([a, b])
    if not a.size or not b.size or np.isnan(pooled).all():
        raise ValueError(f"task {task} has no finished runs to compare")
    return np.where(np.isnan(a), np.nanmin(pooled), a), np.where(np.isnan(b), np.nanmax(pooled), b)


def _differences(a: Floats, b: Floats) -> Floats:
    """The difference of means for every choice of `a.size` of all runs."""
    pooled = np.concatenate([a, b])
    chosen = np.array(list(combinations(range(pooled.size), a.size)))
    sums = pooled[chosen].sum(1)
    return sums / a.size - (pooled.sum() - sums) / b.size


def _drawn_differences(a: Floats, b: Floats, draws: int, rng: np.random.Generator) -> Floats:
    pooled = np.concatenate([a, b])
    if comb(pooled.size, a.size) <= 10_000:
        return rng.choice(_differences(a, b), draws)
    order = np.argsort(rng.random((draws, pooled.size)), axis=1)[:, : a.size]
    sums = pooled[order].sum(1)
    return sums / a.size - (pooled.sum() - sums) / b.size


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's corrected p values, in the order given: compare each with the level of the whole family."""
    order = np.argsort(p_values, kind="stable")
    steps = np.asarray(p_values, dtype=float)[order] * np.arange(len(p_values), 0, -1)
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return corrected.tolist()
