"""Uniformly random actions: the zero of every normalised score."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space

from benchmarks.agents.protocol import AgentSpec, Progress, VectorStep


class Random:
    """Samples the action space (gymnasium's rule for unbounded boxes)."""

    def __init__(self, spec: AgentSpec) -> None:
        self._action_space = spec.action_space

    def learn(self, envs: VectorEnv, seeds: np.random.SeedSequence) -> Iterator[Progress]:
        """Takes no step: there is nothing to learn. One safe point, then the end."""
        yield Progress()

    def act(self, step: VectorStep, memory: Any, rng: np.random.Generator) -> tuple[Any, Any]:
        """The memory is the batched space, seeded once from `rng`, since a space draws only from its own generator."""
        if memory is None:
            memory = batch_space(self._action_space, len(step.first))
            memory.seed(int(rng.integers(2**31)))
        return memory.sample(), memory

    def save(self, folder: Path) -> None:
        """Nothing to save."""

    def load(self, folder: Path) -> None:
        """Nothing to load."""
