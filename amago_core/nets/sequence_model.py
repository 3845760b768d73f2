"""What every sequence model offers: two ways through it that agree."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from amago_core.sequences import Packing


class SequenceModel(nn.Module):
    """Causal map from timestep embeddings to states.

    `forward` is for learning: all tokens of a packed batch at once, each of which sees its sequence from the start.
    `step` is for acting: one new token in each slot, with a cache that the model updates in place. In evaluation mode
    the two agree to rounding over rollouts of at most `context` transitions. In longer ones a slice knows nothing of
    what came before its start, while the actor looks back over the last `context` timesteps at every step.
    """

    def forward(self, tokens: Tensor, packing: Packing, position: Tensor) -> Tensor:
        """tokens [N, input], position [N] (timestep of the rollout) -> states [N, D]."""
        raise NotImplementedError

    def new_cache(self, slots: int) -> Any:
        """A cache for `slots` rollouts, none of them begun."""
        raise NotImplementedError

    def save_cache(self, cache: Any, tokens: int) -> Tensor | None:
        """The cache as a plain tensor, if none of its rollouts has more than `tokens` timesteps behind it."""
        saved: Tensor | None = cache
        return saved

    def load_cache(self, saved: Any) -> Any:
        """The inverse of `save_cache`: the next `step` gives what it would have given."""
        return saved

    def step(self, tokens: Tensor, cache: Any, position: Tensor) -> Tensor:
        """tokens [B, input], position [B] -> states [B, D]; position 0 clears the slot's memory."""
        raise NotImplementedError
