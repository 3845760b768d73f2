"""The environments of the installed popgym, many in one process, without wrappers that would cost more than a step."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, create_empty_array


class PopgymEnv(VectorEnv):
    """`num_envs` environments of one class of popgym, stepped one after the other.

    Spaces are popgym's own; the core makes the one-hots and the single index of a MultiDiscrete action. Only a
    Tuple of Discretes, which is Autoencode's observation, becomes the MultiDiscrete with the same values.

    Observation [B, ...] in the dtype of the space, reward float64 [B]. Every end is `terminated`, even at popgym's own
    step limit, as in the paper's wrapper (agent.md 10.4). A rollout depends only on the seed of its reset, because
    popgym draws only from the environment's generator.

    `reset` takes `seed` (None: each slot's generator goes on; an int: slot i gets seed + i; a list: an int or None for
    each slot) and the option `reset_mask` (bool [B], default all). No infos: popgym's reveal what must be remembered.
    Raises ImportError if popgym is not installed, and ResetNeeded for a step of a done slot.

    Args:
        num_envs: slots B.
        name: of a class in `popgym.envs`, such as "RepeatPreviousEasy".
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED, "render_modes": []}  # noqa: RUF012 - gymnasium's declaration

    def __init__(self, num_envs: int, name: str) -> None:
        make = getattr(import_module("popgym.envs"), name)
        self._envs: list[gymnasium.Env] = [make() for _ in range(num_envs)]
        self.num_envs = num_envs
        self.single_observation_space = _without_tuple(self._envs[0].observation_space)
        self.single_action_space = self._envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._observation = np.asarray(create_empty_array(self.single_observation_space, num_envs))
        self._reward = np.zeros(num_envs)
        self._done = np.ones(num_envs, bool)
        self._never = np.zeros(num_envs, bool)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        seeds = seed if isinstance(seed, list) else [None if seed is None else seed + i for i in range(self.num_envs)]
        if len(seeds) != self.num_envs:
            raise ValueError(f"got {len(seeds)} seeds for {self.num_envs} slots")
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        for slot in np.flatnonzero(mask).tolist():
            self._observation[slot], _ = self._envs[slot].reset(seed=seeds[slot])
            self._done[slot] = False
        return self._observation.copy(), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if self._done.any():
            raise gymnasium.error.ResetNeeded(f"slots {np.flatnonzero(self._done)} are done: reset them before a step")
        # Python's integers index faster than NumPy's; torques stay float32 rows, because popgym's dtype follows theirs.
        one_by_one = actions if isinstance(self.single_action_space, spaces.Box) else actions.tolist()
        for slot, (env, action) in enumerate(zip(self._envs, one_by_one, strict=True)):
            self._observation[slot], self._reward[slot], terminated, truncated, _ = env.step(action)
            self._done[slot] = terminated or truncated
        return self._observation.copy(), self._reward.copy(), self._done.copy(), self._never.copy(), {}


def _without_tuple(space: gymnasium.Space) -> gymnasium.Space:
    if not isinstance(space, spaces.Tuple):
        return space
    return spaces.MultiDiscrete([spaces.flatdim(part) for part in space.spaces])
