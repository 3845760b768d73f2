"""Learning tests of seconds: the whole loop solves what it should, and not what it cannot.

Tried with other seeds when written: the T-Maze took 250 to 500 updates (8 Transformers, 7 GRUs), the continuous task
100 to 700 (6 seeds), the control without bootstrapping stayed below -0.88 (3 seeds); the budgets are 1500. The
evaluation is balanced over the hidden instance, so the best return without memory is exact.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from amago_core.acting import Actor
from amago_core.agent import Agent
from amago_core.config import Config, Rollout
from amago_core.train import Trainer
from benchmarks.long_term_memory.tmaze import TMaze

SMALL = Config(
    encoder_hidden=(32,), encoder_width=32, width=32, layers=1, heads=2, dropout=0.0, head_hidden=(32,),
    discounts=(0.9,), gamma=0.97, lr=2e-3, warmup_updates=20, tau=0.02,
    steps_per_iteration=25, updates_per_iteration=20, replay_tokens=20_000,
    epsilon_start=(1.0, 0.05), epsilon_end=(1.0, 0.05), anneal_steps=300, sample_actions=False,
)  # fmt: skip
SLOTS, EVERY = 10, 50


class Reach(VectorEnv):
    """Three moves of at most a half on a line to a target at -0.9 or 0.9 that is shown at the start only.

    Observation (target or 0, place); the reward is minus the distance after the third move.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012
    horizon = 3

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.single_observation_space = spaces.Box(-2, 2, (2,), np.float32)
        self.single_action_space = spaces.Box(-1, 1, (1,), np.float32)
        self.target, self.place, self.t = (np.zeros(num_envs, np.float32) for _ in range(3))

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        options = options or {}
        mask = options.get("reset_mask", np.ones(self.num_envs, bool))
        instance = options.get("instance", self.rng.integers(2, size=self.num_envs))
        self.target = np.where(mask, np.float32(0.9) * (2 * instance - 1), self.target)
        self.place, self.t = np.where(mask, 0, self.place), np.where(mask, 0, self.t)
        return self._observation(), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        self.place, self.t = self.place + actions[:, 0] / 2, self.t + 1
        done = self.t == self.horizon
        reward = np.where(done, -np.abs(self.place - self.target), 0).astype(np.float32)
        return self._observation(), reward, done, np.zeros_like(done), {}

    def _observation(self) -> np.ndarray:
        return np.stack([np.where(self.t == 0, self.target, 0), self.place], axis=1).astype(np.float32)


def mean_return(agent: Agent, envs: Any) -> float:
    """Of one rollout in each slot, the two hidden instances alternating, without exploration."""
    envs.reset(seed=0)
    every = np.ones(envs.num_envs, bool)
    observation, _ = envs.reset(options={"reset_mask": every, "instance": np.arange(envs.num_envs) % 2})
    actor, rng, first = Actor(agent, envs.num_envs), np.random.default_rng(0), every
    reward, total = np.zeros(envs.num_envs, np.float32), 0.0
    for _ in range(envs.horizon):
        rows = agent.observations.store(observation)
        actor.previous = actor.step(rows, reward, first, ~every, rng, sample=False)
        observation, reward, first, _, _ = envs.step(agent.actions.to_env(actor.previous))
        total += float(reward.mean())
    return total


def learn(make: Any, folder: Path, goal: float, updates: int, seed: int = 0, **settings: Any) -> list[float]:
    """Mean returns of the policy in training, up to the first that reaches `goal`, at most `updates` updates."""
    envs = make(SLOTS)
    envs.reset(seed=seed)
    agent = Agent(
        SMALL.replace(settings), envs.single_observation_space, envs.single_action_space, Rollout(envs.horizon),
        np.random.SeedSequence(seed),
    )  # fmt: skip
    returns: list[float] = []
    for progress in Trainer(agent, envs, np.random.SeedSequence(seed), folder).run():
        if progress.updates == EVERY * (len(returns) + 1):
            returns.append(mean_return(agent, make(20)))
            if returns[-1] >= goal or progress.updates >= updates:
                return returns
    raise AssertionError("training does not end by itself")


def tmaze(slots: int) -> TMaze:
    return TMaze(slots, corridor=4)


@pytest.mark.parametrize("model", ["transformer", "gru"])
def test_memory_solves_a_tmaze(model: str, tmp_path: Path) -> None:
    """0.95 needs both turns right: without memory 0.5 is the most, without a value of later steps 0 is."""
    returns = learn(tmaze, tmp_path, goal=0.95, updates=1500, sequence_model=model, reward_multiplier=100.0)
    assert returns[-1] >= 0.95, returns


def test_without_memory_half_of_the_turns_are_wrong(tmp_path: Path) -> None:
    """It walks the corridor, so it learns; and no return passes 0.5, so nothing leaks the cue."""
    settings = {"sequence_model": "memoryless", "reward_multiplier": 100.0}
    returns = learn(tmaze, tmp_path, goal=0.51, updates=600, **settings)
    assert max(returns) == pytest.approx(0.5), returns


REACH = {
    "reward_multiplier": 10.0, "steps_per_iteration": 15, "anneal_steps": 200,
    "epsilon_start": (1.0, 0.1), "epsilon_end": (1.0, 0.1),
    "offline_weight": 0.0,  # the policy gradient alone: cloning would hide a wrong sign
}  # fmt: skip


def test_continuous_actions_reach_a_remembered_target(tmp_path: Path) -> None:
    """-0.25 needs two moves in the right direction: the last one alone gives -0.4, standing still or no memory -0.9,
    and a wrong sign goes away from the target."""
    returns = learn(Reach, tmp_path, goal=-0.25, updates=1500, **REACH)
    assert returns[-1] >= -0.25, returns


def test_without_bootstrapping_the_target_is_not_reached(tmp_path: Path) -> None:
    """The control: with a discount of 0 only the last move is learned, and -0.4 is the most."""
    returns = learn(Reach, tmp_path, goal=-0.25, updates=300, gamma=0.0, discounts=(), **REACH)
    assert max(returns) < -0.35, returns
