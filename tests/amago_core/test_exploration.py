"""The exploration schedule by exact values (agent.md 7)."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from amago_core.config import Config
from amago_core.exploration import Exploration
from amago_core.spaces import ActionCodec

HORIZON = 100
DISCRETE, CONTINUOUS = ActionCodec(spaces.Discrete(4)), ActionCodec(spaces.Box(-1, 1, (2,), np.float32))


def make(slots: int = 1, actions: ActionCodec = DISCRETE, **settings: Any) -> Exploration:
    config = Config(anneal_steps=1000, **settings)
    return Exploration(config, actions, HORIZON, slots, np.random.default_rng(0))


def at(exploration: Exploration, position: int, steps: int) -> float:
    return float(exploration.epsilon(np.array([position]), steps)[0])


@pytest.mark.parametrize(
    ("position", "steps", "epsilon"),
    [
        (0, 0, 1.0), (100, 0, 0.8), (50, 0, 0.9),
        (0, 500, 0.525), (100, 500, 0.405),
        (0, 1000, 0.05), (100, 1000, 0.01), (50, 9999, 0.03),
    ],
)  # fmt: skip
def test_the_schedule_with_a_multiplier_of_one(position: int, steps: int, epsilon: float) -> None:
    assert at(make(), position, steps) == pytest.approx(epsilon)


def test_the_means_over_rollouts_at_the_start_of_training() -> None:
    """0.5 at the start of a rollout and 0.4 at its end (0.025 with the fault of the paper-time code)."""
    exploration = make(slots=40_000)
    exploration.apply(np.zeros(40_000, np.int8), np.zeros(40_000, np.int64), 0)
    for position, mean in [(0, 0.5), (HORIZON, 0.4)]:
        assert exploration.epsilon(np.full(40_000, position), 0).mean() == pytest.approx(mean, abs=0.01)


def test_the_multiplier_is_drawn_anew_for_each_rollout_and_kept_within_it() -> None:
    exploration = make(slots=3)
    actions = np.zeros(3, np.int8)
    exploration.apply(actions, np.array([0, 0, 0]), 0)
    first = exploration.multiplier.copy()
    assert len(set(first)) == 3 and (first < 1).all()
    exploration.apply(actions, np.array([1, 1, 1]), 0)
    assert (exploration.multiplier == first).all()
    exploration.apply(actions, np.array([2, 0, 2]), 0)
    assert (exploration.multiplier == first).tolist() == [True, False, True]


def test_the_corridor_of_the_tmaze_keeps_the_schedule_at_its_edges_only() -> None:
    """Step 0 and the last 3 steps follow the schedule times the multiplier; between them epsilon is constant."""
    exploration = make(corridor_epsilon=0.005)
    exploration.multiplier[:] = 0.5
    middle = [position for position in range(HORIZON) if at(exploration, position, 0) == 0.005]
    assert middle == list(range(1, 97))
    assert at(exploration, 0, 0) == 0.5
    assert at(exploration, 99, 0) == pytest.approx(0.5 * 0.802)


def test_equal_ends_are_plain_epsilon_greedy() -> None:
    exploration = make(epsilon_start=(1.0, 0.1), epsilon_end=(1.0, 0.1))
    assert at(exploration, 0, 500) == pytest.approx(0.55) == at(exploration, 77, 500)


def test_a_random_action_comes_with_probability_epsilon() -> None:
    """The chosen action is among the random ones, so it changes with probability epsilon 3/4."""
    n = 40_000
    exploration = make(slots=n, corridor_epsilon=0.2)
    actions = exploration.apply(np.full(n, 2), np.full(n, 50), 0)
    counts = np.bincount(actions, minlength=4) / n
    np.testing.assert_allclose(counts, [0.05, 0.05, 0.85, 0.05], atol=0.007)


def test_continuous_noise_is_scaled_slot_by_slot_and_clipped() -> None:
    """As many slots as dimensions, one of them without noise."""
    exploration = make(slots=2, actions=CONTINUOUS)
    exploration.multiplier[:] = [0.0, 1.0]
    actions = np.array([[0.3, -0.3], [0.3, -0.3]], np.float32)
    drawn = np.stack([exploration.apply(actions, np.array([50, 50]), 1000) for _ in range(4000)])
    assert drawn.dtype == np.float32
    assert (drawn[:, 0] == actions[0]).all()
    noise = drawn[:, 1] - actions[1]
    np.testing.assert_allclose(noise.std(0), 0.03, rtol=0.05)
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.05  # each dimension has noise of its own
    wild = np.stack([exploration.apply(np.ones((2, 2), np.float32), np.array([50, 50]), 0) for _ in range(50)])
    assert np.abs(wild).max() <= 1
