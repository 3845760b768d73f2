"""Judges claims by their rules: a verdict, its reason, and the numbers behind it beside the published one."""

from __future__ import annotations

import textwrap
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import pandas as pd

from analysis import frames, stats
from analysis.claims import SHARE_KINDS, Claim, Rule
from analysis.figures import FIGURES
from analysis.scores import with_claim_metrics
from results.errors import UserError

Outcome = Literal["supported", "contradicted", "inconclusive", "not run", "needs paper tier"]


@dataclass(frozen=True)
class Part:
    """The evidence of one agent on one task.

    `share` is of the seeds that comply with the rule; where the rule is not about single seeds, of those that solve
    the task (the table `tasks`), or None.
    """

    task: str
    agent: str
    mean: stats.Estimate  # of the finished seeds
    share: stats.Estimate | None
    unfinished: int
    protocols: tuple[str, ...]
    configs: tuple[str, ...]

    @property
    def n(self) -> int:
        """Seeds that ended, failed ones included."""
        return self.mean.n + self.mean.failed


@dataclass(frozen=True)
class Verdict:
    """What the runs say about a claim. `p` is Holm-corrected over the figure; None unless two agents are compared."""

    claim: Claim
    outcome: Outcome
    reason: str
    parts: tuple[Part, ...]
    test: stats.Comparison | None = None
    p: float | None = None


class _Tests(NamedTuple):
    above: stats.Comparison  # agents[0] above agents[1]
    below: stats.Comparison


class _Runs(NamedTuple):
    """The runs of `frames.scores` by tier, task and agent, with the metrics of the claims of a figure."""

    cells: dict[tuple[Hashable, ...], pd.DataFrame]
    none: pd.DataFrame  # no rows

    @classmethod
    def of(cls, scores: pd.DataFrame, figure: str) -> _Runs:
        scores = with_claim_metrics(scores, FIGURES[figure].agents)
        return cls(dict(iter(scores.groupby(["tier", "task", "agent"]))), scores.iloc[:0])

    def cell(self, claim: Claim, task: str, agent: str) -> pd.DataFrame:
        return self.cells.get((claim.tier, task, agent), self.none)


def load_verdicts(claims: Sequence[Claim], root: Path | None = None) -> list[Verdict]:
    """Verdicts on the tables under `root` (default: `results.store.results_root()`)."""
    return judge(claims, frames.scores(root))


def judge(claims: Sequence[Claim], scores: pd.DataFrame) -> list[Verdict]:
    """Verdicts in the order of the claims, from `frames.scores` of all tiers.

    A claim sees the runs of its own tier only. Pass the claims of whole figures: p values are corrected over all
    comparisons of a figure and tier, whether they have been run or not.
    """
    figures = {name: _Runs.of(scores, name) for name in {claim.figure for claim in claims}}
    parts = [_parts(claim, figures[claim.figure]) for claim in claims]
    tests = [_tests(claim, part, figures[claim.figure]) for claim, part in zip(claims, parts, strict=True)]
    corrected = _correct(claims, tests)
    verdicts = []
    for i, claim in enumerate(claims):
        if obstacle := _obstacle(claim, parts[i]):
            verdicts.append(Verdict(claim, *obstacle, parts[i]))
        elif (pair := tests[i]) is not None:
            verdicts.append(_judge_comparison(claim, parts[i], pair, *corrected[i]))
        elif claim.rule.kind == "mean":
            verdicts.append(_judge_mean(claim, parts[i], figures[claim.figure]))
        else:
            verdicts.append(_judge_shares(claim, parts[i]))
    return verdicts


def _parts(claim: Claim, runs: _Runs) -> tuple[Part, ...]:
    return tuple(_part(claim, task, agent, runs) for task in claim.rule.tasks for agent in claim.rule.agents)


def _values(claim: Claim, task: str, agent: str, runs: _Runs) -> pd.Series:
    """The score of each seed that ended, NaN for a failed one."""
    cell = runs.cell(claim, task, agent)
    ended = cell[cell["state"] != "unfinished"]
    values = ended[claim.rule.metric]
    if values[ended["state"] == "finished"].isna().any():
        raise UserError(f"claim {claim.id}: {task} has no {claim.rule.metric}; judge it by another metric")
    return values


def _part(claim: Claim, task: str, agent: str, runs: _Runs) -> Part:
    rule, cell = claim.rule, runs.cell(claim, task, agent)
    values = _values(claim, task, agent, runs)
    share = None
    threshold: float | None = rule.threshold
    if rule.kind not in SHARE_KINDS:
        threshold = frames.solved_at(cell) if rule.metric == "return" else None
    if threshold is not None:
        complies = values <= threshold if rule.kind == "below" else values >= threshold
        # NaN meets neither condition, so a failed seed counts against the claim. Each bound has the rule's confidence.
        share = stats.share_interval(
            int(complies.sum()), len(values), failed=int(values.isna().sum()), confidence=2 * rule.confidence - 1
        )
    return Part(
        task=task,
        agent=agent,
        mean=stats.mean_interval(values, failed="exclude"),
        share=share,
        unfinished=len(cell) - len(values),
        protocols=tuple(sorted(cell.loc[values.index, "protocol"].unique())),
        configs=tuple(sorted(cell.loc[values.index, "config"].unique())),
    )


def _obstacle(claim: Claim, parts: Sequence[Part]) -> tuple[Outcome, str] | None:
    """Why these runs cannot judge the claim at all, or None."""
    if not any(part.n for part in parts):
        unfinished = sum(part.unfinished for part in parts)
        reason = f"no finished run at the tier {claim.tier}" + (f", {unfinished} unfinished" if unfinished else "")
        return ("needs paper tier" if claim.tier == "paper" else "not run"), reason
    for task in claim.rule.tasks:
        protocols = {protocol for part in parts if part.task == task for protocol in part.protocols}
        if len(protocols) > 1:
            return "inconclusive", f"{_short(task)} mixes the protocols {', '.join(sorted(protocols))}"
    if mixed := next((part for part in parts if len(part.configs) > 1), None):
        where = f"{mixed.agent} on {_short(mixed.task)}"
        return "inconclusive", f"{where} mixes the configurations {', '.join(mixed.configs)} (column config)"
    if claim.rule.kind == "comparison":
        if empty := [part for part in parts if not part.mean.n]:
            return "inconclusive", f"no finished run of {empty[0].agent} on {_short(empty[0].task)}"
        for agent in claim.rule.agents:
            n = sum(part.n for part in parts if part.agent == agent)
            if n < claim.rule.minimum_seeds:
                return "inconclusive", f"{agent} has {n} of the {claim.rule.minimum_seeds} seeds that the rule needs"
    return None


def _judge_shares(claim: Claim, parts: Sequence[Part]) -> Verdict:
    outcomes = [_share_outcome(claim.rule, part) for part in parts]
    for outcome in ("contradicted", "inconclusive"):
        if reasons := [reason for found, reason in outcomes if found == outcome]:
            return Verdict(claim, outcome, "; ".join(reasons), tuple(parts))
    return Verdict(claim, "supported", "; ".join(reason for _, reason in outcomes), tuple(parts))


def _share_outcome(rule: Rule, part: Part) -> tuple[Outcome, str]:
    share, where = part.share, _short(part.task)
    assert share is not None
    if share.n < rule.minimum_seeds or share.low is None or share.high is None:
        return "inconclusive", f"{where} has {share.n} of the {rule.minimum_seeds} seeds that the rule needs"
    reason = f"{where} {round((share.value or 0) * share.n)} of {share.n}"
    if share.low > rule.share:
        return "supported", reason
    # Any of T tasks can contradict the claim, so each is tested at 1 / T of the level (Bonferroni).
    strict = 1 - 2 * (1 - rule.confidence) / len(rule.tasks)
    high = stats.share_interval(round((share.value or 0) * share.n), share.n, confidence=strict).high
    assert high is not None
    return ("contradicted" if high < rule.share else "inconclusive"), reason


def _judge_mean(claim: Claim, parts: tuple[Part, ...], runs: _Runs) -> Verdict:
    rule, agent = claim.rule, claim.rule.agents[0]
    if few := [part for part in parts if part.n < rule.minimum_seeds]:
        reason = f"{_short(few[0].task)} has {few[0].n} of the {rule.minimum_seeds} seeds that the rule needs"
        return Verdict(claim, "inconclusive", reason, parts)
    if failed := sum(part.mean.failed for part in parts):  # no return is known that would be a fair replacement
        return Verdict(claim, "inconclusive", f"{failed} failed runs leave the mean open; run them again", parts)
    scores = stats.Scores.of({task: _values(claim, task, agent, runs) for task in rule.tasks}, failed="error")
    estimate = stats.stratified_mean(scores, confidence=2 * rule.confidence - 1)
    if estimate.low is None or estimate.high is None:
        return Verdict(claim, "inconclusive", f"mean {estimate.value:.3f} without an interval: equal seeds", parts)
    said = f"mean {estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}], n = {estimate.n}"
    if estimate.low >= rule.threshold:
        return Verdict(claim, "supported", said, parts)
    return Verdict(claim, "contradicted" if estimate.high < rule.threshold else "inconclusive", said, parts)


def _tests(claim: Claim, parts: Sequence[Part], runs: _Runs) -> _Tests | None:
    if claim.rule.kind != "comparison" or _obstacle(claim, parts):
        return None
    first, second = (
        {task: _values(claim, task, agent, runs) for task in claim.rule.tasks} for agent in claim.rule.agents
    )
    return _Tests(stats.permutation_test(first, second), stats.permutation_test(second, first))


def _correct(claims: Sequence[Claim], tests: Sequence[_Tests | None]) -> dict[int, tuple[float, float]]:
    """Holm-corrected p of both directions for each comparison; one that could not be tested counts with p = 1."""
    families: dict[tuple[str, str], list[int]] = {}
    for i, claim in enumerate(claims):
        if claim.rule.kind == "comparison":
            families.setdefault((claim.figure, claim.tier), []).append(i)
    corrected: dict[int, tuple[float, float]] = {}
    for members in families.values():
        pairs = [tests[i] for i in members]
        above = stats.holm([pair.above.p if pair else 1.0 for pair in pairs])
        below = stats.holm([pair.below.p if pair else 1.0 for pair in pairs])
        corrected |= dict(zip(members, zip(above, below, strict=True), strict=True))
    return corrected


def _judge_comparison(claim: Claim, parts: tuple[Part, ...], pair: _Tests, p_above: float, p_below: float) -> Verdict:
    rule, test = claim.rule, pair.above
    level = 1 - rule.confidence + 1e-12
    said = f"difference {test.difference:.2f}, p = {p_above:.3g}"
    if p_above <= level and test.difference >= rule.threshold:
        return Verdict(claim, "supported", said, parts, test, p_above)
    if p_below <= level:
        return Verdict(
            claim, "contradicted", f"{said}; {rule.agents[1]} above: p = {p_below:.3g}", parts, test, p_above
        )
    if p_above <= level:
        said += f", below the {rule.threshold:g} that the rule asks for"
    elif test.smallest_p > level:
        said += f"; with these seeds p is at least {test.smallest_p:.3g}"
    return Verdict(claim, "inconclusive", said, parts, test, p_above)


def _short(task: str) -> str:
    return task.rsplit("/", 1)[-1]


# --- as text --------------------------------------------------------------------------------------------------------


def to_text(verdicts: Sequence[Verdict]) -> str:
    """The verdicts as a page of text; a restated claim says in its first line that it is not the paper's."""
    return "\n\n".join("\n".join(_lines(verdict)) for verdict in verdicts)


def _lines(verdict: Verdict) -> list[str]:
    claim = verdict.claim
    origin = f"restates {claim.restates} at the tier {claim.tier}; not the paper's claim" if claim.restates else "paper"
    entries = [
        ("claim", claim.statement),
        ("published", f"{claim.published.value:g} ({claim.published.where}); {claim.source}"),
        ("rule", _rule(claim.rule)),
        *(("measured", _evidence(part)) for part in verdict.parts if part.n or part.unfinished),
        *([("note", claim.note)] if claim.note else []),
    ]
    lines = [f"{claim.id}: {verdict.outcome.upper()} ({verdict.reason})   [{origin}]"]
    for name, text in entries:
        lines += textwrap.wrap(text, 118, initial_indent=f"  {name:11}", subsequent_indent=" " * 13)
    return lines


def _rule(rule: Rule) -> str:
    if rule.kind == "comparison":
        return (
            f"{rule.metric} of {rule.agents[0]} above {rule.agents[1]} by {rule.threshold:g} or more, permutation test "
            f"at {1 - rule.confidence:.2g} (Holm over the figure), {rule.minimum_seeds} seeds each"
        )
    if rule.kind == "mean":
        return (
            f"mean {rule.metric} over {len(rule.tasks)} tasks >= {rule.threshold:g}, stratified t bound at "
            f"{rule.confidence:.0%} on each side, {rule.minimum_seeds} seeds a task"
        )
    sign = ">=" if rule.kind == "solved_share" else "<="
    return (
        f"more than {rule.share:.0%} of the seeds have {rule.metric} {sign} {rule.threshold:g} on every task, "
        f"{rule.confidence:.0%} binomial bound, {rule.minimum_seeds} seeds a task; one task contradicts by the other "
        f"bound at {1 - (1 - rule.confidence) / len(rule.tasks):.4g}"
    )


def _evidence(part: Part) -> str:
    mean = "none" if part.mean.value is None else f"{part.mean.value:.3f}"
    # For solved-or-not seeds a t interval would be wrong, so only the exact interval of their share is shown.
    bounds = "" if part.share else _bounds(part.mean)
    text = f"{_short(part.task)}, {part.agent}: mean {mean}{bounds}, n = {part.n}"
    if part.mean.failed:
        text += f", {part.mean.failed} failed"
    if part.unfinished:
        text += f", {part.unfinished} unfinished"
    if part.share and part.share.value is not None:
        low, high, side = part.share.low, part.share.high, (1 + part.share.confidence) / 2
        text += f"; share {part.share.value:.2f} [{low:.2f}, {high:.2f}] binomial, {side:.0%} each side"
    return text


def _bounds(estimate: stats.Estimate) -> str:
    if estimate.low is None:
        return f" ({estimate.kind}: no interval)" if estimate.kind != "empty" else ""
    return f" [{estimate.low:.2f}, {estimate.high:.2f}] {estimate.confidence:.0%} {estimate.kind}"
