"""Figure "POPGym": the paper's summary figure beside ours, learning curves, recall by Transformer and GRU."""

from __future__ import annotations

from pathlib import Path

from analysis.figures import popgym_curves, popgym_recall, popgym_summary
from analysis.figures.popgym_data import load
from analysis.style import paper_style, save
from results.store import results_root


def draw(tier: str, root: Path | None = None) -> list[Path]:
    """Writes the summary and its two parts as PNG and PDF under `root`/figures, from the tables alone; the paths."""
    root = root or results_root()
    data = load(tier, root)
    paths = []
    with paper_style():
        for part in (popgym_summary, popgym_curves, popgym_recall):
            paths += save(part.plot(data), root / "figures", f"{part.STEM}-{tier}")
    return paths
