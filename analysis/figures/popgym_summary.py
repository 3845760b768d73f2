"""The summary: box plots over tasks, the paper's two panels with ours beside, and our normalised score."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis import scores, stats
from analysis.drawing import Drawing
from analysis.figures.popgym_data import CELL, PREFIX, SPEC, Data, common_caption, load, missing
from analysis.style import BLACK, PLACEHOLDER, agent_style
from analysis.table import summary

WIDTH, GAP = 0.62, 0.9  # of a box and between the two groups, where neighbours are 1 apart
PUBLISHED = (
    "amago", "amago-naive", "popgym-best-on-policy", "popgym-gru", "popgym-linear-transformer",
    "popgym-worst-on-policy",
)  # fmt: skip


@dataclass(frozen=True)
class Box:
    """Quartiles, median and mean over tasks, and the tasks below the box. NaN is not drawn."""

    agent: str
    q1: float
    median: float
    q3: float
    mean: float
    below: tuple[float, ...] = ()
    interval: tuple[float, float] | None = None  # of the mean, over seeds
    n_tasks: int | None = None  # None: the paper's 39


def draw(tier: str, root: Path) -> Drawing:
    """The boxes with the rows of `table.summary` that ours are made of."""
    data = load(tier, root)
    rows = summary(root, tier, f"{PREFIX}*", SPEC.agents).merge(data.runs[CELL].drop_duplicates())
    return Drawing(plot(data), rows, caption(data))


def published_boxes(published: pd.DataFrame, metric: str) -> list[Box]:
    """The paper's boxes of `return` or `return_standardised`, in its order."""
    boxes = []
    for agent in PUBLISHED:
        rows = published[(published["metric"] == metric) & (published["agent"] == agent)]
        value = dict(zip(rows["x_kind"], rows["value"], strict=True))
        if "median" not in value:
            continue  # the standardised panel has no worst baseline
        below = rows.loc[rows["x_kind"] == "below_q1_point", "value"]
        # The one third quartile that cannot be read, AMAGO's standardised one, lies between its median, 1, and the end
        # of the scale, 1.
        q3 = value["q3"] if value["median"] < 1 else value.get("q3", 1.0)
        boxes.append(Box(agent, value["q1"], value["median"], q3, value.get("mean", np.nan), tuple(below)))
    return boxes


def our_boxes(means: pd.DataFrame, runs: pd.DataFrame | None = None, column: str = "") -> list[Box]:
    """A box for each agent from tasks x agents; all NaN without a task. Intervals from `runs`, where given."""
    boxes = []
    for agent in means.columns:
        values = means[agent].dropna().to_numpy()
        if not values.size:
            boxes.append(Box(agent, np.nan, np.nan, np.nan, np.nan, n_tasks=0))
            continue
        q1, median, q3 = np.quantile(values, [0.25, 0.5, 0.75])
        interval = None if runs is None else _interval(runs[runs["agent"] == agent], column)
        below = tuple(values[values < q1])
        boxes.append(Box(agent, q1, median, q3, values.mean(), below, interval, values.size))
    return boxes


def _interval(runs: pd.DataFrame, column: str) -> tuple[float, float] | None:
    by_task = {str(task): cell.to_numpy() for task, cell in runs.groupby("task")[column]}
    estimate = stats.stratified_mean(stats.Scores.of(by_task, failed="error"))
    return None if estimate.low is None or estimate.high is None else (estimate.low, estimate.high)


def plot(data: Data) -> Figure:
    """The figure; call it inside `style.paper_style()`."""
    figure = Figure(figsize=(16.5, 5.6), layout="constrained")
    figure.suptitle("POPGym", fontsize=14, x=0.02, ha="left")
    raw, standard, normal = figure.subplots(1, 3, width_ratios=[12, 11, 6])
    means = data.means("return")
    ours = our_boxes(means, data.finished, "return")
    _panel(raw, published_boxes(data.published, "return"), ours, data)
    raw.set_title("Mean return, not standardised", pad=20)
    raw.set_ylabel("Return")
    ours = our_boxes(scores.standardised(means))
    _panel(standard, published_boxes(data.published, "return_standardised"), ours, data)
    standard.set_title("Standardised by the paper's rule (0 to 1)", pad=20)
    standard.set_ylabel("Standardised return")
    _panel(normal, [], our_boxes(data.means("normalised"), data.finished, "normalised"), data)
    normal.set_title("Normalised (random 0, high 1)", pad=20)
    normal.set_ylabel("Normalised return")
    normal.axhline(1, color=BLACK, linestyle=(0, (4, 2)), linewidth=1, zorder=1)
    normal.axhline(0, color=BLACK, linestyle=":", linewidth=1, zorder=1)
    figure.legend(
        handles=[
            Patch(facecolor="white", edgecolor=BLACK, label="Quartiles over tasks"),
            Line2D([], [], color=BLACK, linewidth=2, label="Median"),
            Line2D([], [], color=BLACK, marker="o", linestyle="none", label="Mean, 95 % interval"),
            Line2D([], [], color=BLACK, marker="d", markersize=4, linestyle="none", label="Task below the box"),
        ],
        loc="outside upper right", ncols=4, frameon=False,
    )  # fmt: skip
    return figure


def _panel(axes: Axes, published: list[Box], ours: list[Box], data: Data) -> None:
    """Published boxes to the left, pale; ours to the right, full. An agent without runs keeps its place."""
    start = len(published) + (GAP if published else 0)
    places = [*range(len(published)), *(start + i for i in range(len(ours)))]
    across = axes.get_xaxis_transform()  # x in places, y from 0 to 1
    for place, box in zip(places, [*published, *ours], strict=True):
        if box.n_tasks != 0:
            _draw(axes, place, box, alpha=0.35 if box.n_tasks is None else 0.9)
        elif any(each.n_tasks for each in ours):
            axes.text(place, 0.5, "no runs", rotation=90, **PLACEHOLDER, transform=across)
    middle = (start + places[-1]) / 2
    if not any(box.n_tasks for box in ours):
        said = textwrap.fill(missing(data, data.agents).replace("`", ""), 30, break_on_hyphens=False)
        axes.text(middle, 0.5, said, **PLACEHOLDER, transform=across, fontsize=9)
    labels = [_label(box, len(SPEC.tasks(data.tier))) for box in (*published, *ours)]
    axes.set_xticks(places, labels, fontsize=8, rotation=38, ha="right", rotation_mode="anchor")
    axes.set_xlim(-0.6, places[-1] + 0.6)
    over: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 8.5, "style": "italic", "transform": across}
    axes.text(middle, 1.01, f"this project, {data.tier} tier, {len(SPEC.tasks(data.tier))} tasks", **over)
    if published:
        axes.text((len(published) - 1) / 2, 1.01, "published, 39 tasks", **over)
        axes.axvline(start - (1 + GAP) / 2, color="#999999", linewidth=0.8)
    axes.use_sticky_edges = False  # else a box that ends at 0 or 1 ends at the frame
    axes.autoscale_view()


def _draw(axes: Axes, place: float, box: Box, alpha: float) -> None:
    left, right = place - WIDTH / 2, place + WIDTH / 2
    color = agent_style(box.agent).color
    axes.bar(place, box.q3 - box.q1, WIDTH, box.q1, color=color, alpha=alpha, zorder=2)
    axes.bar(place, box.q3 - box.q1, WIDTH, box.q1, color="none", edgecolor=BLACK, linewidth=0.8, zorder=3)
    axes.plot([left - 0.05, right + 0.05], [box.median] * 2, color=BLACK, linewidth=2, zorder=4)
    axes.plot([place] * len(box.below), box.below, "d", color="#777777", markeredgecolor=BLACK, markersize=4, zorder=4)
    if box.interval:
        axes.vlines(place, *box.interval, color=BLACK, linewidth=1.2, zorder=5)
    axes.plot(place, box.mean, "o", color=BLACK, markersize=5.5, markeredgecolor="white", zorder=6)


def _label(box: Box, all_tasks: int) -> str:
    label = agent_style(box.agent).label
    return f"{label}, {box.n_tasks} of {all_tasks} tasks" if box.n_tasks and box.n_tasks < all_tasks else label


def caption(data: Data) -> str:
    """The caption: what is drawn, the kind of interval, n, what is missing."""
    undecided = int(scores.standardised(data.means("return")).isna().all(axis=1).sum())
    sentences = [
        f"Boxes: quartiles over tasks of each task's mean over seeds; {len(SPEC.tasks(data.tier))} tasks at this tier.",
        "This project: final evaluation (100 rollouts). Published: read from the paper's figure, probably maxima over "
        "training; the standardised mean and third quartile of its AMAGO cannot be read: no dot, and 1 (its median).",
        "Standardised: on each task the lowest mean of the methods shown is 0 and the highest 1, ours among ours and "
        "the published among the published, so that the two groups share the rule and not the scale."
        + (f" Tasks without two different means are left out there: {undecided}." if undecided else ""),
        "Normalised: 0 is the return of random actions and 1 that of the task's oracle or scripted policy.",
        "Bars at our means: 95 % interval of the mean over tasks, seeds within tasks (Satterthwaite's t); none with a "
        "single seed or where all seeds are equal, and none for standardised scores, whose scale depends on the seeds.",
        *common_caption(data, data.agents),
        *(["Do not compare it with the published boxes."] if data.tier != "paper" else []),
    ]
    return " ".join(sentences)
