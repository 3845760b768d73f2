"""How much of a run's time the harness takes: everything that is neither the agent nor the environment.

The harness counts and checks steps, draws seeds, runs evaluations, and writes tables, log and mirrors. Its time is what
remains of `run` without the code of the agent and of the environment. Timed checkpoints are not included: this run ends
before the first one, and the harness itself limits their cost (`checkpoint.SHARE`).
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from benchmarks.agents.amago import Amago
from benchmarks.agents.protocol import AgentSpec, Progress, VectorStep
from benchmarks.catalog import get_task
from benchmarks.gate.harness_env import HarnessEnv
from benchmarks.runs.plan import plan
from benchmarks.runs.run import run
from benchmarks.task import Task

PART = 5  # run 1/5 of the laptop budget, with the same evaluations per step; one-time costs weigh more than in full


class Turns:
    """Seconds of each owner's code, without calls into other owners' code. The rest belongs to the harness."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.start()

    def start(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._owner, self._since = "harness", self._clock()

    def give(self, owner: str) -> str:
        """From now on it is the turn of `owner`; returns the previous owner."""
        now, before = self._clock(), self._owner
        self.seconds[before] += now - self._since
        self._owner, self._since = owner, now
        return before

    def of(self, owner: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, as the turn of `owner`."""

        def timed(*arguments: Any, **named: Any) -> Any:
            before = self.give(owner)
            try:
                return call(*arguments, **named)
            finally:
                self.give(before)

        return timed


TURNS = Turns()  # of the measured run; global, because the harness builds the agent from its name alone


class TimedAmago(Amago):
    """AMAGO, timed as a turn of its own."""

    def __init__(self, spec: AgentSpec) -> None:
        TURNS.of("agent", super().__init__)(spec, preset="amago")

    def learn(self, envs: HarnessEnv, seeds: np.random.SeedSequence) -> Iterator[Progress]:
        for name in ("step", "reset"):
            setattr(envs, name, TURNS.of("harness", getattr(envs, name)))
        points = super().learn(envs, seeds)
        try:
            yield from iter(TURNS.of("agent", partial(next, points, None)), None)
        finally:
            points.close()  # type: ignore[attr-defined]

    def act(self, step: VectorStep, memory: Any, rng: np.random.Generator) -> tuple[Any, Any]:
        actions: tuple[Any, Any] = TURNS.of("agent", super().act)(step, memory, rng)
        return actions

    def save(self, folder: Path) -> None:
        TURNS.of("agent", super().save)(folder)


def _timed_environment(make: Callable[[int], VectorEnv], slots: int) -> VectorEnv:
    envs: VectorEnv = TURNS.of("environment", make)(slots)
    for name in ("step", "reset"):
        setattr(envs, name, TURNS.of("environment", getattr(envs, name)))
    return envs


def timed_run() -> dict[str, float]:
    """Seconds of `harness`, `agent` and `environment` in a part of the laptop run of the T-Maze with N = 30."""
    task: Task = get_task("long_term_memory/tmaze/passive-30")
    whole = task.budget("laptop")
    part = replace(
        whole, env_steps=whole.env_steps // PART, evaluations=max(1, whole.evaluations // PART), stop_return=None
    )
    task = replace(task, make=partial(_timed_environment, task.make), budgets={"laptop": part})
    agent = f"{TimedAmago.__module__}:{TimedAmago.__name__}"
    with tempfile.TemporaryDirectory() as folder:
        planned = plan(task, agent, "laptop", root=Path(folder))
        TURNS.start()
        run(planned, say=lambda line: None)
        TURNS.give("harness")
    return TURNS.seconds
