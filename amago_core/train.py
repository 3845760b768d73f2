"""The training loop, as a generator that yields at safe points."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from amago_core.agent import Agent, Losses
from amago_core.collect import Collector
from amago_core.learner import Learner
from amago_core.replay import Replay
from amago_core.seeding import child


@dataclass(frozen=True)
class Progress:
    """Totals since the start of training, and the mean losses since the last report."""

    updates: int
    tokens: int  # learned from
    collect_s: float
    learn_s: float
    metrics: Mapping[str, float]


class Trainer:
    """An agent with its learner, its replay and its collector.

    Args:
        agent: is trained in place.
        envs: training environments, see `Collector`.
        seed: root of the streams of collecting and replay.
        folder: for the replay files.
    """

    def __init__(
        self, agent: Agent, envs: VectorEnv[Any, Any, Any], seed: np.random.SeedSequence, folder: Path
    ) -> None:
        self.agent, self.config = agent, agent.config
        config, rollout = agent.config, agent.rollout
        self.learner = Learner(agent)
        if config.replay_tokens <= rollout.horizon:
            raise ValueError(f"replay_tokens {config.replay_tokens} cannot hold a rollout of {rollout.horizon} steps")
        capacity = min(config.replay_tokens, config.replay_trajectories * (rollout.horizon + 1))
        self.replay = Replay(folder, agent.observations, agent.actions, capacity, config.replay_trajectories)
        self.collector = Collector(envs, agent, self.replay, child(seed, "collect"))
        self._rng = np.random.default_rng(child(seed, "replay"))
        self._context = config.context or rollout.horizon
        self._tokens, self._collect_s, self._learn_s = 0, 0.0, 0.0

    def run(self) -> Iterator[Progress]:
        """Collects and learns for ever; yields after each phase of collecting and after each update."""
        config, iteration = self.config, 0
        while True:
            started = time.perf_counter()
            self.collector.collect(config.steps_per_iteration)
            self._collect_s += time.perf_counter() - started
            yield self._progress({})
            iteration += 1
            if iteration <= config.warmup_iterations or not len(self.replay):
                continue
            for _ in range(config.updates_per_iteration):
                yield self._progress(_metrics(self._update()))

    def _update(self) -> Losses:
        started = time.perf_counter()
        config = self.config
        batch = self.replay.sample(
            self._rng,
            config.batch_sequences,
            config.batch_tokens,
            self._context,
            config.replay_sampling == "transition",
        )
        losses = self.learner.update(batch.to(self.agent.device))
        self._tokens += batch.packing.tokens
        self._learn_s += time.perf_counter() - started
        return losses

    def _progress(self, metrics: Mapping[str, float]) -> Progress:
        return Progress(self.learner.updates, self._tokens, self._collect_s, self._learn_s, metrics)


def _metrics(losses: Losses) -> dict[str, float]:
    parts = vars(losses)
    return {name: float(parts[name]) for name in ("critic", "online", "offline", "accepted", "value")}
