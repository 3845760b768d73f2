"""Collecting rollouts in a vector environment into the replay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from amago_core.acting import Actor
from amago_core.agent import Agent
from amago_core.checkpoint import as_arrays
from amago_core.exploration import Exploration
from amago_core.replay import Replay
from amago_core.seeding import child
from amago_core.sequences import Layout, Timesteps, timestep_layout


class Collector:
    """Plays training rollouts with exploration; a rollout enters the replay when it ends.

    Args:
        envs: with `AutoresetMode.DISABLED`; the collector resets finished slots with a `reset_mask`. Seeding the
            rollouts is up to the environment (the harness gives every slot and rollout a seed of its own).
        agent: acts.
        replay: takes the finished rollouts.
        seed: root of the exploration and action streams.
        state: from `state_dict`, to resume with `envs` where they were; without it they are reset.
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
        self.steps = 0  # in each slot
        self._buffer = _Buffer(slots, agent.rollout.horizon, timestep_layout(agent.observations, agent.actions))
        fields = agent.observations.fields.items()
        self._observation = {name: np.zeros((slots, *field.shape), field.dtype) for name, field in fields}
        self._reward = np.zeros(slots, np.float32)
        self._first = np.ones(slots, bool)
        self._inner = np.zeros(slots, bool)
        if state is None:
            self.restart(self._first)
        else:
            self._restore(state)

    def collect(self, steps: int) -> None:
        """Takes `steps` steps in every slot."""
        for _ in range(steps):
            self._step()

    @property
    def epsilon_start(self) -> float:
        """Of a rollout that begins now, before its multiplier."""
        return self.exploration.ends(self.steps)[0]

    def _step(self) -> None:
        agent, actor = self.agent, self.actor
        sample = agent.config.sample_actions
        policy = actor.step(self._observation, self._reward, self._first, self._inner, self._rng, sample)
        position = actor.position
        going_on = np.zeros_like(self._first)
        self._write(position, terminal=going_on, reset=self._first | self._inner)
        actor.previous = self.exploration.apply(policy, position, self.steps).astype(agent.actions.field.dtype)

        observation, reward, terminated, truncated, info = self.envs.step(agent.actions.to_env(actor.previous))
        self.steps += 1
        self._first = done = terminated | truncated
        self._observation = agent.observations.store(observation)
        self._reward = np.asarray(reward, np.float32)
        self._inner = np.asarray(info.get("inner_reset", going_on), bool)
        if done.any():
            # Finite: the horizon ends the value target, as termination does. Artificial: only termination does, and
            # it wins where both flags are set.
            terminal = done if agent.rollout.finite else terminated
            self._write(position + 1, terminal=terminal, reset=self._inner)
            for slot in np.flatnonzero(done):
                self.replay.add(self._buffer.rollout(int(slot), int(position[slot]) + 2))
            self.restart(done)

    def _write(self, position: npt.NDArray[np.int64], **ends: npt.NDArray[np.bool_]) -> None:
        led_here = {"action": self.actor.previous, "reward": self._reward}
        self._buffer.write(position, {**self._observation, **led_here, **ends})

    def restart(self, slots: npt.NDArray[np.bool_]) -> None:
        """Begins the next rollout in the slots of a mask [B]; a rollout under way there is dropped."""
        observation, _ = self.envs.reset(options={"reset_mask": slots})
        for name, field in self.agent.observations.store(observation).items():
            self._observation[name][slots] = field[slots]
        self._reward = np.where(slots, np.float32(0), self._reward)
        self._first = self._first | slots
        self._inner = self._inner & ~slots

    def state_dict(self) -> dict[str, Any]:
        """The collector's state between two steps, without its environments and its replay."""
        ahead = np.where(self._first, 0, self.actor.position + 1)  # timestep of each slot's next step
        return {
            "seen": [self._observation, self._reward, self._first, self._inner],
            "steps": self.steps,
            "tokens": self._buffer.state(int(ahead.max())),
            "actor": self.actor.state_dict(int(ahead.max())),
            "multiplier": self.exploration.multiplier,
            "generators": [self._rng.bit_generator.state, self.exploration.rng.bit_generator.state],
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._observation, self._reward, self._first, self._inner = as_arrays(state["seen"])
        self.steps = state["steps"]
        self._buffer.restore(state["tokens"])
        self.actor.load_state_dict(state["actor"])
        self.exploration.multiplier = np.asarray(state["multiplier"])
        self._rng.bit_generator.state, self.exploration.rng.bit_generator.state = state["generators"]


class _Buffer:
    """The timesteps of the rollouts under way, [slots, timestep, ...]; grows with the longest of them."""

    def __init__(self, slots: int, horizon: int, layout: Layout) -> None:
        self._slots, self._room = np.arange(slots), min(horizon, 256) + 1
        shape = (slots, self._room)
        self._fields = {name: np.zeros((*shape, *field.shape), field.dtype) for name, field in layout.items()}

    def write(self, position: npt.NDArray[np.int64], timestep: Timesteps) -> None:
        """Writes one timestep per slot, each at its position."""
        if int(position.max()) >= self._room:
            self._room *= 2
            doubled = {name: np.concatenate([f, np.zeros_like(f)], axis=1) for name, f in self._fields.items()}
            self._fields = doubled
        for name, field in self._fields.items():
            field[self._slots, position] = timestep[name]

    def state(self, timesteps: int) -> Timesteps:
        """The first `timesteps` of each slot; later ones are written before they are read."""
        return {name: field[:, :timesteps] for name, field in self._fields.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        saved = as_arrays(state)
        self._room = max(self._room, *(field.shape[1] for field in saved.values()))
        for name, field in saved.items():
            whole = np.zeros((len(field), self._room, *field.shape[2:]), field.dtype)
            whole[:, : field.shape[1]] = field
            self._fields[name] = whole

    def rollout(self, slot: int, timesteps: int) -> Timesteps:
        return {name: field[slot, :timesteps] for name, field in self._fields.items()}
