"""AMAGO and its ablations as agents of the harness."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from amago_core.acting import Actor
from amago_core.agent import Agent
from amago_core.checkpoint import load_state, save_state
from amago_core.config import Rollout
from amago_core.replay import ReplayDamaged
from amago_core.seeding import child
from amago_core.train import Trainer
from benchmarks.agents.presets import configure
from benchmarks.agents.protocol import AgentSpec, CannotResume, Progress, VectorStep
from results.errors import UserError

if TYPE_CHECKING:
    from benchmarks.gate.harness_env import HarnessEnv


class Amago:
    """The agent of `amago_core` under the contract of the harness.

    Args:
        spec: the run.
        preset: a key of `presets.PRESETS`.
    """

    resumes = True
    learns = True

    def __init__(self, spec: AgentSpec, preset: str = "amago") -> None:
        torch.set_num_threads(spec.threads)
        self.spec = spec
        self.config = configure(preset, spec.task, spec.tier, spec.settings)
        task = spec.task
        rollout = Rollout(task.horizon, task.time_limit == "finite", task.time_scale or float("nan"))
        seed = child(spec.seed, "agent")
        device = _device(self.config.device)
        self.agent = Agent(self.config, spec.observation_space, spec.action_space, rollout, seed, device)
        self._trainer: Trainer | None = None  # while it learns
        self._state: dict[str, Any] | None = None  # of a trainer, to resume from

    def learn(self, envs: HarnessEnv, seeds: np.random.SeedSequence) -> Iterator[Progress]:
        self._refuse_a_budget_without_updates()
        try:
            self._trainer = Trainer(self.agent, envs, seeds, self.spec.folder, self._state)
        except ReplayDamaged as error:
            raise CannotResume(str(error)) from error
        if self._state is not None and envs.needs_reset.any():
            self._trainer.collector.restart(envs.needs_reset)
        self._state = None
        try:
            yield from self._trainer.run()
        finally:
            self._trainer = None  # what is saved from now on is the trained policy

    def _refuse_a_budget_without_updates(self) -> None:
        config, steps = self.config, math.ceil(self.spec.env_steps / self.spec.num_envs)
        if (first := (config.warmup_iterations + 1) * config.steps_per_iteration) >= steps:
            raise UserError(
                f"no update can be made: the first would come after {first} steps in each slot and the run ends after "
                f"{steps}; give more --steps, fewer --num-envs, or lower warmup_iterations or steps_per_iteration"
            )

    def act(self, step: VectorStep, memory: Any, rng: np.random.Generator) -> tuple[Any, Any]:
        actor = memory or Actor(self.agent, len(step.first))
        observation, sample = self.agent.observations.store(step.observation), self.spec.task.sample_actions
        actor.previous = actor.step(observation, step.reward, step.first, step.inner_reset, rng, sample)
        return self.agent.actions.to_env(actor.previous), actor

    def save(self, folder: Path) -> None:
        if self._trainer is None:
            save_state(folder / "agent.pt", self.agent.state_dict())
        else:
            save_state(folder / "training.pt", self._trainer.state_dict())

    def load(self, folder: Path) -> str | None:
        learner: Mapping[str, Any] = {}
        if (folder / "training.pt").exists():
            self._state = load_state(folder / "training.pt")
            learner = self._state["learner"]
        try:
            self.agent.load_state_dict(learner["agent"] if learner else load_state(folder / "agent.pt"))
        except RuntimeError as error:  # its message lists every tensor
            raise ValueError("its weights are those of another version of the agent") from error
        before, now = learner and learner["generator"]["device"], self.agent.generator.device.type
        if not learner or before == now:
            return None
        return f"learning moved from {before} to {now}, where its random generator was reseeded"

    def describe(self) -> Mapping[str, Any]:
        attention = "; ".join(filter(None, (self.agent.attention, self.agent.attention_note)))
        return {
            "parameters": self.agent.parameter_count(),
            "device": self.agent.device,
            "attention": attention if self.config.sequence_model == "transformer" else "none",
            "dtype": self.config.dtype,
        }


def _device(wanted: str) -> str:
    if wanted == "cuda" and not torch.cuda.is_available():
        raise UserError("device=cuda: PyTorch finds no CUDA device here; use --set device=cpu or device=auto")
    return ("cuda" if torch.cuda.is_available() else "cpu") if wanted == "auto" else wanted
