"""The environments of the harness as stable-baselines3 sees them: AMAGO's inputs in one vector, AMAGO's actions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from stable_baselines3.common.vec_env import VecEnv

from amago_core.config import Rollout
from amago_core.spaces import ActionCodec, ObservationCodec
from benchmarks.agents.protocol import AgentSpec


class Codec:
    """The spaces as SB3 sees them: one vector in, an index or a vector in [-1, 1] out."""

    def __init__(self, spec: AgentSpec) -> None:
        task = spec.task
        self.observations, self.actions = ObservationCodec(spec.observation_space), ActionCodec(spec.action_space)
        self.time_scale = Rollout(task.horizon, task.time_limit == "finite").time_scale
        self.finite = task.time_limit == "finite"
        width = self.observations.features + math.prod(self.observations.goal_shape) + 3 + self.actions.size
        self.input_space = spaces.Box(-np.inf, np.inf, (width,), np.float32)
        self.output_space = (
            spaces.Discrete(self.actions.size)
            if self.actions.discrete
            else spaces.Box(-1.0, 1.0, self.actions.field.shape, np.float32)
        )


class Timestep:
    """Where B slots stand in their rollouts, and the vectors that describe it: the inputs of AMAGO (agent.md 1.1).

    Unlike AMAGO's they are not normalised, so a finite time goes from 0 to 1, whatever AMAGO divides it by.

    Call `inputs`, `act`, `inputs`, `act`, ...; `begin` starts new rollouts in between.
    """

    def __init__(self, codec: Codec, slots: int) -> None:
        self._codec = codec
        self._position = np.zeros(slots, np.int64)
        self._previous = np.full((slots, *codec.actions.field.shape), codec.actions.blank, codec.actions.field.dtype)

    def begin(self, slots: np.ndarray) -> None:
        """Puts the slots of a mask, bool [B], at the first timestep of a rollout."""
        self._position[slots] = 0
        self._previous[slots] = self._codec.actions.blank

    def inputs(self, observation: Any, reward: np.ndarray, reset: np.ndarray) -> np.ndarray:
        """Observation, reset flag, previous reward, time, previous action: float32 [B, width]."""
        codec = self._codec
        stored = codec.observations.store(observation)
        features, goals = codec.observations.expand({name: torch.from_numpy(field) for name, field in stored.items()})
        known = np.stack([reset, reward, self._position / codec.time_scale], axis=1, dtype=np.float32)
        previous = codec.actions.features(torch.from_numpy(self._previous))
        return torch.cat([features, goals, torch.from_numpy(known), previous], dim=1).numpy()

    def act(self, actions: np.ndarray) -> np.ndarray:
        """Records the policy's actions [B] or [B, A] and returns those of the environment."""
        codec = self._codec.actions
        self._previous = actions.astype(codec.field.dtype)
        self._position += 1
        return codec.to_env(self._previous)

    def state(self) -> list[np.ndarray]:
        return [self._position, self._previous]

    def restore(self, state: Sequence[torch.Tensor]) -> None:
        self._position, self._previous = (part.numpy() for part in state)


class Slots(VecEnv):
    """The environments of the harness as SB3 expects them: a slot that is done resets itself."""

    envs: VectorEnv  # set when learning begins

    def __init__(self, codec: Codec, slots: int) -> None:
        super().__init__(slots, codec.input_space, codec.output_space)
        self._codec = codec
        self.timestep = Timestep(codec, slots)

    def begin(self, slots: np.ndarray) -> np.ndarray:
        """Begins the next rollout in the slots of a mask, bool [B]; inputs [B, width], meaningless for the others."""
        observation, _ = self.envs.reset(options={"reset_mask": slots})
        self.timestep.begin(slots)
        return self.timestep.inputs(observation, np.zeros(self.num_envs, np.float32), slots)

    def reset(self) -> np.ndarray:
        return self.begin(np.ones(self.num_envs, bool))

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = self.timestep.act(actions)

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        observation, reward, terminated, truncated, info = self.envs.step(self._actions)
        inputs = self.timestep.inputs(observation, reward, info["inner_reset"])
        done = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in done]
        if done.any():
            if not self._codec.finite:  # SB3 bootstraps where this is set, so a finite limit does not set it
                for slot in np.flatnonzero(truncated):
                    infos[slot] = {"TimeLimit.truncated": True, "terminal_observation": inputs[slot]}
            inputs = np.where(done[:, None], self.begin(done), inputs)
        return inputs, reward, done, infos

    def close(self) -> None:
        """Nothing to do: the environments belong to the harness."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [None] * self.num_envs  # SB3 asks for `render_mode`

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs
