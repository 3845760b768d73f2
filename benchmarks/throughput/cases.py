"""What is timed, and at which sizes.

The small learner has the sizes at which the official implementation was timed on two cores of this kind of machine
(release 3.3, float32: 180 ms an update, 5,100 steps/s acting); the wide one is the size that a GPU user trains.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from amago_core.agent import Agent
from amago_core.collect import Collector
from amago_core.config import DISCRETE_DISCOUNTS, Config, Rollout
from amago_core.learner import Learner
from amago_core.replay import Replay
from amago_core.sampler import Sampler
from amago_core.sequences import timestep_layout
from benchmarks.agents.amago import Amago
from benchmarks.agents.protocol import AgentSpec
from benchmarks.catalog import get_task
from benchmarks.gate.evaluate import evaluate, evaluation_seeds
from benchmarks.gate.harness_env import HarnessEnv
from benchmarks.long_term_memory.popgym.tasks import PAPER_TASKS

CORRIDOR = 100
TMAZE = f"long_term_memory/tmaze/passive-{CORRIDOR}"
SMALL = Config(
    encoder_hidden=(128, 128),
    encoder_width=64,
    width=64,
    layers=2,
    heads=8,
    actor_critic_hidden=(256, 256),
    critics=4,
    discounts=(0.1, *DISCRETE_DISCOUNTS),  # 19 with gamma
    batch_sequences=24,
    sample_actions=False,
)
WIDE = Config(width=256, layers=3, heads=8, discounts=(0.1, *DISCRETE_DISCOUNTS), batch_sequences=24)


@dataclass(frozen=True)
class Work:
    """A callable to time, with what one call does."""

    call: Callable[[], object]
    steps: int = 0  # environment steps, all slots together
    flops: float = 0.0  # useful floating-point operations


def matmul(dtype: str) -> Work:
    """The yardstick: a product of the size of a wide layer, in the same process."""
    a, b = (torch.randn(2048, 1024).to(getattr(torch, dtype)) for _ in range(2))
    return Work(lambda: a @ b.T, flops=2 * 2048 * 2048 * 1024)


def best_of(call: Callable[[], object], rounds: int = 15) -> float:
    """Seconds of the fastest call; of a yardstick the fastest is the one that nothing else disturbed."""
    call()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def _agent(config: Config, tokens: int, task_id: str = TMAZE) -> Agent:
    env = get_task(task_id).build(1)
    rollout = Rollout(tokens - 1)
    return Agent(config, env.single_observation_space, env.single_action_space, rollout, np.random.SeedSequence(0))


def filled_replay(agent: Agent, folder: Path, tokens: int, rollouts: int = 64) -> Replay:
    """A replay of made-up rollouts of `tokens` tokens."""
    rng = np.random.default_rng(0)
    layout = timestep_layout(agent.observations, agent.actions)
    replay = Replay(folder, layout, tokens * rollouts, rollouts)
    for _ in range(rollouts):
        observation = rng.normal(size=(tokens, *layout["observation"].shape)).astype(np.float32)
        replay.add(
            {
                "observation": observation,
                "action": rng.integers(agent.actions.size, size=tokens).astype(layout["action"].dtype),
                "reward": rng.normal(size=tokens).astype(np.float32),
                "terminal": np.arange(tokens) == tokens - 1,
                "reset": np.arange(tokens) == 0,
            }
        )
    return replay


def update(config: Config, tokens: int, dtype: str) -> Work:
    """One learner update from a batch of `config.batch_sequences` rollouts of `tokens` tokens."""
    agent = _agent(config.replace({"dtype": dtype}), tokens)
    with tempfile.TemporaryDirectory() as folder:
        replay = filled_replay(agent, Path(folder), tokens)
        batch = Sampler(replay, config.batch_sequences, 10**9, tokens).sample(np.random.default_rng(0))
    learner = Learner(agent)
    return Work(lambda: learner.update(batch), flops=update_flops(config, agent, config.batch_sequences, tokens))


def sampling(tokens: int) -> Work:
    """One packed batch of 24 rollouts from the replay."""
    agent = _agent(SMALL, tokens)
    folder = tempfile.TemporaryDirectory()
    sampler, rng = Sampler(filled_replay(agent, Path(folder.name), tokens), 24, 10**9, tokens), np.random.default_rng(0)

    def call(keep: object = folder) -> None:
        sampler.sample(rng)

    return Work(call)


def acting(slots: int, config: Config = SMALL, task_id: str = TMAZE, steps: int = CORRIDOR + 1) -> Work:
    """Rollouts of a task, all in: environment behind the harness, encoding, cache, exploration, storage."""
    task = get_task(task_id)
    agent = _agent(config, task.horizon + 1, task_id)
    folder = tempfile.TemporaryDirectory()
    replay = Replay(Path(folder.name), timestep_layout(agent.observations, agent.actions), 100_000, 2_000)
    envs = HarnessEnv(task.build(slots), task, np.random.SeedSequence(0), "train")
    collector = Collector(envs, agent, replay, np.random.SeedSequence(1))

    def call(keep: object = folder) -> None:
        collector.collect(steps)

    return Work(call, steps=slots * steps)


def popgym_rates(slots: int, steps: int = 120) -> dict[str, float]:
    """Steps a second of acting on each of the paper's 39 POPGym tasks."""
    rates = {}
    for task_id in PAPER_TASKS:
        work = acting(slots, task_id=task_id, steps=steps)
        rates[task_id] = work.steps / best_of(work.call, rounds=1)
    return rates


def evaluating() -> Work:
    """100 evaluation rollouts of T-Maze by AMAGO, with all their bookkeeping."""
    task = get_task(TMAZE)
    env = task.build(1)
    spec = AgentSpec(
        task,
        "laptop",
        0,
        env.single_observation_space,
        env.single_action_space,
        1,
        1,
        {},
        torch.get_num_threads(),
        Path(),
    )
    agent = Amago(spec)
    return Work(lambda: evaluate(agent, task, evaluation_seeds(task.id, "final"), 100), steps=100 * task.horizon)


def start_up(arguments: tuple[str, ...]) -> Work:
    """A command in a process of its own."""
    command = [sys.executable, "-m", "reproduce.cli", *arguments]
    return Work(lambda: subprocess.run(command, check=True, capture_output=True))


def update_flops(config: Config, agent: Agent, sequences: int, tokens: int) -> float:
    """Useful floating-point operations of an update: two per weight and row forward, twice that backward.

    Attention counts the causal half of its products. The target networks run forward only. Norms, activations and
    the optimiser count nothing. All weights count for all tokens, though the heads skip the last one of a sequence.
    """
    n = sequences * tokens

    def weights(module: torch.nn.Module) -> int:
        named = module.named_parameters()
        return sum(p.numel() for name, p in named if name.endswith("weight") and p.ndim >= 2 and "table" not in name)

    networks = agent.actor_critic
    trained = sum(weights(m) for m in (agent.encoder, agent.sequence_model, networks.actor, networks.critics))
    targets = weights(networks.target_actor) + weights(networks.target_critics)
    attention = config.layers * 2 * sequences * tokens * tokens * config.width  # q k and p v, causal half
    return 3 * (2 * n * trained + attention) + 2 * n * targets
