"""Judges claims by their rules: a verdict, its reason, and the numbers behind it beside the published one."""

from __future__ import annotations

import textwrap
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from analysis import frames, stats
from analysis.claims import Claim
from analysis.figures import figures
from analysis.rules import Finding, Outcome, Part, Parts, Tests
from analysis.scores import with_claim_metrics
from results.errors import UserError


@dataclass(frozen=True)
class Verdict:
    """What the runs say about a claim. `test` has the p value corrected over the figure; None unless it compares."""

    claim: Claim
    outcome: Outcome
    reason: str
    parts: tuple[Part, ...]
    test: stats.Comparison | None = None


class _Case(NamedTuple):
    """A claim before the judge."""

    claim: Claim
    parts: tuple[Part, ...]
    obstacle: Finding | None
    tests: Tests | None


class _Runs(NamedTuple):
    """The runs of `frames.scores` by tier, task and agent, with the metrics of the claims of a figure."""

    cells: dict[tuple[Hashable, ...], pd.DataFrame]
    none: pd.DataFrame  # no rows

    @classmethod
    def of(cls, scores: pd.DataFrame, figure: str) -> _Runs:
        scores = with_claim_metrics(scores, figures()[figure].agents)
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
    cases = [_case(claim, figures[claim.figure]) for claim in claims]
    return [_verdict(*case) for case in _corrected(cases)]


def _case(claim: Claim, runs: _Runs) -> _Case:
    rule = claim.rule
    parts = tuple(_part(claim, task, agent, runs) for task in rule.tasks for agent in rule.agents)
    obstacle = _obstacle(claim, parts)
    return _Case(claim, parts, obstacle, None if obstacle else rule.tests(parts))


def _verdict(claim: Claim, parts: tuple[Part, ...], obstacle: Finding | None, tests: Tests | None) -> Verdict:
    outcome, reason = obstacle or claim.rule.judge(parts, tests)
    return Verdict(claim, outcome, reason, parts, tests.above if tests else None)


def _part(claim: Claim, task: str, agent: str, runs: _Runs) -> Part:
    cell = runs.cell(claim, task, agent)
    ended = cell[cell["state"] != "unfinished"]
    values = ended[claim.rule.metric]
    if values[ended["state"] == "finished"].isna().any():
        raise UserError(f"claim {claim.id}: {task} has no {claim.rule.metric}; judge it by another metric")
    scores = values.to_numpy(dtype=float)
    complying = claim.rule.comply(scores, frames.solved_at(cell))
    return Part(
        task=task,
        agent=agent,
        scores=scores,
        share=None if complying is None else stats.share_interval(
            int(complying.sum()), len(scores), failed=int(values.isna().sum()),
            confidence=2 * claim.rule.confidence - 1,  # so that each bound has the rule's
        ),
        unfinished=len(cell) - len(ended),
        protocols=tuple(sorted(ended["protocol"].unique())),
        configs=tuple(sorted(ended["config"].unique())),
    )  # fmt: skip


def _obstacle(claim: Claim, parts: Parts) -> Finding | None:
    """Why these runs cannot judge the claim at all, or None."""
    if not any(part.n for part in parts):
        unfinished = sum(part.unfinished for part in parts)
        said = f"no finished run at the tier {claim.tier}" + (f", {unfinished} unfinished" if unfinished else "")
        return Finding("needs paper tier" if claim.tier == "paper" else "not run", said)
    protocols: dict[str, set[str]] = {}
    for part in parts:
        protocols.setdefault(part.setting, set()).update(part.protocols)
    for setting, several in protocols.items():
        if len(several) > 1:
            return Finding("inconclusive", f"{setting} mixes the protocols {', '.join(sorted(several))}")
    for part in parts:
        if len(part.configs) > 1:
            mixed = f"{part.agent} on {part.setting} mixes the configurations {', '.join(part.configs)}"
            return Finding("inconclusive", f"{mixed} (column config)")
    if reason := claim.rule.obstacle(parts):
        return Finding("inconclusive", reason)
    return None


def _corrected(cases: Sequence[_Case]) -> list[_Case]:
    """The cases with Holm's p values, each direction over the claims of a figure and tier that compare agents.

    One that could not be tested counts with p = 1.
    """
    families: dict[tuple[str, str], list[int]] = {}
    for i, case in enumerate(cases):
        if case.claim.rule.compares:
            families.setdefault((case.claim.figure, case.claim.tier), []).append(i)
    corrected = list(cases)
    for members in families.values():
        pairs = [cases[i].tests for i in members]
        above = stats.holm([pair.above.p if pair else 1.0 for pair in pairs])
        below = stats.holm([pair.below.p if pair else 1.0 for pair in pairs])
        for i, pair, p_above, p_below in zip(members, pairs, above, below, strict=True):
            if pair:
                tests = Tests(replace(pair.above, p=p_above), replace(pair.below, p=p_below))
                corrected[i] = cases[i]._replace(tests=tests)
    return corrected


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
        ("rule", claim.rule.describe()),
        *(("measured", _evidence(part)) for part in verdict.parts if part.n or part.unfinished),
        *([("note", claim.note)] if claim.note else []),
    ]
    lines = [f"{claim.id}: {verdict.outcome.upper()} ({verdict.reason})   [{origin}]"]
    for name, text in entries:
        lines += textwrap.wrap(text, 118, initial_indent=f"  {name:11}", subsequent_indent=" " * 13)
    return lines


def _evidence(part: Part) -> str:
    estimate = part.mean
    mean = "none" if estimate.value is None else f"{estimate.value:z.3f}"
    # For solved-or-not seeds a t interval would be wrong, so only the exact interval of their share is shown.
    bounds = "" if part.share else _bounds(estimate)
    text = f"{part.setting}, {part.agent}: mean {mean}{bounds}, n = {part.n}"
    if estimate.failed:
        text += f", {estimate.failed} failed"
    if part.unfinished:
        text += f", {part.unfinished} unfinished"
    if part.share and part.share.value is not None:
        low, high, side = part.share.low, part.share.high, (1 + part.share.confidence) / 2
        text += f"; share {part.share.value:.2f} [{low:.2f}, {high:.2f}] binomial, {side:.0%} each side"
    return text


def _bounds(estimate: stats.Estimate) -> str:
    if estimate.low is None:
        return f" ({estimate.kind}: no interval)" if estimate.kind != "empty" else ""
    return f" [{estimate.low:z.3f}, {estimate.high:z.3f}] {estimate.confidence:.0%} {estimate.kind}"
