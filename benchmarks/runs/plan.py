"""The plan of a run: its names resolved, its folder, and what an earlier run under the same id must match."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gymnasium.vector import VectorEnv

from benchmarks.agents import agent_id, check_agent, configuration, parse_agent
from benchmarks.agents.protocol import AgentSpec
from benchmarks.agents.settings import Given
from benchmarks.gate.evaluate import FINAL_ROLLOUTS, SLOTS
from benchmarks.runs.budget import agent_settings, canonical_settings, with_overrides
from benchmarks.task import Budget, Task
from results.errors import UserError
from results.protocols import protocol_id
from results.schema import TaskFacts, run_id
from results.store import results_root, run_folder


@dataclass(frozen=True)
class Plan:
    """What is to be run, all names resolved."""

    task: Task
    base: str  # the agent without its settings
    settings: Mapping[str, str]  # the agent's, and those of `budget.OVERRIDES`
    tier: str
    seed: int
    threads: int
    root: Path

    @property
    def agent(self) -> str:
        return agent_id(self.base, self.settings)

    @property
    def run_id(self) -> str:
        return run_id(self.tier, self.task.id, self.agent, self.seed)

    @property
    def folder(self) -> Path:
        return run_folder(self.root, self.tier, self.task.id, self.agent, self.seed)

    @property
    def budget(self) -> Budget:
        return with_overrides(self.task.budget(self.tier), self.settings)

    @property
    def protocol(self) -> dict[str, Any]:
        """What makes the scores of two runs comparable (results/protocols.py)."""
        return {
            "task": self.task.id,
            "horizon": self.task.horizon,
            "time_limit": self.task.time_limit,
            "evaluation": {
                "rollouts": FINAL_ROLLOUTS,
                "slots": SLOTS,
                "policy": "sampled" if self.task.sample_actions else "mode",
                "instances": self.task.instances,
                # Left out where it is what was counted before tasks could declare it, so that the id stays.
                **({} if self.task.success == "any_step" else {"success": self.task.success}),
            },
            "packages": {name: _version(name) for name in sorted(self.task.packages)},
        }

    @property
    def config(self) -> dict[str, Any]:
        """What decides the run's result besides its id and the code: the column `config`, and config.json."""
        budget = {key: value for key, value in asdict(self.budget).items() if key != "seeds"}
        agent = configuration(self.base, self.task, self.tier, agent_settings(self.settings))
        return {"budget": budget, "hyperparameters": agent, "settings": dict(self.settings), "threads": self.threads}

    @property
    def identity(self) -> dict[str, Any]:
        """What an earlier run under the same id must match: config.json, and the columns `protocol` and `config`."""
        names = {"task": self.task.id, "agent": self.agent, "tier": self.tier, "seed": self.seed}
        return {"run_id": self.run_id, **names, "protocol": protocol_id(self.protocol), **self.config}

    @property
    def facts(self) -> TaskFacts:
        """The row of the table `tasks`."""
        task = self.task
        return TaskFacts(
            task=task.id,
            tier=self.tier,
            protocol=protocol_id(self.protocol),
            random_return=None if math.isnan(task.random_return) else task.random_return,
            high=None if math.isnan(task.high) else task.high,
            high_source=task.high_source,
            solved_at=task.solved_at,
            stop_return=self.budget.stop_return,
        )

    def spec(self, envs: VectorEnv, folder: Path) -> AgentSpec:
        return AgentSpec(
            task=self.task,
            tier=self.tier,
            seed=self.seed,
            observation_space=envs.single_observation_space,
            action_space=envs.single_action_space,
            num_envs=self.budget.num_envs,
            env_steps=self.budget.env_steps,
            settings=Given(agent_settings(self.settings)),
            threads=self.threads,
            folder=folder,
        )


def plan(
    task: str | Task,
    agent: str,
    tier: str = "smoke",
    seed: int = 0,
    settings: Mapping[str, str] | None = None,
    *,
    root: Path | None = None,
    threads: int = 1,
) -> Plan:
    """Resolve the names of a run. Raises UserError for an unknown task, agent, tier or setting."""
    if isinstance(task, str):
        from benchmarks.catalog import get_task

        task = get_task(task)
    task.budget(tier)  # report a tier that it has not before anything else
    if seed < 0:
        raise UserError(f"seed {seed} is negative; seeds are 0, 1, 2, ...")
    base, own = parse_agent(agent)
    check_agent(base)
    changed = canonical_settings(base, {**own, **(settings or {})})
    planned = Plan(task, base, changed, tier, seed, threads, root or results_root())
    _ = planned.budget, planned.config  # report a wrong setting before anything is written
    return planned


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
