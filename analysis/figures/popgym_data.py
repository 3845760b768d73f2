"""What the drawings of figure "POPGym" share: their rows, and the sentences in every caption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from analysis import frames, scores
from analysis.figures import FIGURES
from analysis.style import agent_style

NAME = "popgym"
SPEC = FIGURES[NAME]
PREFIX = "long_term_memory/popgym/"
CELL = ["task", "tier", "protocol", "agent", "config"]


@dataclass(frozen=True)
class Data:
    """What the drawings show. `runs` are rows of `frames.scores` with `normalised`, one cell per task and agent."""

    tier: str
    tasks: Sequence[str]
    runs: pd.DataFrame
    curves: pd.DataFrame  # of the same runs, every evaluation
    published: pd.DataFrame
    second: pd.DataFrame  # what `frames.one_cell` left out

    @property
    def finished(self) -> pd.DataFrame:
        return self.runs[self.runs["state"] == "finished"]

    @property
    def agents(self) -> list[str]:
        """The figure's agents that the tier plans or that have run, in order."""
        some = {agent for _, agent, _ in SPEC.cells(self.tier)} | set(self.runs["agent"])
        return [agent for agent in SPEC.agents if agent in some]

    def means(self, column: str) -> pd.DataFrame:
        """Mean over finished seeds, tasks x agents in the figure's order; NaN where there is none."""
        means = self.finished.pivot_table(column, "task", "agent", aggfunc="mean")
        return means.reindex(index=[t for t in self.tasks if t in means.index], columns=self.agents)


def load(tier: str, root: Path, families: tuple[str, ...] = ("",), agents: Sequence[str] = SPEC.agents) -> Data:
    """The rows of the figure's tasks of these families and agents at one tier, and the published boxes."""
    tasks = [task for task in SPEC.tasks(tier) if short(task).startswith(families)]
    runs = frames.scores(root, tier, f"{PREFIX}*", agents)
    runs, second = frames.one_cell(scores.with_normalised(runs[runs["task"].isin(tasks)]))
    curves = frames.headline(frames.load("curves", root, tier))
    published = frames.load("published").query("figure == 'popgym_summary'")
    return Data(tier, tasks, runs, curves[curves["run_id"].isin(runs["run_id"])], published, second)


def short(task: str) -> str:
    return task.removeprefix(PREFIX)


def missing(data: Data, agents: Sequence[str]) -> str:
    """One sentence on the missing runs of these agents and how to make them; empty if none is missing."""
    cells = [cell for cell in SPEC.cells(data.tier) if cell[0] in data.tasks and cell[1] in agents]
    wanted = {(task, agent, seed) for task, agent, seeds in cells for seed in range(seeds)}
    have = set(data.finished[["task", "agent", "seed"]].itertuples(index=False, name=None))
    if not (left := wanted - have):
        return ""
    return (
        f"Missing: {len(left)} of {len(wanted)} runs of the tier {data.tier}; "
        f"`amago-bench reproduce --figure {NAME} --tier {data.tier}` makes them."
    )


def common_caption(data: Data, agents: Sequence[str]) -> list[str]:
    """The sentences in every caption: n, failures, what is missing or left out, the tier."""
    sentences = [f"Seeds per task (n): {'; '.join(_counts(data, agent) for agent in agents)}."]
    if failed := int((data.runs["agent"].isin(agents) & (data.runs["state"] == "failed")).sum()):
        sentences.append(f"Failed runs, without a return and in no mean: {failed}.")
    if said := missing(data, agents):
        sentences.append(said)
    if data.tier != "paper":
        sentences.append(
            f"The tier {data.tier} is not the paper's setting: fewer tasks, smaller networks, at most 2 % of the steps."
        )
    if not data.second.empty:
        second = data.second.to_dict("records")
        names = (f"{row['agent']} on {short(row['task'])} ({row['protocol']}/{row['config']})" for row in second)
        sentences.append(f"Left out, other protocol or configuration: {', '.join(names)}.")
    return sentences


def _counts(data: Data, agent: str) -> str:
    seeds = data.finished.query("agent == @agent").groupby("task").size()
    label = agent_style(agent).label
    if seeds.empty:
        return f"{label} none"
    least, most = seeds.min(), seeds.max()
    span = f"{least}" if least == most else f"{least} to {most}"
    return f"{label} {span} on {len(seeds)} of {len(data.tasks)}"
