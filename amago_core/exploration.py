"""Exploration noise of training rollouts: the paper's bilevel epsilon schedule (its Figure 13; agent.md 7)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from amago_core.config import Config
from amago_core.spaces import ActionCodec


class Exploration:
    """Epsilon falls over training and, within a rollout, from its start to its end.

    Discrete: with probability epsilon a uniformly random action. Continuous: Gaussian noise of scale epsilon. Each
    rollout draws a multiplier from U(0, 1), so actors differ. With equal values at start and end of a rollout this
    is plain epsilon-greedy.

    Args:
        config: the schedule.
        actions: codec of the action space.
        horizon: steps of a rollout.
        slots: number of parallel rollouts B.
        rng: its only source of randomness.
    """

    def __init__(
        self, config: Config, actions: ActionCodec, horizon: int, slots: int, rng: np.random.Generator
    ) -> None:
        self.config, self.actions, self.horizon, self.rng = config, actions, horizon, rng
        self.multiplier = np.ones(slots)

    def ends(self, steps: int) -> tuple[float, float]:
        """Epsilon at the start and at the end of a rollout, before its multiplier, after `steps` steps in each slot."""
        trained = min(1.0, steps / self.config.anneal_steps)
        # Each anneals from its own first value; the paper-time code started the one at the rollout's end at 0.05.
        start, end = (a + (b - a) * trained for a, b in (self.config.epsilon_start, self.config.epsilon_end))
        return start, end

    def epsilon(self, position: npt.NDArray[np.int64], steps: int) -> npt.NDArray[np.float64]:
        """Epsilon of each slot [B] at its timestep of the rollout, after `steps` steps in each slot."""
        config, (start, end) = self.config, self.ends(steps)
        epsilon = self.multiplier * (start - (start - end) * position / self.horizon)
        if config.corridor_epsilon is None:
            return epsilon
        before, after = config.corridor_ends
        corridor = (position >= before) & (position < self.horizon - after)
        return np.where(corridor, config.corridor_epsilon, epsilon)

    def apply(self, actions: npt.NDArray[Any], position: npt.NDArray[np.int64], steps: int) -> npt.NDArray[Any]:
        """Stored actions of the policy -> stored actions to execute."""
        begun = position == 0
        if begun.any():
            self.multiplier = np.where(begun, self.rng.random(len(begun)), self.multiplier)
        epsilon = self.epsilon(position, steps)
        if not self.actions.discrete:
            noise = self.rng.standard_normal(actions.shape, np.float32)
            return np.clip(actions + epsilon[:, None] * noise, -1, 1).astype(np.float32)
        explore = self.rng.random(len(actions)) < epsilon
        return np.where(explore, self.rng.integers(self.actions.size, size=len(actions)), actions)
