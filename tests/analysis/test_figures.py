"""The figure's data and caption, the files it writes, and the notebook that shows it."""

import math
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import matplotlib
import nbformat
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection
from matplotlib.legend import Legend
from matplotlib.text import Text
from nbclient import NotebookClient

from analysis.figures import FIGURES
from analysis.figures.passive_tmaze import caption, load, plot
from analysis.style import AGENTS, paper_style
from results.errors import UserError

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "analysis" / "notebooks" / "passive_tmaze.ipynb"
LAPTOP = {
    (10, "amago"): [1.0] * 5,
    (300, "amago"): [1.0, 0.5, math.nan],
    (100, "amago-gru"): [0.5, 0.6, 0.7, 0.8, 0.9],
    (1000, "amago-gru"): [0.5],  # not a task of the tier
}


def legends(figure):
    children = [child for child in figure.axes[0].get_children() if isinstance(child, Legend)]
    return [text.get_text() for legend in children for text in legend.get_texts()]


def test_a_mark_a_mean_and_a_dot_a_seed(write_tmaze):
    with paper_style():
        figure = plot(load("laptop", write_tmaze(LAPTOP)))
    (axes,) = figure.axes
    lines = {line.get_label(): line for line in axes.lines}
    amago = [line for line in axes.lines if line.get_label() == "AMAGO (Transformer)"]
    published, ours = amago  # published ones are drawn first, below
    assert ours.get_ydata().tolist() == [1.0, 0.75] and ours.get_color() == published.get_color()
    assert published.get_markerfacecolor() == "white" and min(published.get_xdata()) == 1500
    assert lines["AMAGO-GRU"].get_ydata().tolist() == [pytest.approx(0.7)]
    assert lines["Oracle, 1.0"].get_ydata()[0] == 1.0 and lines["Best without memory, 0.5"].get_ydata()[0] == 0.5
    dots = [len(collection.get_offsets()) for collection in axes.collections if len(collection.get_offsets()) > 1]
    assert sorted(dots) == [2, 5, 5]
    assert axes.get_xscale() == "log"


def test_every_point_and_bar_end_is_inside_the_axes(write_tmaze):
    worst = {(n, a): [1.0, -1.0, -1.0] for n in (10, 30, 100, 300) for a in FIGURES["passive-tmaze"].agents}
    with paper_style():
        figure = plot(load("laptop", write_tmaze(worst)))
    (axes,) = figure.axes
    points = [np.column_stack(line.get_data()) for line in axes.lines if line.get_linestyle() != "--"]
    points = [np.asarray(p, dtype=float) for p in points if not np.isin(p[:, 0], [0, 1]).all()]  # lines across the axes
    points += [np.asarray(c.get_offsets(), dtype=float) for c in axes.collections if len(c.get_offsets()) > 1]
    points += [segment for c in axes.collections if isinstance(c, LineCollection) for segment in c.get_segments()]
    x, y = np.concatenate(points).T
    assert y.min() == -1.0 and y.max() == 1.0
    assert axes.get_ylim()[0] < y.min() and y.max() < axes.get_ylim()[1]
    assert axes.get_xlim()[0] < x.min() and x.max() < axes.get_xlim()[1]


def test_a_bar_is_drawn_where_the_table_gives_an_interval_and_nowhere_else(write_tmaze):
    data = load("laptop", write_tmaze(LAPTOP))

    def bars(shown):
        with paper_style():
            (axes,) = plot(shown).axes
        return [
            segment[:, 1].tolist()
            for c in axes.collections
            if isinstance(c, LineCollection)
            for segment in c.get_segments()
        ]

    assert bars(data) == []  # seeds of the T-Maze are solved or not, so Student's t is wrong
    given = data.means["agent"] == "amago-gru"
    low, high = data.means["low"].mask(given, 0.5), data.means["high"].mask(given, 1.5)
    assert bars(replace(data, means=data.means.assign(low=low, high=high))) == [[0.5, pytest.approx(1.0)]]


def test_the_caption_says_what_differs_from_the_paper(write_tmaze):
    laptop, paper = (caption(load(tier, write_tmaze(LAPTOP))) for tier in ("laptop", "paper"))
    for said in ("4 discounts instead of 18", "after two evaluations in a row (20 rollouts each)", "up to 6% and dots"):
        assert said in laptop
    assert "Training on long_term_memory/tmaze/passive-" in laptop and "{" not in laptop
    assert "4 discounts" not in paper and "two evaluations" not in paper


def test_what_is_missing_is_said(write_tmaze):
    data = load("laptop", write_tmaze(LAPTOP))
    with paper_style():
        assert "AMAGO without memory: no data (0/18 runs)" in legends(plot(data))
    text = caption(data)
    assert "n at N = 10, 30, 100, 300: AMAGO (Transformer) 5, 0, 0, 3; AMAGO-GRU 0, 0, 5, 0;" in text
    assert "no data (0/18 runs)" in text and "without a return: 1." in text


def test_nothing_has_run(tmp_path):
    data = load("paper", tmp_path)
    assert caption(data).count("no data (0/35 runs)") == 3
    assert len(FIGURES["passive-tmaze"].write("paper", tmp_path)) == 4


def test_runs_that_all_failed_are_no_data(write_tmaze):
    data = load("smoke", write_tmaze({(10, "amago"): [math.nan]}, tier="smoke"))
    with paper_style():
        assert "AMAGO (Transformer): no data (0/2 runs, 1 failed)" in legends(plot(data))


def test_a_second_protocol_is_left_out_and_said(write_tmaze, write_run):
    root = write_tmaze({(10, "amago"): [1.0, 1.0]}, protocol="aaaaaaaa")
    write_run("long_term_memory/tmaze/passive-10", "amago", 2, 0.0, protocol="bbbbbbbb")
    data = load("laptop", root)
    assert data.means["mean"].tolist() == [1.0] and len(data.seeds) == 2
    assert "Left out, other protocol or configuration: amago at 10 (bbbbbbbb/" in caption(data)


def test_files_are_the_same_bytes_for_the_same_tables(write_tmaze):
    root = write_tmaze(LAPTOP)
    paths = FIGURES["passive-tmaze"].write("laptop", root)
    assert [path.name for path in paths] == [f"passive-tmaze-laptop.{end}" for end in ("png", "pdf", "csv", "md")]
    first = [path.read_bytes() for path in paths]
    assert [path.read_bytes() for path in FIGURES["passive-tmaze"].write("laptop", root)] == first
    assert first[0].startswith(b"\x89PNG") and first[1].startswith(b"%PDF")
    assert paths[3].read_text() == caption(load("laptop", root)) + "\n"


def test_settings_of_matplotlib_from_elsewhere_change_no_figure(write_tmaze):
    root = write_tmaze(LAPTOP)
    first = [path.read_bytes() for path in FIGURES["passive-tmaze"].write("laptop", root)]
    theirs = {"text.usetex": True, "font.family": "no such font", "lines.linestyle": ":", "savefig.transparent": True}
    with matplotlib.rc_context(theirs):  # as a matplotlibrc in the present folder would set them
        assert [path.read_bytes() for path in FIGURES["passive-tmaze"].write("laptop", root)] == first
        assert matplotlib.rcParams["lines.linestyle"] == ":"


def test_the_data_are_the_rows_of_the_table_that_are_shown(write_tmaze, write_run):
    root = write_tmaze(LAPTOP)
    write_run("long_term_memory/tmaze/passive-10", "amago", 5, 0.0, protocol="bbbbbbbb")  # left out
    *_, csv, _ = FIGURES["passive-tmaze"].write("laptop", root)
    rows = pd.read_csv(csv)
    assert rows["protocol"].unique().tolist() == ["abcd1234"]
    shown = list(zip(rows["task"].str.rsplit("-").str[-1].astype(int), rows["agent"], rows["mean"], strict=True))
    assert shown == [(10, "amago", 1.0), (100, "amago-gru", pytest.approx(0.7)), (300, "amago", 0.75)]


@pytest.mark.parametrize("name", FIGURES)
def test_the_caption_is_beside_the_picture_and_not_in_it(name, tmp_path):
    """Words in a picture are labels; the sentences of the caption are text, which can be read aloud and searched."""
    for module in FIGURES[name].drawings.values():
        with paper_style():
            drawing = import_module(module).draw("laptop", tmp_path)
        written = [text.get_text() for text in drawing.figure.findobj(Text)]
        sentences = drawing.caption.split(". ")
        assert len(sentences) > 3 and "\n" not in drawing.caption
        assert not any(sentence in " ".join(text.split()) for sentence in sentences for text in written)


def test_the_registry():
    with pytest.raises(UserError, match="no tier 'desktop'"):
        FIGURES["passive-tmaze"].write("desktop")
    for spec in FIGURES.values():
        assert set(spec.agents) <= set(AGENTS)


def test_the_notebook_runs_and_is_thin(write_tmaze, monkeypatch):
    root = write_tmaze(LAPTOP)
    monkeypatch.setenv("AMAGO_BENCH_RESULTS", str(root))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert sum(len(cell.source.splitlines()) for cell in code) < 15
    assert not any(cell.outputs for cell in code)  # committed without outputs
    NotebookClient(notebook, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}).execute()
    assert (root / "figures" / "passive-tmaze-laptop.png").exists()
    picture, below = code[1].outputs
    assert "image/png" in picture.data and "solved [95%]" in code[2].outputs[0].text
    assert below.data["text/markdown"] == (root / "figures" / "passive-tmaze-laptop.md").read_text()
