"""One gradient step: losses, clipped summed gradient, AdamW with warm-up, moving-average targets (A.9, A.11)."""

from __future__ import annotations

from typing import Any

import torch

from amago_core.agent import Agent, Losses
from amago_core.sequences import Batch


class Learner:
    """Owns the optimiser of an agent.

    A step whose gradient is not finite is skipped and counted in `skipped`; the weights stay as they are.
    """

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.parameters = [p for p in agent.parameters() if p.requires_grad]
        config = agent.config
        self.optimiser = torch.optim.AdamW(self.parameters, lr=config.lr, weight_decay=config.weight_decay, fused=True)
        self._online, self._target = agent.heads.online_and_target()
        self._autocast = torch.autocast(agent.device, torch.bfloat16, enabled=config.dtype == "bfloat16")
        self.updates = 0
        self.skipped = 0

    def update(self, batch: Batch) -> Losses:
        """One update from a packed batch."""
        agent, config = self.agent, self.agent.config
        agent.train()
        with self._autocast:
            losses = agent.losses(batch)
        self.optimiser.zero_grad()
        losses.total.backward()
        self.updates += 1
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, config.gradient_clip)
        if not torch.isfinite(norm):
            self.skipped += 1
            return losses
        # Counted in updates made, so a resumed run does not warm up again (pitfall 51).
        warm = min(1.0, self.updates / config.warmup_updates) if config.warmup_updates else 1.0
        for group in self.optimiser.param_groups:
            group["lr"] = config.lr * warm
        self.optimiser.step()
        with torch.no_grad():
            torch._foreach_lerp_(self._target, self._online, config.target_rate)
        return losses

    def state_dict(self) -> dict[str, Any]:
        """Plain tensors and numbers: everything a resumed learner needs."""
        return {
            "agent": self.agent.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "generator": self.agent.generator.get_state(),
            "updates": self.updates,
            "skipped": self.skipped,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of `state_dict`."""
        self.agent.load_state_dict(state["agent"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.agent.generator.set_state(state["generator"])
        self.updates, self.skipped = state["updates"], state["skipped"]
