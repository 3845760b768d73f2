"""Figure "Passive T-Maze": return against corridor length, after the paper's case studies figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import frames
from analysis.drawing import Drawing
from analysis.figures import FIGURES
from analysis.style import AGENTS, BLACK, GREY, agent_style
from analysis.table import early_stops, summary

SPEC = FIGURES["passive-tmaze"]
PREFIX = "long_term_memory/tmaze/passive-"
ORACLE, MEMORY_FREE, LOWEST = 1.0, 0.5, -1.0
AGENT_STEP, SEED_STEP = 1.06, 1.012  # side by side on the log axis, since most returns are exactly 1.0 or 0.5


@dataclass(frozen=True)
class Data:
    """What the figure shows: `means` are rows of `table.summary`, `seeds` of `frames.scores`, both with `corridor`."""

    tier: str
    means: pd.DataFrame
    seeds: pd.DataFrame
    published: pd.DataFrame
    left_out: tuple[str, ...]  # cells of a second protocol or configuration


def draw(tier: str, root: Path) -> Drawing:
    """The figure with the rows of `table.summary` that it shows."""
    data = load(tier, root)
    return Drawing(plot(data), data.means.drop(columns="corridor"), caption(data))


def load(tier: str, root: Path) -> Data:
    """The rows of the figure's tasks and agents at one tier, and the published points."""
    runs = frames.scores(root, tier, f"{PREFIX}*", SPEC.agents)
    seeds, second = frames.one_cell(runs[runs["task"].isin(SPEC.tasks(tier))])
    cells = seeds[["task", "agent", "protocol", "config"]].drop_duplicates()
    means = summary(root, tier, f"{PREFIX}*", SPEC.agents).merge(cells)
    published = frames.load("published").query("figure == 'passive_tmaze'")
    means, seeds, published = (
        frame.assign(corridor=_corridors(frame)).sort_values("corridor") for frame in (means, seeds, published)
    )
    left_out = tuple(
        f"{row['agent']} at {row['task'].removeprefix(PREFIX)} ({row['protocol']}/{row['config']})"
        for row in second.to_dict("records")
    )
    return Data(tier, means, seeds, published, left_out)


def _corridors(frame: pd.DataFrame) -> pd.Series:
    return frame["task"].str.removeprefix(PREFIX).astype(int)


def plot(data: Data) -> Figure:
    """The figure; call it inside `style.paper_style()`."""
    figure = Figure(figsize=(7.4, 3.6))
    axes = figure.add_subplot()
    bounds = [
        axes.axhline(ORACLE, color=BLACK, linestyle=(0, (4, 2)), linewidth=1.2, label="Oracle, 1.0", zorder=1),
        axes.axhline(MEMORY_FREE, color=GREY, linestyle=":", linewidth=1.4, label="Best without memory, 0.5", zorder=1),
    ]
    published = _draw_published(axes, data.published)
    middle = (len(SPEC.agents) - 1) / 2
    ours = [_draw_agent(axes, data, agent, AGENT_STEP ** (i - middle)) for i, agent in enumerate(SPEC.agents)]
    axes.set(
        title="Passive T-Maze",
        xlabel="Corridor length N (context and horizon N + 1)",
        ylabel="Average return",
        xscale="log",
        xlim=(6.8, 13_500),
        ylim=(LOWEST - 0.05, 1.15),
        yticks=[-1, -0.5, 0, 0.5, 1],
    )
    axes.set_xticks([10, 30, 100, 300, 1000, 3000, 10_000])
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    axes.minorticks_off()
    groups = {f"This project, {data.tier} tier": ours, "Published": published, "Bounds": bounds}
    for (title, handles), height in zip(groups.items(), (1.03, 0.64, 0.25), strict=True):
        legend = axes.legend(
            handles=handles, title=title, loc="upper left", bbox_to_anchor=(1.01, height), alignment="left"
        )
        axes.add_artist(legend)
    return figure


def _draw_agent(axes: Axes, data: Data, agent: str, shift: float) -> Line2D:
    """Draws one agent beside the others and returns its legend entry."""
    style = agent_style(agent)
    means = data.means[data.means["agent"] == agent]
    means = means.assign(x=means["corridor"] * shift)
    look: dict[str, Any] = {
        "color": style.color,
        "marker": style.marker,
        "markersize": 10 if style.marker == "*" else 6,
    }
    if means["mean"].isna().all():
        return Line2D([], [], **look, linestyle="none", label=f"{style.label}: {_no_data(data, agent)}")
    dots: dict[str, Any] = {
        "s": 17,
        "color": style.color,
        "alpha": 0.75,
        "edgecolor": "white",
        "linewidth": 0.6,
        "zorder": 4,
    }
    for _, seeds in data.seeds[data.seeds["agent"] == agent].dropna(subset="return").groupby("corridor"):
        x = seeds["corridor"] * shift
        spread = SEED_STEP ** (np.arange(len(seeds)) - (len(seeds) - 1) / 2)
        axes.scatter(x * spread, seeds["return"], **dots)
    barred = means.dropna(subset="low")  # where the table gives an interval
    lengths = [barred["mean"] - barred["low"].clip(lower=LOWEST), barred["high"].clip(upper=ORACLE) - barred["mean"]]
    axes.errorbar(barred["x"], barred["mean"], lengths, fmt="none", ecolor=style.color, elinewidth=1, capsize=3)
    (line,) = axes.plot(means["x"], means["mean"], **look, label=style.label, alpha=0.9, zorder=3)
    return line


def _no_data(data: Data, agent: str) -> str:
    """Why an agent has no line; never just a missing one."""
    failed = int(data.means.loc[data.means["agent"] == agent, "failed"].sum())
    return f"no data (0/{sum(SPEC.runs[data.tier].values())} runs{f', {failed} failed' if failed else ''})"


def _draw_published(axes: Axes, published: pd.DataFrame) -> list[Line2D]:
    handles = []
    for agent in (agent for agent in AGENTS if agent in set(published["agent"])):
        points, style = published[published["agent"] == agent], agent_style(agent)
        handles += axes.plot(
            points["corridor"], points["value"], color=style.color, marker=style.marker, linestyle=(0, (2, 2)),
            linewidth=1.1, markersize=10 if style.marker == "*" else 5.5, markerfacecolor="white", label=style.label,
        )  # fmt: skip
    return handles


def caption(data: Data) -> str:
    """The caption: what the marks are, n and the kind of interval, what failed, what is missing."""
    sentences = [
        "Filled marks and solid lines: mean final return over seeds, this project; small dots: single seeds.",
        f"Agents are drawn side by side, marks up to {AGENT_STEP - 1:.0%} and dots up to "
        f"{AGENT_STEP * SEED_STEP**2 - 1:.0%} off their length, so that equal returns can be told apart.",
        f"n at N = {', '.join(str(n) for n in _corridors(pd.DataFrame({'task': SPEC.tasks(data.tier)})))}: "
        + "; ".join(f"{agent_style(agent).label} {_counts(data, agent)}" for agent in SPEC.agents)
        + ".",
        "Bars, where the table gives a mean an interval: 95 % Student t over seeds, cut at the lowest and highest "
        "possible return. A task whose seeds are solved or not has none: the table has the exact interval of the share "
        "of solved seeds.",
        "Hollow marks and dashed lines: published, maximum over training (read from the paper's figure).",
    ]
    if failed := int(data.means["failed"].sum()):
        sentences.append(f"Failed runs, counted in n but without a return: {failed}.")
    sentences += early_stops(data.means)
    if data.tier != "paper":
        sentences.append(
            f"The tier {data.tier} is not the paper's setting: smaller networks, 4 discounts instead of 18, another "
            "learning rate and update schedule."
        )
    if data.left_out:
        sentences.append(f"Left out, other protocol or configuration: {', '.join(data.left_out)}.")
    return " ".join(sentences)


def _counts(data: Data, agent: str) -> str:
    means = data.means[data.means["agent"] == agent].set_index("task")["n"]
    counts: Sequence[int] = [int(means.get(task, 0)) for task in SPEC.tasks(data.tier)]
    return ", ".join(map(str, counts)) if any(counts) else _no_data(data, agent)
