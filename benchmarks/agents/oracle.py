"""The scripted policy that a task brings: where `high` of its normalised score comes from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from benchmarks.agents.protocol import AgentSpec, Progress, VectorStep
from results.errors import UserError


class Oracle:
    """Plays `task.oracle`. Raises UserError for a task without one."""

    def __init__(self, spec: AgentSpec) -> None:
        if spec.task.oracle is None:
            raise UserError(f"task {spec.task.id} has no oracle; choose another agent")
        self._policy = spec.task.oracle

    def learn(self, envs: VectorEnv, seeds: np.random.SeedSequence) -> Iterator[Progress]:
        """Takes no step: there is nothing to learn. One safe point, then the end."""
        yield Progress()

    def act(self, step: VectorStep, memory: Any, rng: np.random.Generator) -> tuple[Any, Any]:
        return self._policy(step, memory)

    def save(self, folder: Path) -> None:
        """Nothing to save."""

    def load(self, folder: Path) -> None:
        """Nothing to load."""
