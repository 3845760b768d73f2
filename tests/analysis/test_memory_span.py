"""Memory spans by hand: 0.05 ** (1 / 5) = 0.549 is the bound of 5 of 5 seeds, 0.343 that of 4 of 5."""

import math

import pytest

from analysis import frames
from analysis.memory_span import LADDERS, render, spans

ONES = [1.0] * 5


def span(root, agent="amago", **kwargs):
    (row,) = spans(frames.scores(root, agents=[agent]), **kwargs).to_dict("records")
    return row


@pytest.mark.parametrize(
    ("returns", "steps", "ended_by"),
    [
        ({10: ONES, 30: ONES, 100: ONES}, 100, "300: no runs"),
        ({10: ONES, 30: [1, 1, 1, 1, 0.5], 100: ONES}, 10, "30: 4 of 5 solved, bound 0.34"),  # 100 does not count
        ({10: ONES, 30: [1, 1, 1, 1, math.nan]}, 10, "30: 4 of 5 solved, bound 0.34"),  # a failed seed solves nothing
        ({10: ONES, 100: ONES}, 10, "30: no runs"),
        ({10: [1.0] * 3, 30: ONES}, 0, "10: 3 of 3 solved, bound 0.37"),  # three seeds show nothing
        ({10: [0.94] + [1.0] * 7, 30: [0.5] * 2 + [1.0] * 8}, 10, "30: 8 of 10 solved, bound 0.49"),
        ({n: ONES for n in LADDERS[0].rungs}, 10_000, "the ladder's end"),
    ],
)
def test_t_maze(write_tmaze, returns, steps, ended_by):
    found = span(write_tmaze({(n, "amago"): values for n, values in returns.items()}))
    assert (found["span"], found["ended_by"]) == (steps, ended_by)


def test_the_bound_is_that_of_the_longest_rung_shown(write_tmaze):
    found = span(write_tmaze({(10, "amago"): [1.0] * 8, (30, "amago"): ONES, (100, "amago"): [0.0]}))
    assert (found["span"], found["n"], found["low"]) == (30, 5, pytest.approx(0.05 ** (1 / 5)))
    nothing = span(write_tmaze({(10, "amago-gru"): [0.0] * 5}), "amago-gru")
    assert nothing["span"] == 0 and math.isnan(nothing["low"])


def test_repeat_previous_counts_the_steps_back(write_run, tmp_path):
    task = "long_term_memory/popgym/RepeatPrevious"
    for seed in range(5):
        write_run(f"{task}Easy", "amago", seed, 0.9)
        write_run(f"{task}Medium", "amago", seed, 0.89)
        write_run(f"{task}Easy", "oracle", seed, 1.0, updates=0)
    (row,) = spans(frames.scores(tmp_path)).to_dict("records")
    assert (row["ladder"], row["agent"], row["span"]) == ("RepeatPrevious lag", "amago", 3)
    assert row["ended_by"].startswith("31: 0 of 5 solved")


def test_a_pattern_chooses_ladders_and_not_rungs(write_tmaze):
    root = write_tmaze({(n, "amago"): ONES for n in (10, 30)})
    assert span(root, task="*/passive-30")["span"] == 30
    assert (none := spans(frames.scores(root), task="*popgym*")).empty and render(none) == ""
    assert spans(frames.scores(root, "paper")).empty


def test_text(write_tmaze):
    root = write_tmaze({(10, "amago"): ONES, (10, "amago-gru"): [0.0]})
    lines = render(spans(frames.scores(root))).splitlines()
    assert lines[1].split("  ")[-1] == "30: no runs" and " 10 " in lines[1] and "none shown" in lines[2]
    assert "one-sided 95% bound" in "\n".join(lines)
