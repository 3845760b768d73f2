"""T-Maze: see a cue, walk a corridor, turn towards the cue. After Ni et al. (2023), with AMAGO's reward.

                                    up
    oracle - start - ... - junction |        passive: the start is the oracle cell
                                    down     active: the oracle cell is one step left of the start

The rules are written once, vectorised, in `TMaze`; `TMazeEnv` is a single slot of it.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from amago_core.seeding import child

RIGHT, UP, LEFT, DOWN = range(4)
OBSERVATION_SPACE = spaces.Box(-1.0, 1.0, (2,), np.float32)
ACTION_SPACE = spaces.Discrete(4)


def _maze(junction: int) -> tuple[np.ndarray, np.ndarray]:
    """Where each action leads, [cells, 4], and what each cell shows without the cue, [cells, 2].

    Cells 0 to `junction` are the corridor, followed by the up arm and the down arm. A move into a wall has no effect.
    """
    up, down = junction + 1, junction + 2
    moves = np.repeat(np.arange(junction + 3)[:, None], 4, axis=1)
    moves[:junction, RIGHT] += 1
    moves[1 : junction + 1, LEFT] -= 1
    moves[junction, [UP, DOWN]] = up, down
    moves[up, DOWN] = moves[down, UP] = junction
    shows = np.zeros((junction + 3, 2), np.float32)
    shows[junction:] = (1, 0), (1, 1), (1, -1)
    return moves, shows


class TMaze(VectorEnv):
    """T-Mazes with a corridor of N steps, in NumPy; slots may be at different timesteps.

    Observation float32 [B, 2]: the cue (0, goal) at the first visit of the oracle cell and (0, 0) later, (0, 0) in the
    corridor, (1, y) at the junction and in its arms. Actions: right, up, left, down. A rollout has N + 1 steps, or
    N + 3 if active, and ends with both flags set. The last step pays 1 in the shown arm and 0 elsewhere; any other step
    costs 1/N unless it goes right. The first step of the active maze, which should go left, is always free: the
    official code exempts it by time and not by position, and so do we.

    `reset` takes `seed` (None: each slot's generator goes on; an int: each slot's seed is derived from it; a list:
    an int or None for each slot) and the options `reset_mask` (bool [B], default all) and `instance` (int [B],
    0: goal -1, 1: goal +1, default drawn). Infos: `instance` int64 [B] and, from `step`, `success` bool [B].
    Raises ValueError for arguments of the wrong shape, type or range, and ResetNeeded for a step of a done slot.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED, "render_modes": []}  # noqa: RUF012 - gymnasium's declaration

    def __init__(self, num_envs: int, corridor: int = 10, active: bool = False) -> None:
        if num_envs < 1 or corridor < 1:
            raise ValueError(f"a T-Maze needs num_envs >= 1 and corridor >= 1, got {num_envs} and {corridor}")
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = OBSERVATION_SPACE, ACTION_SPACE
        self.observation_space = batch_space(OBSERVATION_SPACE, num_envs)
        self.action_space = batch_space(ACTION_SPACE, num_envs)
        self.horizon = corridor + (3 if active else 1)
        self._start = int(active)
        self._penalty = np.float32(-1 / corridor)
        self._moves, self._shows = _maze(junction=self._start + corridor)

        self._generators = [np.random.default_rng() for _ in range(num_envs)]
        self._cell = np.full(num_envs, self._start)
        self._time = np.zeros(num_envs, np.int64)
        self._goal = np.ones(num_envs, np.float32)
        self._cue_left = np.zeros(num_envs, bool)  # the oracle cell has not been visited yet
        self._done = np.ones(num_envs, bool)
        self._observation = np.zeros((num_envs, 2), np.float32)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        options = options or {}
        mask = self._checked("reset_mask", options.get("reset_mask", np.ones(self.num_envs, bool)), bool)
        slots = np.flatnonzero(mask)
        self._seed(seed, slots)
        if options.get("instance") is None:
            instance = np.array([self._generators[slot].integers(2) for slot in slots], np.int64)
        else:
            instance = self._checked("instance", options["instance"], np.integer)[slots]
            if not np.isin(instance, (0, 1)).all():
                raise ValueError(f"option 'instance' must be 0 or 1 in each slot, got {instance}")
        self._goal[slots] = 2 * instance - 1
        self._cell[slots], self._time[slots] = self._start, 0
        self._cue_left[slots], self._done[slots] = True, False
        self._observation[slots] = self._observe()[slots]
        return self._observation.copy(), {"instance": self._instance()}

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        actions = self._checked("actions", actions, np.integer)
        if actions.min() < 0 or actions.max() > 3:
            raise ValueError(f"actions must lie in 0 to 3, got {actions}")
        if self._done.any():
            raise gymnasium.error.ResetNeeded(f"slots {np.flatnonzero(self._done)} are done: reset them before a step")
        self._time += 1
        self._cell = self._moves[self._cell, actions]
        self._done = self._time == self.horizon
        success = self._done & (self._shows[self._cell, 1] == self._goal)
        costs = (actions != RIGHT) & (self._time > self._start) & ~self._done
        reward = success + self._penalty * costs
        self._observation = self._observe()
        infos = {"success": success, "instance": self._instance()}
        return self._observation.copy(), reward, self._done.copy(), self._done.copy(), infos

    def _seed(self, seed: int | list[int | None] | None, slots: np.ndarray) -> None:
        if seed is None:
            return
        if isinstance(seed, (int, np.integer)):
            for slot in slots:
                self._generators[slot] = np.random.default_rng(child(int(seed), int(slot)))
            return
        if len(seed) != self.num_envs:
            raise ValueError(f"got {len(seed)} seeds for {self.num_envs} slots")
        for slot in slots:
            if seed[slot] is not None:
                self._generators[slot] = np.random.default_rng(seed[slot])

    def _observe(self) -> np.ndarray:
        """What the cells show, float32 [B, 2]. The cue is shown only once."""
        observation = self._shows[self._cell]
        cue = self._cue_left & (self._cell == 0)
        observation[:, 1] += cue * self._goal
        self._cue_left &= ~cue
        return observation

    def _instance(self) -> np.ndarray:
        return (self._goal > 0).astype(np.int64)

    def _checked(self, name: str, values: Any, kind: type) -> np.ndarray:
        array = np.asarray(values)
        if array.shape != (self.num_envs,) or not np.issubdtype(array.dtype, kind):
            raise ValueError(f"{name} must be {kind.__name__} [{self.num_envs}], got {array.dtype} {list(array.shape)}")
        return array


class TMazeEnv(gymnasium.Env):
    """One slot of `TMaze` as a plain environment. Its rollouts are those of a slot with the same seed."""

    metadata = {"render_modes": []}  # noqa: RUF012 - gymnasium's declaration
    observation_space, action_space = OBSERVATION_SPACE, ACTION_SPACE

    def __init__(self, corridor: int = 10, active: bool = False) -> None:
        self._slots = TMaze(1, corridor, active)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """`options={"instance": 0 or 1}` chooses the goal."""
        super().reset(seed=seed)
        instance = (options or {}).get("instance", self.np_random.integers(2))
        observation, infos = self._slots.reset(options={"instance": [instance]})
        return observation[0], {"instance": int(infos["instance"][0])}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, infos = self._slots.step([action])
        info = {"success": bool(infos["success"][0]), "instance": int(infos["instance"][0])}
        return observation[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), info


for _name, _active in (("Passive", False), ("Active", True)):
    gymnasium.register(
        f"amago_bench/{_name}TMaze-v0",
        entry_point=f"{__name__}:TMazeEnv",
        vector_entry_point=f"{__name__}:TMaze",
        kwargs={"active": _active},
    )
