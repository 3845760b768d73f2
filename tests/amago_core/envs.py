"""Small environments, so that the core is tested without the benchmark's own: two tasks that need memory, a clock."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space


class CuedTask(VectorEnv):
    """Slots that end together and show which of two instances they are at the start only.

    `reset` takes a seed of all slots, and in `options` a mask of the slots to reset and their instances, 0 or 1.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012
    horizon: int

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.cue, self.place, self.t = (np.zeros(num_envs, np.float32) for _ in range(3))

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        options = options or {}
        mask = options.get("reset_mask", np.ones(self.num_envs, bool))
        instance = options.get("instance", self.rng.integers(2, size=self.num_envs))
        self.cue = np.where(mask, np.float32(2 * instance - 1), self.cue)
        self.place, self.t = np.where(mask, 0, self.place), np.where(mask, 0, self.t)
        return self.observation(), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        self.t = self.t + 1
        done = self.t == self.horizon
        reward = self.move(actions, done).astype(np.float32)
        return self.observation(), reward, done, np.zeros_like(done), {}

    def move(self, actions: np.ndarray, done: np.ndarray) -> np.ndarray:
        """Moves every slot; the rewards [B]."""
        raise NotImplementedError

    def observation(self) -> np.ndarray:
        raise NotImplementedError


class Corridor(CuedTask):
    """A T-Maze: four steps to the right, then up or down as the cue said.

    Observation (at the junction, cue or 0); actions right, up, left, down. The last step pays 1 in the right arm, any
    other costs 1/4 unless it goes right. Without memory 0.5 is the best mean, without a value of later steps 0.
    """

    horizon, length = 5, 4
    single_observation_space = spaces.Box(-1, 1, (2,), np.float32)
    single_action_space = spaces.Discrete(4)

    def move(self, actions: np.ndarray, done: np.ndarray) -> np.ndarray:
        turn = (actions == 1) * 1.0 - (actions == 3)
        reached = done & (self.place == self.length) & (turn == self.cue)
        self.place = np.clip(self.place + (actions == 0) - (actions == 2), 0, self.length)
        return reached - 0.25 * ((actions != 0) & ~done)

    def observation(self) -> np.ndarray:
        shown = np.where(self.t == 0, self.cue, 0)
        return np.stack([self.place == self.length, shown], axis=1).astype(np.float32)


class Reach(CuedTask):
    """Three moves of at most a half on a line, to a target at -0.9 or 0.9.

    Observation (target or 0, place); the reward is minus the distance after the third move.
    """

    horizon = 3
    single_observation_space = spaces.Box(-2, 2, (2,), np.float32)
    single_action_space = spaces.Box(-1, 1, (1,), np.float32)

    def move(self, actions: np.ndarray, done: np.ndarray) -> np.ndarray:
        self.place = self.place + actions[:, 0] / 2
        return np.where(done, -np.abs(self.place - 0.9 * self.cue), 0)

    def observation(self) -> np.ndarray:
        return np.stack([np.where(self.t == 0, 0.9 * self.cue, 0), self.place], axis=1).astype(np.float32)


class Clock(VectorEnv):
    """Slot b's rollouts have 3 + b steps; the observation is (b, rollout, t) and the reward the last action."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def __init__(self, slots: int, action_space: spaces.Space) -> None:
        self.num_envs = slots
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.single_action_space = action_space
        self.action_space = batch_space(action_space, slots)
        self.state = np.stack([np.arange(slots), np.full(slots, -1), np.zeros(slots)], axis=1).astype(np.float32)

    def reset(self, *, seed: Any = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        self.state[mask, 1] += 1
        self.state[mask, 2] = 0
        return self.state.copy(), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        self.state[:, 2] += 1
        done = self.state[:, 2] == 3 + self.state[:, 0]
        reward = np.asarray(actions, np.float32).reshape(self.num_envs, -1).sum(1)
        return self.state.copy(), reward, done, np.zeros_like(done), {"inner_reset": self.state[:, 2] == 2}
