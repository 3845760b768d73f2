"""Learning curves, one small panel per task: return of the evaluations against environment steps."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.drawing import Drawing
from analysis.figures.popgym_data import SPEC, Data, common_caption, load, short
from analysis.style import BLACK, PLACEHOLDER, agent_style


def draw(tier: str, root: Path) -> Drawing:
    """The curves with every evaluation on them."""
    data = load(tier, root)
    return Drawing(plot(data), data.curves, caption(data))


def plot(data: Data) -> Figure:
    """The figure; call it inside `style.paper_style()`."""
    tasks = data.tasks
    columns = min(len(tasks), 6 if len(tasks) > 9 else 3)
    rows = math.ceil(len(tasks) / columns)
    figure = Figure(figsize=(0.4 + 3.1 * columns, 0.8 + 2.2 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, task in zip(panels, tasks, strict=False):
        _scale(axes, data.runs[data.runs["task"] == task])
        _panel(axes, task, data.curves[data.curves["task"] == task], set(data.finished["run_id"]))
    for axes in panels[len(tasks) :]:
        axes.set_axis_off()
    figure.supxlabel("Environment steps", fontsize=10)
    figure.supylabel("Mean return of an evaluation", fontsize=10)
    handles = [
        *(Line2D([], [], color=agent_style(a).color, label=agent_style(a).label) for a in data.agents),
        Line2D([], [], color=BLACK, linestyle=(0, (4, 2)), linewidth=1, label="High (oracle or scripted)"),
        Line2D([], [], color=BLACK, linestyle=":", linewidth=1, label="Random"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=min(4, 2 * columns), frameon=False)
    return figure


def _scale(axes: Axes, runs: pd.DataFrame) -> None:
    """The two ends of the task's normalised score, as far as its runs state them."""
    for column, style in (("high", (0, (4, 2))), ("random_return", ":")):
        for value in runs[column].dropna().unique()[:1]:
            axes.axhline(value, color=BLACK, linestyle=style, linewidth=1, zorder=1)


def _panel(axes: Axes, task: str, curves: pd.DataFrame, finished: set[str]) -> None:
    axes.set_title(short(task), fontsize=9.5)
    axes.tick_params(labelsize=8)
    axes.xaxis.set_major_formatter(lambda x, _: _steps(x))
    axes.locator_params(axis="x", nbins=4)
    if curves.empty:
        axes.set_xticks([])
        axes.text(0.5, 0.5, "no runs", **PLACEHOLDER, transform=axes.transAxes)
    for agent in SPEC.agents:
        seeds = curves[curves["agent"] == agent]
        color = agent_style(agent).color
        for _, seed in seeds.groupby("seed"):
            axes.plot(seed["env_steps"], seed["return_mean"], color=color, linewidth=0.6, alpha=0.4, zorder=2)
        mean = mean_curve(seeds[seeds["run_id"].isin(finished)])
        axes.plot(mean["env_steps"], mean["return_mean"], color=color, zorder=3)


def mean_curve(seeds: pd.DataFrame) -> pd.DataFrame:
    """Mean over seeds of each evaluation that all seeds have at the same step.

    A mean over fewer would jump where a seed ends, and one over unlike steps would be at none of them.
    """
    evaluations = seeds.groupby(["evaluation", "env_steps"])["return_mean"]
    return evaluations.mean()[evaluations.size() == seeds["seed"].nunique()].reset_index()


def _steps(x: float) -> str:
    return f"{x / 1e6:g}M" if abs(x) >= 1e6 else f"{x / 1e3:g}k" if abs(x) >= 1e3 else f"{x:g}"


def caption(data: Data) -> str:
    """The caption: what is drawn, the kind of interval, n, what is missing."""
    sentences = [
        "Thin lines: single seeds; thick lines: mean of the finished ones at the evaluations that all of these have "
        "at the same step; the last point is the final evaluation.",
        "No interval is drawn: the final returns have theirs in the table.",
        *common_caption(data, data.agents),
    ]
    return " ".join(sentences)
