"""The results table: one row per task, protocol, agent and configuration. Numbers stay numbers until `render`."""

from __future__ import annotations

import textwrap
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from os.path import commonprefix
from pathlib import Path
from typing import Any

import pandas as pd

from analysis import frames, stats, text
from results.errors import UserError

FORMATS = ("text", "csv", "markdown")
EARLY_STOP = (
    "Training on {tasks} at the tier {tier} ends early, for all agents alike, after two evaluations in a row (20 "
    "rollouts each) with a mean return >= {value:g}; a fresh final evaluation of 100 rollouts follows."
)
NO_INTERVAL = "Mean without interval: one seed, equal seeds, or seeds that are solved or not."
GROUP = ["task", "tier", "protocol", "agent", "config"]


def summary(
    root: Path | None = None,
    tier: str | None = None,
    task: str = "*",
    agents: Sequence[str] | None = None,
    metric: str = "return",
) -> pd.DataFrame:
    """`summarise` of the runs under `root`; `task` and `agents` are shell patterns."""
    return summarise(frames.scores(root, tier, task, agents), metric)


def summarise(scores: pd.DataFrame, metric: str = "return") -> pd.DataFrame:
    """One row per task, tier, protocol, agent and configuration of `frames.scores`. Empty if that is.

    Columns: n seeds that ended, `failed` of them, `unfinished` ones beside them; `mean` of the final evaluations of
    the finished seeds with `low`, `high` and the kind of `interval` (`share`: none, as t is wrong for seeds that
    the task calls solved or not; `undefined`: the task has no such metric); `median`; `solved`, the share of all n
    seeds with a final return of `solved_at` or more, with its exact 95 % interval (a failed seed is not solved);
    `best`, the mean of the seeds' maxima over training, which is the paper's number and never the headline; medians
    of env_steps and wall_s; the task's `solved_at` and `stop_return`. Raises UserError for an unknown metric.
    """
    if metric not in frames.METRICS:
        raise UserError(f"unknown metric '{metric}' (known: {', '.join(frames.METRICS)})")
    rows = [
        dict(zip(GROUP, keys, strict=True)) | _cells(cell, metric) for keys, cell in scores.groupby(GROUP, sort=False)
    ]
    frame = pd.DataFrame(rows, columns=[*GROUP, *_cells(scores.iloc[:0], metric)])
    numbers = ["mean", "low", "high", "solved", "solved_low", "solved_high", "solved_at", "stop_return"]
    return frame.astype(dict.fromkeys(numbers, float))


def _cells(runs: pd.DataFrame, metric: str) -> dict[str, float | str | None]:
    threshold = frames.solved_at(runs)
    ended = runs[runs["state"] != "unfinished"]
    finished = ended[ended["state"] == "finished"]
    failed = len(ended) - len(finished)
    mean = stats.mean_interval(finished[metric], failed="exclude")
    if metric == "success" and mean.low is not None and mean.high is not None:
        mean = replace(mean, low=max(mean.low, 0.0), high=min(mean.high, 1.0))
    share_only = threshold is not None and mean.low is not None
    kind = "share" if share_only else "undefined" if len(finished) and mean.n == 0 else mean.kind
    solved = stats.Estimate(None, None, None, 0, 0, "empty")
    if threshold is not None:
        solved = stats.share_interval(int((ended["return"] >= threshold).sum()), len(ended), failed=failed)
    return {
        "n": len(ended),
        "failed": failed,
        "unfinished": len(runs) - len(ended),
        "mean": mean.value,
        "low": None if share_only else mean.low,
        "high": None if share_only else mean.high,
        "interval": kind,
        "median": finished[metric].median(),
        "solved": solved.value,
        "solved_low": solved.low,
        "solved_high": solved.high,
        "best": finished[f"best_{metric}"].mean(),
        "env_steps": finished["env_steps"].median(),
        "wall_s": finished["wall_s"].median(),
        "solved_at": threshold,
        "stop_return": runs["stop_return"].max(),
        "copies": "; ".join(
            f"{copies} of seed {seed}" for seed, copies in zip(runs["seed"], runs["copies"], strict=True) if copies
        ),
    }


def render(frame: pd.DataFrame, format: str = "text", metric: str = "return", wide: bool = True) -> str:
    """The frame of `summary` as text for a terminal, as CSV with exact numbers, or as Markdown.

    Text that is not `wide` has the columns that tell the rows apart and the results; what all task ids begin with
    stands below it.
    """
    if format not in FORMATS:
        raise UserError(f"unknown format '{format}' (known: {', '.join(FORMATS)})")
    if format == "csv":
        return frame.to_csv(index=False, lineterminator="\n")
    if frame.empty:
        return "no runs match\n"
    header = _header(f"final {metric}{' [95%]' if frame['low'].notna().any() else ''}")
    if format == "text" and not wide:
        return _compact(frame, header)
    body = [_row(row) for row in frame.to_dict("records")]
    return "\n".join([*text.lay_out(header, body, format), "", *_footnote(frame)]) + "\n"


def _compact(frame: pd.DataFrame, header: Sequence[str]) -> str:
    shared, slash, _ = commonprefix(list(frame["task"])).rpartition("/")  # noqa: RUF071 - character by character
    start = shared + slash if frame["task"].nunique() > 1 else ""
    body = [_row(row) for row in frame.assign(task=frame["task"].str.removeprefix(start)).to_dict("records")]
    twins = frame.duplicated(["task", "tier", "agent"]).any()  # rows that differ in protocol or configuration alone
    hidden = {"interval", "median", "max in training", "env steps", "wall"}
    hidden |= set() if twins else {"protocol", "config"}
    hidden |= set() if frame["failed"].any() else {"failed"}
    hidden |= set() if frame["solved"].notna().any() else {"solved [95%]"}
    kept = [i for i, name in enumerate(header) if name not in hidden]
    lines = text.lay_out([header[i] for i in kept], [[row[i] for i in kept] for row in body])
    notes = [
        *([f"Tasks are below {start}."] if start else []),
        "n: seeds that ended, failed ones included. Final: mean over the finished seeds of their last evaluation.",
        *([NO_INTERVAL] if frame["low"].isna().any() else []),
        *_solved(frame),
        *(line for sentence in early_stops(frame) for line in textwrap.wrap(sentence, 118)),
        "--wide shows protocol, configuration, medians, maxima, steps and times, and explains every column.",
    ]
    return "\n".join([*lines, "", *notes]) + "\n"


def _header(final: str) -> list[str]:
    return [
        "task", "tier", "protocol", "agent", "config", "n", "failed", final, "interval", "median",
        "solved [95%]", "max in training", "env steps", "wall",
    ]  # fmt: skip


def _row(row: Mapping[Hashable, Any]) -> list[str]:
    n = f"{row['n']}" + (f" (+{row['unfinished']} unfinished)" if row["unfinished"] else "")
    return [
        row["task"], row["tier"], row["protocol"], row["agent"], row["config"], n, str(row["failed"]),
        text.interval(row["mean"], row["low"], row["high"]), row["interval"], text.number(row["median"]),
        text.interval(row["solved"], row["solved_low"], row["solved_high"]), text.number(row["best"]),
        "-" if text.empty(row["env_steps"]) else f"{row['env_steps']:,.0f}", text.duration(row["wall_s"]),
    ]  # fmt: skip


def early_stops(frame: pd.DataFrame) -> list[str]:
    """What must be said of the frame of `summary` about training that ends before its budget."""
    return [
        EARLY_STOP.format(tasks=tasks, tier=tier, value=value)
        for tier, rows in frame.groupby("tier", sort=False)
        for tasks, value in _stated(rows, "stop_return")
    ]


def _footnote(frame: pd.DataFrame) -> list[str]:
    return [
        "n: seeds that ended, failed ones included. Final: mean over the finished seeds of their last evaluation.",
        *(
            ["n is 1 for an agent that learns nothing (no updates): its seeds repeat one evaluation."]
            if (frame["n"] == 1).any()
            else []
        ),
        *(
            f"training equal bit for bit, counted once: {row['agent']} on {row['task']}, seeds {row['copies']}."
            for row in frame[frame["copies"] != ""].to_dict("records")
        ),
        "config: budget, hyper-parameters and settings; rows that differ in it are never combined.",
        "interval: t = Student's t over seeds; degenerate = all seeds equal and single = one seed: no interval;",
        "  share = the mean has none (t fails for seeds that are solved or not), read the one of the solved share;",
        "  empty = no seed finished; undefined = the task has no such metric.",
        "  A t interval of returns may pass the highest possible return; one of a success ends at 0 and 1.",
        "All intervals are over seeds, given the evaluation rollouts, which are the same for all agents and seeds.",
        *(line for sentence in early_stops(frame) for line in textwrap.wrap(sentence, 118)),
        *_solved(frame),
        "max in training: mean over seeds of the best evaluation, the paper's number; do not read it as the final one.",
        "env steps, wall: median of the finished seeds.",
    ]


def _solved(frame: pd.DataFrame) -> list[str]:
    return [
        f"solved: share of the n seeds with a final return >= {value:g} ({tasks}), binomial."
        for tasks, value in _stated(frame, "solved_at")
    ]


def _stated(frame: pd.DataFrame, column: str) -> list[tuple[str, float]]:
    """The tasks that state each value of a column, a suite's together as one pattern."""
    known = frame.dropna(subset=column)
    found: dict[tuple[str, float], list[str]] = {}
    for task, value in zip(known["task"], known[column], strict=True):
        found.setdefault((task.rsplit("/", 1)[0], float(value)), []).append(task)
    return [(_pattern(tasks), value) for (_, value), tasks in found.items()]


def _pattern(tasks: Sequence[str]) -> str:
    return tasks[0] if len(set(tasks)) == 1 else f"{commonprefix(list(tasks))}*"  # noqa: RUF071 - character by character
