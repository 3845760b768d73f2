"""Agents of stable-baselines3 without a run around them, and a toy that they learn in seconds."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from amago_core.checkpoint import load_state
from amago_core.seeding import child
from benchmarks.agents import make_agent
from benchmarks.agents.protocol import AgentSpec
from benchmarks.gate.evaluate import evaluate, evaluation_seeds, summarise
from benchmarks.gate.harness_env import HarnessEnv
from benchmarks.task import Task
from results.store import read_table


def make(agent: str, task: Task, slots: int, settings: dict[str, str], seed: int = 0, env_steps: int = 1) -> Any:
    envs = task.make(1)
    observation, action = envs.single_observation_space, envs.single_action_space
    return make_agent(agent, AgentSpec(task, "smoke", seed, observation, action, slots, env_steps, settings, 1, Path()))


def train(agent: Any, task: Task, env_steps: int, seed: int = 0) -> HarnessEnv:
    envs = HarnessEnv(task.make(agent.spec.num_envs), task, child(seed, task.id), "train")
    for _ in agent.learn(envs, child(seed, "learn")):
        if envs.env_steps >= env_steps:
            break
    return envs


def mean_return(agent: Any, task: Task) -> float:
    return summarise(evaluate(agent, task, evaluation_seeds(task.id, "final"))).return_mean


def result(folder: Path) -> list[Any]:
    """A run's rows, and its weights, which tell apart what scores alike."""
    rows = [
        {name: getattr(row, name) for name in row.__slots__ if name != "wall_s"}
        for table in ("episodes", "curves")
        for row in read_table(folder / f"{table}.csv", table)
    ]
    return [rows, {name: w.tolist() for name, w in load_state(folder / "checkpoint" / "agent.pt")["policy"].items()}]


def vectorised(make: Any) -> Any:
    return lambda slots: SyncVectorEnv([make] * slots, autoreset_mode=AutoresetMode.DISABLED)


class Match(gymnasium.Env):
    """One step: say what is shown. Pays 1 for the right one of four, or minus the distance in a lopsided Box."""

    def __init__(self, continuous: bool) -> None:
        self.continuous = continuous
        low, high = np.float32([-2, 10]), np.float32([1, 30])
        self.observation_space = spaces.Box(low, high) if continuous else spaces.Discrete(4)
        self.action_space = spaces.Box(low, high) if continuous else spaces.Discrete(4, start=-1)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        if self.continuous:
            self.shown = self.np_random.uniform([-2, 10], [1, 30]).astype(np.float32)
        else:
            self.shown = self.np_random.integers(4)
        return self.shown, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        if self.continuous:
            reward = 1 - float(np.abs((action - self.shown) / [1.5, 10]).mean())  # in half widths
        else:
            reward = float(action + 1 == self.shown)
        return self.shown, reward, True, False, {}
