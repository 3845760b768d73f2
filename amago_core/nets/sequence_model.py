"""The interface of every sequence model: one way through it for learning and one for acting, which agree."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from amago_core.sequences import Packing


class SequenceModel(nn.Module):
    """Causal map from timestep embeddings to states.

    `forward` is for learning: all tokens of a packed batch at once, each of which sees its sequence from the start.
    `step` is for acting: one new token per slot, with a cache that the model updates in place. In evaluation mode the
    two agree to rounding over rollouts of at most `context` transitions. In longer ones a slice sees nothing before its
    start, while the actor sees the last `context` timesteps at every step.
    """

    def forward(self, tokens: Tensor, packing: Packing, position: Tensor) -> Tensor:
        """tokens [N, input], position [N] (timestep of the rollout) -> states [N, D]."""
        raise NotImplementedError

    def new_cache(self, slots: int) -> Any:
        """A cache for `slots` rollouts that have not begun."""
        raise NotImplementedError

    def save_cache(self, cache: Any, tokens: int) -> Tensor | None:
        """The cache as a plain tensor, if no rollout has played more than `tokens` timesteps."""
        saved: Tensor | None = cache
        return saved

    def load_cache(self, saved: Any) -> Any:
        """The inverse of `save_cache`: the next `step` returns what it would have returned."""
        return saved

    def step(self, tokens: Tensor, cache: Any, position: Tensor) -> Tensor:
        """tokens [B, input], position [B] -> states [B, D]; position 0 clears the slot's memory."""
        raise NotImplementedError
