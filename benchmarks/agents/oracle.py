"""Agents that play a policy provided by the task, from which the `high` of its normalised score comes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from gymnasium.vector import VectorEnv

from benchmarks.agents.protocol import AgentSpec, Progress, VectorStep
from results.errors import UserError


class TaskPolicy:
    """Plays a policy of the task and learns nothing. Raises UserError if the task has no such policy."""

    def __init__(self, spec: AgentSpec, kind: Literal["oracle", "scripted"]) -> None:
        other = "scripted" if kind == "oracle" else "oracle"
        policies = {"oracle": spec.task.oracle, "scripted": spec.task.scripted}
        if (policy := policies[kind]) is None:
            hint = f"agent '{other}' plays it" if policies[other] else "choose another agent"
            raise UserError(f"task {spec.task.id} has no {kind} policy; {hint}")
        self._policy = policy

    def learn(self, envs: VectorEnv, seeds: np.random.SeedSequence) -> Iterator[Progress]:
        """Takes no step: there is nothing to learn. One safe point, then the end."""
        yield Progress()

    def act(self, step: VectorStep, memory: Any, rng: np.random.Generator) -> tuple[Any, Any]:
        return self._policy(step, memory)

    def save(self, folder: Path) -> None:
        """Nothing to save."""

    def load(self, folder: Path) -> None:
        """Nothing to load."""


class Oracle(TaskPolicy):
    """Plays `task.oracle`, which is optimal."""

    def __init__(self, spec: AgentSpec) -> None:
        super().__init__(spec, "oracle")


class Scripted(TaskPolicy):
    """Plays `task.scripted`, which is good but not known to be optimal."""

    def __init__(self, spec: AgentSpec) -> None:
        super().__init__(spec, "scripted")
