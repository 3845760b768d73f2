"""Memory span: over how many steps an agent is shown to remember, with stated confidence.

A ladder is a family of tasks that differ in how long something must be remembered. A rung counts as shown if the exact
(Clopper-Pearson) one-sided 95 % lower bound of the share of seeds that solve it is above one half: 5 of 5 seeds, 7 of
8, 9 of 11. The span is the longest rung that is shown together with all shorter ones. Rungs are tested from the
shortest up to the first that is not shown, which keeps the chance of stating too long a span at 5 % however many rungs
there are (a fixed-sequence test). Failed seeds count as not solved; a rung without runs ends the climb.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import pandas as pd

from analysis import frames, stats, text
from analysis.aggregates import SCALE_ENDS

CONFIDENCE = 0.95  # of each bound
SHARE = 0.5  # of the seeds; the bound must exceed it


@dataclass(frozen=True)
class Ladder:
    """`rungs`: steps to remember -> task, from short to long."""

    name: str
    rungs: Mapping[int, str]


LADDERS = (
    Ladder(
        "T-Maze corridor",
        {n: f"long_term_memory/tmaze/passive-{n}" for n in (10, 30, 100, 300, 1000, 3000, 10_000)},
    ),
    Ladder(
        "RepeatPrevious lag",
        {
            n: f"long_term_memory/popgym/RepeatPrevious{level}"
            for n, level in ((3, "Easy"), (31, "Medium"), (63, "Hard"))
        },
    ),
)
COLUMNS = ("ladder", "tier", "agent", "span", "n", "low", "ended_by")
NOTE = (
    f"Longest rung that, like every shorter one, more than {SHARE:.0%} of the seeds are shown to solve:",
    f"exact one-sided {CONFIDENCE:.0%} bound, fixed sequence from the shortest up; that takes 5 of 5, 7 of 8, 9 of 11.",
    "A seed solves a rung with the final return that its task calls solved.",
)


def spans(scores: pd.DataFrame, task: str = "*") -> pd.DataFrame:
    """One row per ladder, tier and agent of `frames.scores`, for ladders with a task that matches the pattern `task`.

    `span` is 0 if not even the shortest rung is shown; `n` and `low` are the seeds and the bound of the longest rung
    shown (NaN without one), and `ended_by` says why the next one is not.
    """
    rows = []
    scores, _ = frames.one_cell(scores)
    ended = scores[(scores["state"] != "unfinished") & ~scores["agent"].isin(SCALE_ENDS)]
    for ladder in LADDERS:
        if not any(fnmatchcase(rung, task) for rung in ladder.rungs.values()):
            continue
        runs = ended[ended["task"].isin(ladder.rungs.values())]
        for (each_tier, agent), own in runs.groupby(["tier", "agent"], sort=False):
            rows.append((ladder.name, each_tier, agent, *_climb(ladder, own)))
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"span": int, "n": float, "low": float})


def _climb(ladder: Ladder, runs: pd.DataFrame) -> tuple[int, int | None, float | None, str]:
    """The longest rung shown with its seeds and bound, and what ended the climb."""
    span: int = 0
    n: int | None = None
    low: float | None = None
    for steps, task in ladder.rungs.items():
        own = runs[runs["task"] == task]
        if own.empty:
            return span, n, low, f"{steps}: no runs"
        solved = int((own["return"] >= own["solved_at"]).sum())
        failed = int(own["return"].isna().sum())
        share = stats.share_interval(solved, len(own), failed=failed, confidence=2 * CONFIDENCE - 1)
        assert share.low is not None
        if share.low <= SHARE:
            return span, n, low, f"{steps}: {solved} of {len(own)} solved, bound {share.low:.2f}"
        span, n, low = steps, len(own), share.low
    return span, n, low, "the ladder's end"


def render(frame: pd.DataFrame, format: str = "text") -> str:
    """The frame of `spans` as text or Markdown, empty if it has no rows."""
    if frame.empty:
        return ""
    header = ["memory span", "tier", "agent", "steps", "n", "bound", "ended by"]
    body = [
        [
            row["ladder"], row["tier"], row["agent"], f"{row['span']:,}" if row["span"] else "none shown",
            "-" if text.empty(row["n"]) else f"{row['n']:.0f}", text.number(row["low"]), row["ended_by"],
        ]
        for row in frame.to_dict("records")
    ]  # fmt: skip
    return "\n".join([*text.lay_out(header, body, format), "", *NOTE]) + "\n"
