"""One gradient step: losses, clipped summed gradient, AdamW with warm-up, moving-average targets (agent.md 6)."""

from __future__ import annotations

from typing import Any

import torch

from amago_core.agent import Agent, Losses
from amago_core.precision import float32_products
from amago_core.seeding import child, integer_seed
from amago_core.sequences import Batch

SKIPPED_IN_A_ROW = 100  # one bad batch passes; only broken weights or a replay full of bad rewards last this long


class Diverged(ValueError):
    """Gradients have stopped being finite and will not recover."""


class Learner:
    """Owns the optimiser of an agent.

    A step whose gradient is not finite is skipped and counted in `skipped`; the weights stay as they are. After
    `SKIPPED_IN_A_ROW` of them `update` raises Diverged.
    """

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.parameters = [p for p in agent.parameters() if p.requires_grad]
        config = agent.config
        self.optimiser = torch.optim.AdamW(self.parameters, lr=config.lr, weight_decay=config.weight_decay, fused=True)
        self._online, self._target = agent.actor_critic.online_and_target()
        self._autocast = torch.autocast(agent.device, torch.bfloat16, enabled=config.dtype == "bfloat16")
        self.updates = 0
        self.skipped = 0
        self.gradient_norm = torch.zeros(())  # of the last update, before it was clipped
        self._in_a_row = 0

    def update(self, batch: Batch) -> Losses:
        """One update from a packed batch."""
        agent, config = self.agent, self.agent.config
        if not agent.training:  # walking through all modules takes half a millisecond
            agent.train()
        with self._autocast, float32_products("ieee"):
            losses = agent.losses(batch)
        self.optimiser.zero_grad()
        # Gradients have no small differences to keep: what autocast left in float32 may be TF32 here.
        with float32_products("tf32" if config.dtype == "bfloat16" else "ieee"):
            losses.total.backward()
        self.updates += 1
        self.gradient_norm = torch.nn.utils.clip_grad_norm_(self.parameters, config.gradient_clip)
        if not torch.isfinite(self.gradient_norm):
            self.skipped += 1
            self._in_a_row += 1
            if self._in_a_row >= SKIPPED_IN_A_ROW:
                raise Diverged(
                    f"training diverged: gradients of {self._in_a_row} updates in a row, up to update {self.updates}, "
                    "are not finite; try a lower lr, and look for huge rewards or observations"
                )
            return losses
        self._in_a_row = 0
        for group in self.optimiser.param_groups:
            group["lr"] = self.lr
        self.optimiser.step()
        with torch.no_grad():
            torch._foreach_lerp_(self._target, self._online, config.tau)
        return losses

    @property
    def lr(self) -> float:
        """The learning rate of the last update. Counted in updates made, so a resumed run does not warm up again."""
        config = self.agent.config
        return config.lr * (min(1.0, self.updates / config.warmup_updates) if config.warmup_updates else 1.0)

    def state_dict(self) -> dict[str, Any]:
        """Plain tensors and numbers: everything a resumed learner needs."""
        return {
            "agent": self.agent.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "generator": {"device": self.agent.generator.device.type, "state": self.agent.generator.get_state()},
            "updates": self.updates,
            "skipped": [self.skipped, self._in_a_row],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of `state_dict`, but for the generator where the state comes from another kind of device.

        A CPU and a GPU generate numbers in different ways. The generator then begins a stream of its own, named after
        the updates made, so that no draw of an earlier part of the training is repeated.
        """
        self.agent.load_state_dict(state["agent"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.updates = state["updates"]
        generator, saved = self.agent.generator, state["generator"]
        if saved["device"] == generator.device.type:
            generator.set_state(saved["state"])
        else:
            generator.manual_seed(integer_seed(child(self.agent.seed, "learning", "moved", self.updates)))
        self.skipped, self._in_a_row = state["skipped"]
