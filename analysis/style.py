"""One style for all figures: what an agent is called and how it is drawn. Colours are Okabe and Ito's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib

GREEN, ORANGE, BLUE, SKY, PURPLE, VERMILION, YELLOW, BLACK, GREY = (
    "#009E73", "#E69F00", "#0072B2", "#56B4E9", "#CC79A7", "#D55E00", "#F0E442", "#000000", "#767676",
)  # fmt: skip
# Of the words that stand where there is nothing to draw.
PLACEHOLDER: dict[str, Any] = {
    "color": "#888888", "ha": "center", "va": "center",
    "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 2},  # covers the grid
}  # fmt: skip


@dataclass(frozen=True)
class AgentStyle:
    label: str
    color: str
    marker: str


# The paper's colours where it has them: green AMAGO with stars, yellow GRU and RNN, blue Transformer; in its POPGym
# figure a grey naive agent and PPO baselines in blue, purple, yellow and red.
AGENTS = {
    "amago": AgentStyle("AMAGO (Transformer)", GREEN, "*"),
    "amago-gru": AgentStyle("AMAGO-GRU", ORANGE, "s"),
    "amago-memoryless": AgentStyle("AMAGO without memory", PURPLE, "v"),
    "amago-naive": AgentStyle("Naive off-policy Transformer", GREY, "X"),
    "sb3-recurrent-ppo": AgentStyle("Recurrent PPO (SB3)", BLUE, "D"),
    "sb3-ppo": AgentStyle("PPO without memory (SB3)", SKY, "h"),
    "random": AgentStyle("Random", GREY, "x"),
    "oracle": AgentStyle("Oracle", BLACK, "d"),
    "scripted": AgentStyle("Scripted policy", BLACK, "P"),
    "ni2023-transformer": AgentStyle("Transformer (Ni et al., 2023)", BLUE, "o"),
    "ni2022-rnn": AgentStyle("RNN (Ni et al., 2022)", ORANGE, "D"),
    "popgym-best-on-policy": AgentStyle("Best on-policy baseline per task", BLUE, "o"),
    "popgym-gru": AgentStyle("On-policy GRU", PURPLE, "o"),
    "popgym-linear-transformer": AgentStyle("On-policy linear Transformer", YELLOW, "o"),
    "popgym-worst-on-policy": AgentStyle("Worst on-policy baseline per task", VERMILION, "o"),
}


def agent_style(agent: str) -> AgentStyle:
    """The style of an agent; an unknown one is shown by its id in grey-blue."""
    return AGENTS.get(agent, AgentStyle(agent, SKY, "P"))


@contextmanager
def paper_style() -> Iterator[None]:
    """Matplotlib's defaults with the settings of our figures, inside the block.

    The settings of the caller, or of a `matplotlibrc`, neither change a figure nor are changed.
    """
    settings: dict[Any, Any] = {
        "figure.dpi": 100, "savefig.dpi": 200, "font.size": 10, "axes.titlesize": 12, "axes.labelsize": 10.5,
        "legend.fontsize": 8.5, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
        "axes.grid.axis": "y", "grid.color": "#e4e4e4", "axes.axisbelow": True, "lines.linewidth": 1.8,
        "pdf.fonttype": 42, "legend.frameon": False,
    }  # fmt: skip
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(settings)
        yield
