"""Collecting rollouts in a vector environment into the replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from amago_core.acting import Actor
from amago_core.agent import Agent
from amago_core.exploration import Exploration
from amago_core.replay import Replay, Trajectory
from amago_core.seeding import child


class Collector:
    """Plays training rollouts with exploration; a rollout enters the replay when it ends.

    Args:
        envs: with `AutoresetMode.DISABLED`; the collector resets finished slots with a `reset_mask`. Seeds of the
            rollouts are the environment's affair (the harness gives one to every slot and rollout).
        agent: plays.
        replay: takes the finished rollouts.
        seed: root of the exploration and action streams.
        state: of `state_dict`, to go on from, with `envs` where they stood; without it they are reset.
    """

    def __init__(
        self,
        envs: VectorEnv[Any, Any, Any],
        agent: Agent,
        replay: Replay,
        seed: np.random.SeedSequence,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        mode = envs.metadata.get("autoreset_mode")
        if mode != AutoresetMode.DISABLED:
            raise ValueError(f"the collector resets slots itself: the environment needs autoreset disabled, not {mode}")
        self.envs, self.agent, self.replay = envs, agent, replay
        slots = envs.num_envs
        self.actor = Actor(agent, slots)
        self._rng = np.random.default_rng(child(seed, "actions"))
        self.exploration = Exploration(
            agent.config, agent.actions, agent.rollout.horizon, slots, np.random.default_rng(child(seed, "exploration"))
        )
        self.steps = 0  # of one slot
        self._buffer = _Buffer(slots, agent)
        self._rows = np.zeros((slots, agent.observations.row_width), np.float32)
        self._reward = np.zeros(slots, np.float32)
        self._first = np.ones(slots, bool)
        self._inner = np.zeros(slots, bool)
        if state is None:
            self.restart(self._first)
        else:
            self._restore(state)

    def collect(self, steps: int) -> None:
        """`steps` steps in every slot."""
        for _ in range(steps):
            self._step()

    def _step(self) -> None:
        agent, actor = self.agent, self.actor
        policy = actor.step(self._rows, self._reward, self._first, self._inner, self._rng, agent.config.sample_actions)
        position = actor.position
        going_on = np.zeros_like(self._first)
        self._buffer.write(position, self._rows, actor.previous, self._reward, going_on, self._first | self._inner)
        actor.previous = self.exploration.apply(policy, position, self.steps).astype(agent.actions.dtype)

        observation, reward, terminated, truncated, info = self.envs.step(agent.actions.to_env(actor.previous))
        self.steps += 1
        self._first = done = terminated | truncated
        self._rows = agent.observations.store(observation)
        self._reward = np.asarray(reward, np.float32)
        self._inner = np.asarray(info.get("inner_reset", going_on), bool)
        if done.any():
            # Finite: the horizon ends the value target like a true end. Artificial: only a true end does, and it
            # wins where both flags are set.
            terminal = done if agent.rollout.finite else terminated
            self._buffer.write(position + 1, self._rows, actor.previous, self._reward, terminal, self._inner)
            for slot in np.flatnonzero(done):
                self.replay.add(self._buffer.trajectory(int(slot), int(position[slot]) + 2))
            self.restart(done)

    def restart(self, slots: npt.NDArray[np.bool_]) -> None:
        """Begins the next rollout of some slots [B]; one that is under way there is forgotten."""
        observation, _ = self.envs.reset(options={"reset_mask": slots})
        self._rows = np.where(slots[:, None], self.agent.observations.store(observation), self._rows)
        self._reward = np.where(slots, np.float32(0), self._reward)
        self._first = self._first | slots
        self._inner = self._inner & ~slots

    def state_dict(self) -> dict[str, Any]:
        """Where the collector stands between two steps, beside its environments and its replay."""
        ahead = np.where(self._first, 0, self.actor.position + 1)  # timestep that the next step of each slot is for
        return {
            "seen": [self._rows, self._reward, self._first, self._inner],
            "steps": self.steps,
            "tokens": self._buffer.state(int(ahead.max())),
            "actor": self.actor.state_dict(int(ahead.max())),
            "multiplier": self.exploration.multiplier,
            "generators": [self._rng.bit_generator.state, self.exploration.rng.bit_generator.state],
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._rows, self._reward, self._first, self._inner = (np.asarray(part) for part in state["seen"])
        self.steps = state["steps"]
        self._buffer.restore(state["tokens"])
        self.actor.load_state_dict(state["actor"])
        self.exploration.multiplier = np.asarray(state["multiplier"])
        self._rng.bit_generator.state, self.exploration.rng.bit_generator.state = state["generators"]


class _Buffer:
    """The tokens of the rollouts under way, [slots, timestep, ...]; grows with the longest of them."""

    def __init__(self, slots: int, agent: Agent) -> None:
        size = min(agent.rollout.horizon, 256) + 1
        actions = agent.actions
        self._slots = np.arange(slots)
        self._fields: list[npt.NDArray[Any]] = [
            np.zeros((slots, size, agent.observations.row_width), np.float32),
            np.zeros((slots, size, *actions.row_shape), actions.dtype),
            np.zeros((slots, size), np.float32),
            np.zeros((slots, size), bool),
            np.zeros((slots, size), bool),
        ]

    def write(self, position: npt.NDArray[np.int64], *token: npt.NDArray[Any]) -> None:
        """One token a slot: observation, action, reward, terminal, reset."""
        if int(position.max()) >= self._fields[0].shape[1]:
            self._fields = [np.concatenate([f, np.zeros_like(f)], axis=1) for f in self._fields]
        for field, value in zip(self._fields, token, strict=True):
            field[self._slots, position] = value

    def state(self, tokens: int) -> list[npt.NDArray[Any]]:
        """The first `tokens` timesteps: those behind are written before they are read."""
        return [field[:, :tokens] for field in self._fields]

    def restore(self, state: Sequence[Any]) -> None:
        saved = [np.asarray(field) for field in state]
        if saved[0].shape[1] > self._fields[0].shape[1]:
            self._fields = [np.zeros_like(field) for field in saved]
        for field, value in zip(self._fields, saved, strict=True):
            field[:, : value.shape[1]] = value

    def trajectory(self, slot: int, tokens: int) -> Trajectory:
        return Trajectory(*(field[slot, :tokens] for field in self._fields))
