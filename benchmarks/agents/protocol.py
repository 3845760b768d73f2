"""What an agent is, as the harness sees it.

The harness owns the environments, the seeds, the count of steps, the evaluation and the tables; an agent
learns when it is given environments and acts when it is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from gymnasium import Space

from amago_core.progress import Progress
from benchmarks.gate.vector_step import VectorStep
from benchmarks.task import Task
from results.errors import UserError

if TYPE_CHECKING:
    from benchmarks.gate.harness_env import HarnessEnv

__all__ = ["Agent", "AgentSpec", "CannotResume", "ContractError", "Progress", "VectorStep"]


class ContractError(UserError):
    """An agent broke the contract; the message names the method and, if there is one, the slot, seed and step."""


class CannotResume(UserError):
    """Files that an agent keeps beside its checkpoints are missing or changed; the message says which."""


@dataclass(frozen=True)
class AgentSpec:
    """Everything an agent is built from.

    `settings` are the `--set key=value` of the command line: a mapping of texts, or, for an agent from outside that
    declares `Settings`, an instance of that class. One of the texts that the agent has not asked for by its first safe
    point is refused.
    """

    task: Task
    tier: str
    seed: int
    observation_space: Space  # of one slot
    action_space: Space  # of one slot
    num_envs: int
    env_steps: int  # the budget of the run, all slots together
    settings: Any
    threads: int
    folder: Path  # scratch space, for instance for a replay; it may have moved when a run is resumed


@runtime_checkable
class Agent(Protocol):
    """A learner and its policy.

    An agent may declare its settings: a class attribute `Settings`, a dataclass whose fields all have defaults, best
    a subclass of `amago_core.hyperparameters.Hyperparameters`. Then `--set` is read by the types of its fields and
    checked, `amago-bench show` prints them, all values are stored with each run, and `spec.settings` is an instance.

    An agent may also have `describe() -> Mapping[str, Any]` with any of `parameters` (int), `device`, `attention`
    and `dtype`; they fill the columns of those names in the table of runs.

    An agent with `learns = True` counts its updates in `Progress`; a run of it that makes none fails, because an
    untrained network is no result.

    An agent with `resumes = True` can continue in another process as if nothing had happened: `save` at a safe point of
    `learn` writes everything that `learn` needs, and after `load` a new `learn` continues from there. Its environments
    are already where they were and must not be reset, except the slots in `envs.needs_reset` (bool [B]): there the
    rollout under way is lost and a new one begins. What the agent keeps in `spec.folder` stays until the run ends. An
    agent without `resumes` starts over if its run was stopped, which produces the same rows.
    """

    def __init__(self, spec: AgentSpec) -> None: ...

    def learn(self, envs: HarnessEnv, seeds: np.random.SeedSequence) -> Iterator[Progress]:
        """Train; yield at safe points, at least every few seconds. At each one the harness may evaluate, save or stop.

        `envs` does not reset itself: call its `reset` with `options={"reset_mask": done}` to reset the slots that are
        done. The harness chooses the seeds, so a `seed` given to `reset` is refused. End the iterator when there is
        nothing more to learn.
        """
        ...

    def act(self, step: VectorStep, memory: Any, rng: np.random.Generator) -> tuple[Any, Any]:
        """Actions for B slots, batched as in `action_space`, and the memory to pass to the next call.

        `memory` is None at the start of an evaluation. Exploration noise is off; whether the policy samples or takes
        its mode is `task.sample_actions`. Every draw comes from `rng`.
        """
        ...

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> str | None:
        """The inverse of `save`. May return one line, for the run's notes, on what could not be restored.

        Raises CannotResume, as `learn` may, if files in `spec.folder` are missing.
        """
        ...
