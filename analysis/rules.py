"""The kinds of rules by which runs decide a claim: what each may say, how it judges, how it describes itself.

A kind is one class here and one entry of `KINDS`; `reproduce/claims.yaml` explains them to its readers.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis import stats
from analysis.scores import CLAIM_METRICS

Outcome = Literal["supported", "contradicted", "inconclusive", "not run", "needs paper tier"]

METRICS = ("return", "success", *CLAIM_METRICS)
COMPARISON_SEEDS = 5  # with fewer per agent the power is too low for a verdict, whatever the p value
ROUNDING = 1e-12  # of 1 - confidence, so that a p value of exactly the level reaches it


class Finding(NamedTuple):
    """What runs say about a claim, and why."""

    outcome: Outcome
    reason: str


class Tests(NamedTuple):
    """Two agents compared: the first above the second, and the other way round."""

    above: stats.Comparison
    below: stats.Comparison


@dataclass(frozen=True)
class Part:
    """The runs of one agent on one task."""

    task: str
    agent: str
    scores: stats.Floats  # of each seed that ended, NaN for a failed one, [n]
    share: stats.Estimate | None  # of the seeds that `Rule.comply` counts
    unfinished: int
    protocols: tuple[str, ...]
    configs: tuple[str, ...]

    @property
    def n(self) -> int:
        """Seeds that ended, failed ones included."""
        return len(self.scores)

    @property
    def mean(self) -> stats.Estimate:
        """Of the finished seeds."""
        return stats.mean_interval(self.scores, failed="exclude")

    @property
    def setting(self) -> str:
        """The last part of the task's id."""
        return self.task.rsplit("/", 1)[-1]


Parts = Sequence[Part]


@dataclass(frozen=True)
class Rule(ABC):
    """How scores decide a claim; the fields of a kind are the keys that its YAML may hold."""

    kind: str  # its name in `KINDS`
    agents: tuple[str, ...]
    tasks: tuple[str, ...]
    metric: str
    threshold: float
    confidence: float  # of each bound, or 1 - the level of a test
    minimum_seeds: int

    number_of_agents: ClassVar[int] = 1
    compares: ClassVar[bool] = False  # it rests on `tests`, whose p values are corrected over the figure

    def faults(self) -> Iterator[str]:
        """What is wrong with the values, beyond their types."""
        if self.metric not in METRICS:
            yield f"unknown metric '{self.metric}' (known: {', '.join(METRICS)})"
        if len(self.agents) != self.number_of_agents:
            yield f"kind '{self.kind}' needs {self.number_of_agents} agent(s), not {len(self.agents)}"
        if len({*self.tasks, *self.agents}) < len(self.tasks) + len(self.agents):
            yield "a task or an agent is named twice"
        if not 0.5 < self.confidence < 1:
            yield f"confidence {self.confidence} is not between 0.5 and 1"
        if not np.isfinite(self.threshold):
            yield f"threshold {self.threshold} is not a finite number"

    def counted(self, seeds: Sequence[int]) -> int:
        """The number that `minimum_seeds` is about, from the seeds of an agent on each task."""
        return min(seeds)

    def comply(self, scores: stats.Floats, solved_at: float | None) -> NDArray[np.bool_] | None:
        """Which seeds comply with the rule; if it is not about single seeds, which solve the task, or None.

        `solved_at` is the return from which the task calls a seed solved.
        """
        return None if solved_at is None or self.metric != "return" else scores >= solved_at

    def obstacle(self, parts: Parts) -> str | None:
        """Why these runs leave the claim open whatever their scores are, or None."""
        return None

    def tests(self, parts: Parts) -> Tests | None:
        """The tests of a kind that compares agents. `parts` must have no obstacle."""
        return None

    @abstractmethod
    def judge(self, parts: Parts, tests: Tests | None) -> Finding:
        """What the runs say, if nothing is in the way. `tests` are this rule's own, with their corrected p values."""

    @abstractmethod
    def describe(self) -> str:
        """The rule as half a sentence."""

    def _few(self, part: Part) -> str:
        return f"{part.setting} has {part.n} of the {self.minimum_seeds} seeds that the rule needs"


@dataclass(frozen=True)
class SolvedShare(Rule):
    """On every task more than `share` of the seeds score `threshold` or more, by exact binomial bounds."""

    share: float = 0.5

    sign: ClassVar[str] = ">="
    reaches: ClassVar[Callable[[stats.Floats, float], NDArray[np.bool_]]] = operator.ge

    def faults(self) -> Iterator[str]:
        yield from super().faults()
        if not 0 < self.share < 1:
            yield f"share {self.share} is not between 0 and 1"
        elif self.minimum_seeds < 1 or self.share**self.minimum_seeds > 1 - self.confidence + ROUNDING:
            seeds = self.minimum_seeds
            yield f"{seeds} seeds cannot show a share above {self.share} at confidence {self.confidence}"

    def comply(self, scores: stats.Floats, solved_at: float | None) -> NDArray[np.bool_]:
        return type(self).reaches(scores, self.threshold)  # NaN does not, so a failed seed counts against the claim

    def judge(self, parts: Parts, tests: Tests | None) -> Finding:
        findings = [self._on_one_task(part) for part in parts]
        outcomes = {finding.outcome for finding in findings}
        worst = next(outcome for outcome in ("contradicted", "inconclusive", "supported") if outcome in outcomes)
        return Finding(worst, "; ".join(finding.reason for finding in findings if finding.outcome == worst))

    def _on_one_task(self, part: Part) -> Finding:
        share = part.share
        assert share is not None
        if share.n < self.minimum_seeds or share.low is None:
            return Finding("inconclusive", self._few(part))
        complying = round((share.value or 0) * share.n)
        reason = f"{part.setting} {complying} of {share.n}"
        if share.low > self.share:
            return Finding("supported", reason)
        # Any of T tasks can contradict the claim, so each is tested at 1 / T of the level (Bonferroni).
        strict = 1 - 2 * (1 - self.confidence) / len(self.tasks)
        high = stats.share_interval(complying, share.n, confidence=strict).high
        assert high is not None
        return Finding("contradicted" if high < self.share else "inconclusive", reason)

    def describe(self) -> str:
        return (
            f"more than {self.share:.0%} of the seeds have {self.metric} {self.sign} {self.threshold:g} on every task, "
            f"{self.confidence:.0%} binomial bound, {self.minimum_seeds} seeds a task; one task contradicts by the "
            f"other bound at {1 - (1 - self.confidence) / len(self.tasks):.4g}"
        )


@dataclass(frozen=True)
class Below(SolvedShare):
    """On every task more than `share` of the seeds score `threshold` or less, by exact binomial bounds."""

    sign: ClassVar[str] = "<="
    reaches: ClassVar[Callable[[stats.Floats, float], NDArray[np.bool_]]] = operator.le


@dataclass(frozen=True)
class Comparison(Rule):
    """The first agent is above the second by `threshold`, by a permutation test over all tasks together."""

    number_of_agents: ClassVar[int] = 2
    compares: ClassVar[bool] = True

    def faults(self) -> Iterator[str]:
        yield from super().faults()
        if self.minimum_seeds < COMPARISON_SEEDS:
            yield f"a comparison needs minimum_seeds of {COMPARISON_SEEDS} or more"

    def counted(self, seeds: Sequence[int]) -> int:
        return sum(seeds)

    def obstacle(self, parts: Parts) -> str | None:
        if empty := [part for part in parts if not part.mean.n]:
            return f"no finished run of {empty[0].agent} on {empty[0].setting}"
        for agent in self.agents:
            n = self.counted([part.n for part in parts if part.agent == agent])
            if n < self.minimum_seeds:
                return f"{agent} has {n} of the {self.minimum_seeds} seeds that the rule needs"
        return None

    def tests(self, parts: Parts) -> Tests:
        first, second = ({part.task: part.scores for part in parts if part.agent == agent} for agent in self.agents)
        return Tests(stats.permutation_test(first, second), stats.permutation_test(second, first))

    def judge(self, parts: Parts, tests: Tests | None) -> Finding:
        assert tests is not None
        above, below = tests
        level = 1 - self.confidence + ROUNDING
        said = f"difference {above.difference:z.2f}, p = {above.p:.3g}"
        if above.p <= level and above.difference >= self.threshold:
            return Finding("supported", said)
        if below.p <= level:
            return Finding("contradicted", f"{said}; {self.agents[1]} above: p = {below.p:.3g}")
        if above.p <= level:
            said += f", below the {self.threshold:g} that the rule asks for"
        elif above.smallest_p > level:
            said += f"; with these seeds p is at least {above.smallest_p:.3g}"
        return Finding("inconclusive", said)

    def describe(self) -> str:
        return (
            f"{self.metric} of {self.agents[0]} above {self.agents[1]} by {self.threshold:g} or more, permutation test "
            f"at {1 - self.confidence:.2g} (Holm over the figure), {self.minimum_seeds} seeds each"
        )


@dataclass(frozen=True)
class Mean(Rule):
    """The mean over all tasks reaches `threshold`, by a stratified t bound."""

    def faults(self) -> Iterator[str]:
        yield from super().faults()
        if self.minimum_seeds < 2:
            yield "a mean needs minimum_seeds of 2 or more, for an interval"

    def obstacle(self, parts: Parts) -> str | None:
        if few := [part for part in parts if part.n < self.minimum_seeds]:
            return self._few(few[0])
        if failed := sum(part.mean.failed for part in parts):  # no return is known that would be a fair replacement
            return f"{failed} failed runs leave the mean open; run them again"
        return None

    def judge(self, parts: Parts, tests: Tests | None) -> Finding:
        scores = stats.Scores.of({part.task: part.scores for part in parts}, failed="error")
        mean = stats.stratified_mean(scores, confidence=2 * self.confidence - 1)
        if mean.low is None or mean.high is None:
            return Finding("inconclusive", f"mean {mean.value:z.3f} without an interval: equal seeds")
        said = f"mean {mean.value:z.3f} [{mean.low:z.3f}, {mean.high:z.3f}], n = {mean.n}"
        if mean.low >= self.threshold:
            return Finding("supported", said)
        return Finding("contradicted" if mean.high < self.threshold else "inconclusive", said)

    def describe(self) -> str:
        return (
            f"mean {self.metric} over {len(self.tasks)} tasks >= {self.threshold:g}, stratified t bound at "
            f"{self.confidence:.0%} on each side, {self.minimum_seeds} seeds a task"
        )


KINDS: dict[str, type[Rule]] = {
    "solved_share": SolvedShare,
    "below": Below,
    "comparison": Comparison,
    "mean": Mean,
}
