"""The POPGym drawings: what the boxes are, what the caption says, and what is said where runs are missing."""

import math
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection
from nbclient import NotebookClient

from analysis.figures import FIGURES, popgym_curves, popgym_recall, popgym_summary
from analysis.figures.popgym_data import PREFIX, load, missing
from analysis.style import paper_style

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "analysis" / "notebooks" / "popgym.ipynb"
SPEC = FIGURES["popgym"]
NAN = math.nan
# final returns of seeds 0, 1, ...; random is -0.5, -0.5 and 2 / 27 - 1, high is 1
LAPTOP = {
    ("RepeatPreviousEasy", "amago"): [1.0, 0.5],
    ("RepeatPreviousMedium", "amago"): [0.25, 0.25],
    ("CountRecallEasy", "amago"): [-0.75, NAN],
    ("RepeatPreviousEasy", "amago-gru"): [0.25, -0.25],
    ("RepeatPreviousMedium", "amago-gru"): [0.25],
    ("AutoencodeEasy", "amago"): [1.0],  # not a task of the tier
}


@pytest.fixture
def root(tmp_path, write_run):
    for (task, agent), returns in LAPTOP.items():
        for seed, value in enumerate(returns):
            write_run(PREFIX + task, agent, seed, value, best=None if math.isnan(value) else 0.0)
    return tmp_path


def texts(figure):
    return " ".join(text.get_text() for text in [*figure.texts, *(t for axes in figure.axes for t in axes.texts)])


def test_the_39_tasks_and_the_laptop_ones():
    assert len(SPEC.tasks("paper")) == len(set(SPEC.tasks("paper"))) == 39
    assert set(SPEC.tasks("laptop")) < set(SPEC.tasks("paper"))
    recurrent = [task for task, agent, _ in SPEC.cells("laptop") if agent == "sb3-recurrent-ppo"]
    assert recurrent == [f"{PREFIX}RepeatPreviousEasy", f"{PREFIX}RepeatPreviousMedium"]


def test_our_boxes_by_hand(root):
    data = load("laptop", root)
    assert data.agents == ["amago", "amago-naive", "amago-gru", "amago-memoryless", "sb3-recurrent-ppo"]
    amago, naive, gru, *_ = popgym_summary.our_boxes(data.means("return"), data.finished, "return")
    # means over seeds: RepeatPreviousMedium 0.25, CountRecall -0.75 (one failed), RepeatPreviousEasy 0.75
    assert (amago.q1, amago.median, amago.q3, amago.n_tasks) == (-0.25, 0.25, 0.5, 3)
    assert amago.mean == pytest.approx(0.25 / 3) and amago.below == (-0.75,)
    assert amago.interval is None  # one task has a single seed
    assert naive.n_tasks == 0 and math.isnan(naive.mean)
    assert (gru.median, gru.n_tasks) == (0.125, 2)


def test_standardised_boxes_leave_out_what_only_one_agent_has(root):
    data = load("laptop", root)
    amago, _, gru, *_ = popgym_summary.our_boxes(popgym_summary.scores.standardised(data.means("return")))
    assert (amago.n_tasks, amago.median, gru.median) == (1, 1.0, 0.0)  # RepeatPreviousEasy; Medium is a tie
    assert "left out there: 2." in popgym_summary.caption(data)


def test_published_boxes_are_the_papers():
    published = load("paper", ROOT / "nowhere").published
    raw = popgym_summary.published_boxes(published, "return")
    standard = popgym_summary.published_boxes(published, "return_standardised")
    assert [box.agent for box in raw] == list(popgym_summary.PUBLISHED)
    assert (raw[0].q1, raw[0].median, raw[0].q3, raw[0].mean) == (0.5, 0.862, 0.99, 0.629)
    assert len(standard) == 5 and (standard[0].median, standard[0].q3, len(standard[0].below)) == (1.0, 1.0, 10)


def test_every_mark_is_inside_its_panel(root):
    with paper_style():
        figure = popgym_summary.plot(load("laptop", root))
    for axes in figure.axes:
        low, high = axes.get_ylim()
        ends = [y for box in axes.patches for y in (box.get_y(), box.get_y() + box.get_height())]
        ends += [y for line in axes.lines for y in np.atleast_1d(line.get_ydata())]
        assert low < np.nanmin(ends) and np.nanmax(ends) < high
    assert texts(figure).count("no runs") == 3 * 3  # three agents in three panels


def test_nothing_has_run_and_one_line_says_what_to_do(tmp_path):
    data = load("laptop", tmp_path)
    said = (
        "Missing: 130 of 130 runs of the tier laptop; `amago-bench reproduce --figure popgym --tier laptop` makes them."
    )
    assert missing(data, data.agents) == said
    assert all(said in part.caption(data) for part in (popgym_summary, popgym_curves))
    recall = popgym_recall.draw("laptop", tmp_path).caption  # 3 tasks, 2 agents, 5 seeds
    assert "none; AMAGO-GRU none." in recall and "Missing: 30 of 30 runs" in recall and "published" not in recall
    with paper_style():
        assert said.replace("`", "") in " ".join(texts(popgym_summary.plot(data)).split())
    paths = SPEC.write("smoke", tmp_path)
    assert paths == SPEC.files("smoke", tmp_path) and all(path.exists() for path in paths)
    assert [path.name for path in paths] == [
        f"{stem}-smoke.{end}"
        for stem in ("popgym", "popgym-curves", "popgym-recall")
        for end in ("png", "pdf", "csv", "md")
    ]


def test_the_data_of_the_three_drawings(root):
    table, curves, recall = (pd.read_csv(path) for path in SPEC.write("laptop", root) if path.suffix == ".csv")
    assert len(table) == 5 and table["n"].sum() == 9  # of the tasks of the tier, the failed seed included
    assert len(curves) == 8 * 2  # two evaluations of each finished run
    easy = recall[(recall["task"] == f"{PREFIX}RepeatPreviousEasy") & (recall["agent"] == "amago")]
    assert easy["return"].tolist() == [1.0, 0.5] and easy["normalised"].tolist() == [1.0, pytest.approx(2 / 3)]


def test_the_caption_counts_seeds_and_failures(root, write_run):
    write_run(f"{PREFIX}RepeatPreviousMedium", "amago", 2, 0.0, protocol="bbbbbbbb")
    text = popgym_summary.caption(load("laptop", root))
    assert "AMAGO (Transformer) 1 to 2 on 3 of 6; Naive off-policy Transformer none; AMAGO-GRU 1 to 2 on 2 of 6" in text
    assert "in no mean: 1." in text
    assert "Left out, other protocol or configuration: amago on RepeatPreviousMedium (bbb" in text
    assert "not the paper's setting" in text and "Satterthwaite" in text


def test_curves_are_averaged_where_all_seeds_have_an_evaluation(root):
    curves = load("laptop", root).curves
    seeds = curves[(curves["agent"] == "amago") & (curves["task"] == f"{PREFIX}RepeatPreviousEasy")]
    assert popgym_curves.mean_curve(seeds)["return_mean"].tolist() == [0.0, 0.75]
    assert popgym_curves.mean_curve(seeds.iloc[:-1])["return_mean"].tolist() == [0.0]  # one seed has ended earlier


def test_evaluations_at_unlike_steps_are_not_averaged():
    seeds = pd.DataFrame(
        [(0, 0, 500, 0.0), (0, 1, 1000, 1.0), (1, 0, 500, 0.5), (1, 1, 4000, 0.0)],
        columns=["seed", "evaluation", "env_steps", "return_mean"],
    )
    mean = popgym_curves.mean_curve(seeds)
    assert mean[["env_steps", "return_mean"]].to_numpy().tolist() == [[500, 0.25]]


def test_the_t_interval_of_a_mean_is_drawn_only_where_the_table_has_one(root, write_run):
    for seed, value in enumerate([0.1, 0.2]):
        write_run(f"{PREFIX}CountRecallEasy", "amago-gru", seed, value)  # RepeatPrevious is solved or not, this is not
    with paper_style():
        (axes,) = popgym_recall.plot(load("laptop", root, popgym_recall.RECALL, popgym_recall.AGENTS)).axes
    assert len([c for c in axes.collections if isinstance(c, LineCollection)]) == 1


def test_a_run_that_failed_or_goes_on_does_not_cut_the_mean_curve(root, monkeypatch):
    drawn, mean = [], popgym_curves.mean_curve
    monkeypatch.setattr(popgym_curves, "mean_curve", lambda seeds: drawn.append(seeds) or mean(seeds))
    with paper_style():
        popgym_curves.plot(load("laptop", root))
    (seeds,) = (s for s in drawn if set(s["task"]) == {f"{PREFIX}CountRecallEasy"})
    assert set(seeds["seed"]) == {0}  # seed 1 failed


def test_recall_differences_by_hand(root):
    runs = load("laptop", root).finished
    # normalised: amago (1 + 2/3) / 2, GRU (1/2 + 1/6) / 2
    assert popgym_recall.difference(runs[runs["task"] == f"{PREFIX}RepeatPreviousEasy"]) == "+0.50  (n = 2, 2)"
    assert popgym_recall.difference(runs[runs["task"] == f"{PREFIX}CountRecallEasy"]) == "no runs of amago-gru"


def test_the_notebook_runs_and_is_thin(root, monkeypatch):
    monkeypatch.setenv("AMAGO_BENCH_RESULTS", str(root))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert sum(len(cell.source.splitlines()) for cell in code) < 15
    assert not any(cell.outputs for cell in code)  # committed without outputs
    NotebookClient(notebook, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}).execute()
    shown = [set(output.data) - {"text/plain"} for output in code[1].outputs]
    assert shown == [{"image/png"}, {"text/markdown"}] * 3
