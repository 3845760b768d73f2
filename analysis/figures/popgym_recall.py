"""Transformer against GRU inside AMAGO, on the tasks that ask for recall."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis import frames, stats
from analysis.drawing import Drawing
from analysis.figures.popgym_data import CELL, Data, common_caption, load, short
from analysis.style import BLACK, agent_style

AGENTS = ("amago", "amago-gru")
RECALL = ("Autoencode", "Concentration", "CountRecall", "RepeatFirst", "RepeatPrevious")  # families, of all levels


def draw(tier: str, root: Path) -> Drawing:
    """The comparison with the final score of every seed."""
    data = load(tier, root, RECALL, AGENTS)
    return Drawing(plot(data), data.finished[[*CELL, "seed", "return", "normalised"]], caption(data))


def plot(data: Data) -> Figure:
    """The figure; call it inside `style.paper_style()`."""
    tasks = data.tasks
    figure = Figure(figsize=(8, 1.5 + 0.5 * len(tasks)), layout="constrained")
    axes = figure.add_subplot()
    for place, task in enumerate(tasks):
        runs = data.finished[data.finished["task"] == task]
        axes.axhline(place, color="#e4e4e4", linewidth=0.8, zorder=0)
        for agent, side in zip(AGENTS, (-0.13, 0.13), strict=True):
            _draw(axes, place + side, runs[runs["agent"] == agent], agent)
        axes.text(1.02, place, difference(runs), va="center", fontsize=8, transform=axes.get_yaxis_transform())
    axes.set_yticks(range(len(tasks)), [short(task) for task in tasks])
    axes.set_ylim(len(tasks) - 0.4, -0.6)
    for end, line in ((0, ":"), (1, (0, (4, 2)))):
        axes.axvline(end, color=BLACK, linestyle=line, linewidth=1, zorder=1)
    axes.grid(False)
    axes.set(title="Transformer and GRU on recall", xlabel="Normalised final return (random 0, high 1)")
    handles = [axes.plot([], [], **_look(agent), label=agent_style(agent).label)[0] for agent in AGENTS]
    figure.legend(handles=handles, loc="outside upper center", ncols=2, frameon=False)
    return figure


def _look(agent: str) -> dict[str, Any]:
    style = agent_style(agent)
    return {
        "color": style.color, "marker": style.marker, "markersize": 11 if style.marker == "*" else 6,
        "linestyle": "none", "zorder": 4,
    }  # fmt: skip


def _draw(axes: Axes, height: float, runs: pd.DataFrame, agent: str) -> None:
    seeds = runs["normalised"]
    estimate = stats.mean_interval(seeds, failed="error")
    if estimate.value is None:  # no seeds
        return
    color = agent_style(agent).color
    solved_or_not = frames.solved_at(runs) is not None  # Student's t is wrong there, so the table has none either
    if estimate.low is not None and estimate.high is not None and not solved_or_not:
        axes.hlines(height, estimate.low, estimate.high, color=color, linewidth=1.3, zorder=3)
    axes.plot(estimate.value, height, **_look(agent))
    axes.scatter(seeds, np.full(len(seeds), height), s=12, color=color, edgecolor="white", linewidth=0.5, zorder=5)


def difference(runs: pd.DataFrame) -> str:
    """The mean difference of the two agents on one task in words, or which of them has no run."""
    first, second = (runs.loc[runs["agent"] == agent, "normalised"] for agent in AGENTS)
    if lacking := [a for a, seeds in zip(AGENTS, (first, second), strict=True) if seeds.empty]:
        return f"no runs of {' and '.join(lacking)}"
    return f"{first.mean() - second.mean():+z.2f}  (n = {len(first)}, {len(second)})"


def caption(data: Data) -> str:
    """The caption: what is drawn, the kind of interval, n, what is missing."""
    sentences = [
        "Large marks: mean over seeds; small dots: single seeds; lines: 95 % Student t interval over seeds (none with "
        "one seed, where all are equal, or on a task whose seeds are solved or not). Right: difference of the means, "
        "and seeds of the two.",
        "Everything else in the two agents is the same.",
        *common_caption(data, AGENTS),
    ]
    return " ".join(sentences)
