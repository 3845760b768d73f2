from pathlib import Path

import pytest

from benchmarks.places.sweep import State
from benchmarks.runs.job import Job
from reproduce.live import Lines, last_return, pace, time_left
from reproduce.text import aligned, duration


def state(seed, status="running", seconds=0.0, **progress):
    return State(Job("t", "a", "smoke", seed), Path("log"), status, seconds=seconds, progress=progress)


def test_pace_of_a_run():
    now = pace(state(0, env_steps=250, total=1000, wall_s=5.0))
    assert (now.share, now.rate, now.left) == (0.25, 50.0, 15.0)


@pytest.mark.parametrize("progress", [{}, {"env_steps": 0, "total": 9, "wall_s": 1.0}])
def test_pace_is_unknown_before_the_first_step(progress):
    now = pace(state(0, **progress))
    assert (now.share, now.rate, now.left) == (0.0, None, None)


def test_time_left_takes_queued_runs_for_mean_ones():
    states = [
        state(0, "finished", 20.0),
        state(1, "running", 5.0, env_steps=100, total=200, wall_s=5.0),  # 5 s left, 10 s in all
        state(2, "queued"),
        state(3, "queued"),
    ]
    assert time_left(states, workers=1) == pytest.approx(5 + 2 * 15)
    assert time_left(states, workers=2) == pytest.approx((5 + 2 * 15) / 2)
    assert time_left([state(0, "queued")], 1) is None


def test_one_line_for_each_run_that_ended():
    said = []
    lines = Lines(said.append)
    states = [state(0, "finished", 61.0, **{"return": 0.5}), state(1, "running"), state(2, "queued")]
    lines(states)
    lines(states)
    states[1].status, states[1].message = "failed", "no luck"
    lines(states)
    assert said == [
        "[1/3] finished smoke:t:a:0 in 1:01 min: return 0.500",
        "[2/3] failed smoke:t:a:1 in 0 s: no luck",
    ]


def test_no_return_before_the_first_evaluation():
    assert last_return(state(0)) == last_return(state(0, **{"return": None})) == ""


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (59.6, "1:00 min"), (3599, "59:59 min"), (3660, "1:01 h")])
def test_duration(seconds, text):
    assert duration(seconds) == text


def test_aligned_numbers_stand_to_the_right():
    assert aligned(("name", "n"), [("a", 5), ("bcdef", 12.0), ("c", None)]) == "name    n\na       5\nbcdef  12\nc"
