"""Environments whose every step is written down, and tasks around them."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from benchmarks.task import Budget, Task


class Scripted(gymnasium.Env):
    """Observation: (id of the rollout, step). `script(t)` gives reward, terminated, truncated, infos at t >= 1."""

    def __init__(self, script: Callable[[int], tuple[float, bool, bool, dict[str, Any]]]) -> None:
        self.script = script
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = spaces.Discrete(3)

    def _observation(self) -> np.ndarray:
        return np.array([self.id, self.t], np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.id, self.t = self.np_random.integers(1 << 20), 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.t += 1
        reward, terminated, truncated, infos = self.script(self.t)
        return self._observation(), reward, terminated, truncated, infos


class Answering(VectorEnv):
    """Gives what it is told, in whatever form: `answer(t)` is (observation, reward, terminated, truncated, infos)."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def __init__(self, num_envs: int, space: spaces.Space, answer: Callable[[int], tuple], action=None) -> None:
        self.num_envs, self.answer = num_envs, answer
        self.single_observation_space, self.single_action_space = space, action or spaces.Discrete(3)
        self.observation_space = gymnasium.vector.utils.batch_space(space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        observation, *_, infos = self.answer(0)
        return observation, {key: value for key, value in infos.items() if key in ("instance", "_instance")}

    def step(self, actions):
        self.t += 1
        self.actions = actions
        return self.answer(self.t)


def make_task(make: Callable[[int], VectorEnv], horizon: int = 5, **changes: Any) -> Task:
    budget = changes.pop("budget", Budget(env_steps=40, num_envs=2, evaluations=2, seeds=(0,)))
    fields = {"id": "test/toy/a", "description": "", "random_return": 0.0, "high": 1.0, "high_source": "by hand"}
    return Task(make=make, horizon=horizon, budgets={"smoke": budget}, **(fields | changes))


def scripted_task(script: Callable[[int], tuple], horizon: int = 5, **changes: Any) -> Task:
    def make(num_envs: int) -> VectorEnv:
        return SyncVectorEnv([lambda: Scripted(script)] * num_envs, autoreset_mode=AutoresetMode.DISABLED)

    return make_task(make, horizon, **changes)


@pytest.fixture
def toys() -> Any:
    class Toys:
        task = staticmethod(make_task)
        scripted = staticmethod(scripted_task)
        answering = Answering

    return Toys
