"""AMAGO and its ablations as agents of the harness."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv

from amago_core.acting import Actor
from amago_core.agent import Agent
from amago_core.config import Rollout
from amago_core.seeding import child
from amago_core.train import Trainer
from benchmarks.agents.presets import configure
from benchmarks.agents.protocol import AgentSpec, Progress, VectorStep


class Amago:
    """The agent of `amago_core` under the contract of the harness.

    Args:
        spec: the run.
        preset: a key of `presets.PRESETS`.
    """

    def __init__(self, spec: AgentSpec, preset: str = "amago") -> None:
        torch.set_num_threads(spec.threads)
        self.spec = spec
        self.config = configure(preset, spec.task, spec.tier, spec.settings)
        task = spec.task
        rollout = Rollout(task.horizon, task.time_limit == "finite", task.time_scale or float("nan"))
        device = "cuda" if torch.cuda.is_available() else "cpu"
        seed = child(spec.seed, "agent")
        self.agent = Agent(self.config, spec.observation_space, spec.action_space, rollout, seed, device)

    def learn(self, envs: VectorEnv, seeds: np.random.SeedSequence) -> Iterator[Progress]:
        for progress in Trainer(self.agent, envs, seeds, self.spec.folder).run():
            yield Progress(**vars(progress))

    def act(self, step: VectorStep, memory: Any, rng: np.random.Generator) -> tuple[Any, Any]:
        actor = memory or Actor(self.agent, len(step.first))
        rows = self.agent.observations.store(step.observation)
        actor.previous = actor.step(rows, step.reward, step.first, step.inner_reset, rng, self.spec.task.sample_actions)
        return self.agent.actions.to_env(actor.previous), actor

    def save(self, folder: Path) -> None:
        torch.save(self.agent.state_dict(), folder / "agent.pt")

    def load(self, folder: Path) -> None:
        self.agent.load_state_dict(torch.load(folder / "agent.pt", weights_only=True, map_location=self.agent.device))

    def describe(self) -> Mapping[str, Any]:
        attention = "; ".join(filter(None, (self.agent.attention, self.agent.attention_note)))
        return {
            "parameters": self.agent.parameter_count(),
            "device": self.agent.device,
            "attention": attention if self.config.sequence_model == "transformer" else "none",
            "dtype": self.config.dtype,
        }
