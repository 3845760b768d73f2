"""Aggregates over the tasks of a suite: agents are compared over the same tasks, on the normalised scale."""

from __future__ import annotations

import pandas as pd

from analysis import frames, stats, text
from analysis.scores import with_normalised

SCALE_ENDS = ("random", "oracle", "scripted")  # they have 0 and 1, up to the noise of an evaluation
COLUMNS = (
    "suite", "tier", "tasks", "agent", "n", "failed", "iqm", "iqm_low", "iqm_high", "mean", "mean_low", "mean_high",
    "optimality_gap",
)  # fmt: skip
NOTE = (
    "Normalised scores (random 0, oracle or scripted policy 1) over the tasks on which some agent has finished runs,",
    "for each agent that has them all; every task weighs the same. n: seeds of all tasks; failed ones are not scored.",
    "IQM: interquartile mean, percentile bootstrap of seeds within tasks (too narrow at few seeds). mean: t interval",
    "(Satterthwaite), seeds within tasks. None where a task has one seed or all are equal. gap: mean shortfall to 1.",
    "Of several protocols or configurations the one with the most seeds.",
)


def over_tasks(scores: pd.DataFrame) -> pd.DataFrame:
    """One row per suite, tier, set of tasks and agent of `frames.scores`; empty if no agent has two tasks with a scale.

    A set is what the finished runs of some agent cover, and all agents that cover it are compared over it, since means
    over different tasks are not comparable. `tasks` is the size of the set. `random`, `oracle` and `scripted` are left
    out.
    """
    runs, _ = frames.one_cell(with_normalised(scores))
    runs = runs[runs["normalised"].notna() | (runs["state"] == "failed")]
    runs = runs[~runs["agent"].isin(SCALE_ENDS)].assign(suite=runs["task"].str.replace(r"/[^/]*$", "", regex=True))
    rows = []
    for (suite, each_tier), cell in runs.groupby(["suite", "tier"], sort=False):
        covered = {
            str(agent): frozenset(own.loc[own["normalised"].notna(), "task"]) for agent, own in cell.groupby("agent")
        }
        for chosen in sorted(
            {tasks for tasks in covered.values() if len(tasks) > 1}, key=lambda s: (-len(s), sorted(s))
        ):
            for agent in (agent for agent, tasks in covered.items() if chosen <= tasks):
                own = cell[(cell["agent"] == agent) & cell["task"].isin(chosen)]
                rows.append((suite, each_tier, len(chosen), agent, *_numbers(own)))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _numbers(runs: pd.DataFrame) -> tuple[int | float | None, ...]:
    by_task = {str(task): own.to_numpy() for task, own in runs.groupby("task")["normalised"]}
    scores = stats.Scores.of(by_task, failed="exclude")
    iqm, mean = stats.bootstrap(scores, stats.interquartile_mean), stats.stratified_mean(scores)
    gap = float(stats.optimality_gap(scores))
    return len(runs), scores.failed, iqm.value, iqm.low, iqm.high, mean.value, mean.low, mean.high, gap


def render(frame: pd.DataFrame, format: str = "text") -> str:
    """The frame of `over_tasks` as text or Markdown, empty if it has no rows."""
    if frame.empty:
        return ""
    header = ["over tasks", "tier", "tasks", "agent", "n", "failed", "IQM [95%]", "mean [95%]", "gap"]
    body = [
        [
            row["suite"], row["tier"], str(row["tasks"]), row["agent"], str(row["n"]), str(row["failed"]),
            text.interval(row["iqm"], row["iqm_low"], row["iqm_high"]),
            text.interval(row["mean"], row["mean_low"], row["mean_high"]), text.number(row["optimality_gap"]),
        ]
        for row in frame.to_dict("records")
    ]  # fmt: skip
    return "\n".join([*text.lay_out(header, body, format), "", *NOTE]) + "\n"
