"""The training loop, as a generator that yields at safe points."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv

from amago_core.agent import Agent, Losses
from amago_core.collect import Collector
from amago_core.learner import Learner
from amago_core.progress import Progress
from amago_core.replay import Replay
from amago_core.sampler import Sampler
from amago_core.seeding import child
from amago_core.sequences import timestep_layout

CHUNK = 256  # steps of each slot between two reports while collecting: a few seconds, however long an iteration is


class Trainer:
    """An agent with its learner, its replay and its collector.

    Args:
        agent: is trained in place.
        envs: training environments, see `Collector`.
        seed: root of the streams of collecting and replay.
        folder: for the replay files.
        state: from `state_dict`, to resume: the agent gets its weights, `folder` must hold the replay files and `envs`
            be where they were.

    Raises:
        Diverged: from `run`, see `Learner`.
        ReplayDamaged: the replay files do not fit `state`.
    """

    def __init__(
        self,
        agent: Agent,
        envs: VectorEnv[Any, Any, Any],
        seed: np.random.SeedSequence,
        folder: Path,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        state = state or {}
        self.agent, self.config = agent, agent.config
        config, rollout = agent.config, agent.rollout
        self.learner = Learner(agent)
        if config.replay_tokens <= rollout.horizon:
            raise ValueError(f"replay_tokens {config.replay_tokens} cannot hold a rollout of {rollout.horizon} steps")
        capacity = min(config.replay_tokens, config.replay_trajectories * (rollout.horizon + 1))
        # In each slot a rollout under way and, at worst, one-step rollouts of two tokens each; then the ring's end.
        steps = min(CHUNK, config.steps_per_iteration)
        burst = envs.num_envs * (rollout.horizon + 1 + 2 * steps) + rollout.horizon + 1
        layout = timestep_layout(agent.observations, agent.actions)
        self.replay = Replay(folder, layout, capacity, config.replay_trajectories, burst, state.get("replay"))
        self.sampler = Sampler(
            self.replay,
            config.batch_sequences,
            config.batch_tokens,
            config.context or rollout.horizon,
            by_transition=config.replay_sampling == "transition",
        )
        self.collector = Collector(envs, agent, self.replay, child(seed, "collect"), state.get("collector"))
        self._rng = np.random.default_rng(child(seed, "replay"))
        self._iteration, self._updates_left, self._steps_left = 0, 0, 0  # the last two: left in this iteration
        self._tokens, self._collect_s, self._learn_s = 0, 0.0, 0.0
        if state:
            self._restore(state)

    def run(self) -> Iterator[Progress]:
        """Collects and learns without end; yields after each `CHUNK` steps and after each update."""
        config = self.config
        while True:
            while self._updates_left:
                losses = self._update()
                self._updates_left -= 1
                yield self._progress(self._metrics(losses))
            self._steps_left = self._steps_left or config.steps_per_iteration
            while self._steps_left:
                self._collect()
                yield self._progress({})

    def _collect(self) -> None:
        """Collects one chunk; after the last one of an iteration its updates are due."""
        started = time.perf_counter()
        steps = min(CHUNK, self._steps_left)
        self.collector.collect(steps)
        self._steps_left -= steps
        self._collect_s += time.perf_counter() - started
        if not self._steps_left:
            self._iteration += 1
            if self._iteration > self.config.warmup_iterations and len(self.replay):
                self._updates_left = self.config.updates_per_iteration

    def state_dict(self) -> dict[str, Any]:
        """All that a Trainer needs to resume from here, between two reports, apart from the replay files."""
        return {
            "learner": self.learner.state_dict(),
            "replay": self.replay.state_dict(),
            "sampler": self.sampler.state_dict(),
            "collector": self.collector.state_dict(),
            "position": [self._iteration, self._updates_left, self._steps_left],
            "totals": [self._tokens, self._collect_s, self._learn_s],
            "generator": self._rng.bit_generator.state,
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        """Restores generators last, so that nothing built on the way draws from a restored one."""
        self._iteration, self._updates_left, self._steps_left = state["position"]
        self._tokens, self._collect_s, self._learn_s = state["totals"]
        self.learner.load_state_dict(state["learner"])
        self.sampler.load_state_dict(state["sampler"])
        self._rng.bit_generator.state = state["generator"]

    def _update(self) -> Losses:
        started = time.perf_counter()
        batch = self.sampler.sample(self._rng)
        losses = self.learner.update(batch.to(self.agent.device))
        self._tokens += batch.packing.tokens
        self._learn_s += time.perf_counter() - started
        return losses

    def _progress(self, metrics: Mapping[str, float]) -> Progress:
        due = self.replay.checkpoint_due  # it is running out of space that no recent checkpoint refers to
        updates, skipped = self.learner.updates, self.learner.skipped
        return Progress(updates, self._tokens, self._collect_s, self._learn_s, metrics, due, skipped)

    def _metrics(self, losses: Losses) -> dict[str, float]:
        """The losses of an update, and what decided its size and the actions that were collected last."""
        named = {name: getattr(losses, name) for name in ("critic", "online", "offline", "accepted", "value")}
        named["gradient_norm"] = self.learner.gradient_norm
        numbers = torch.stack([number.float() for number in named.values()]).tolist()  # one copy from a GPU, not six
        plain = {"lr": self.learner.lr, "epsilon_start": self.collector.epsilon_start}
        return dict(zip(named, numbers, strict=True)) | plain
