"""Small agents and hand-made batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from amago_core.agent import Agent
from amago_core.config import Config, Rollout
from amago_core.sequences import Batch, Packing

#: No noise from dropout, sizes that run in milliseconds.
TINY = Config(
    encoder_hidden=(16,), encoder_width=12, width=16, layers=2, heads=2, dropout=0.0, actor_critic_hidden=(16, 16),
    critics=4, gamma=0.97, discounts=(0.5, 0.9), warmup_updates=0,
)  # fmt: skip
OBSERVATION = spaces.Box(-np.inf, np.inf, (3,), np.float32)
DISCRETE = spaces.Discrete(4)
CONTINUOUS = spaces.Box(-1, 1, (2,), np.float32)


def tiny_agent(
    action_space: spaces.Space = DISCRETE, seed: int = 0, horizon: int = 20, device: str = "cpu", **settings: Any
) -> Agent:
    """An agent of the sizes of `TINY`, with `settings` changed."""
    rollout, root = Rollout(horizon), np.random.SeedSequence(seed)
    return Agent(TINY.replace(settings), OBSERVATION, action_space, rollout, root, device)


def random_batch(agent: Agent, lengths: list[int], seed: int = 0) -> Batch:
    """Random rollouts of these many tokens, each ended at its last one, on the agent's device."""
    rng, packing = np.random.default_rng(seed), Packing(lengths)
    n, size = packing.tokens, agent.actions.size
    action = rng.integers(size, size=n) if agent.actions.discrete else rng.uniform(-1, 1, (n, size))
    action = action.astype(agent.actions.field.dtype)
    action[packing.starts] = agent.actions.blank
    terminal = np.zeros(n, bool)
    terminal[packing.ends - 1] = True
    reset = np.zeros(n, bool)
    reset[packing.starts] = True
    fields = {
        "observation": rng.normal(size=(n, 3)).astype(np.float32),
        "action": action,
        "reward": rng.normal(size=n).astype(np.float32),
        "terminal": terminal,
        "reset": reset,
    }
    position = np.concatenate([np.arange(k) for k in lengths])
    tensors = {name: torch.from_numpy(field) for name, field in fields.items()}
    return Batch(packing, torch.from_numpy(position), tensors).to(agent.device)
