"""PopArt: value normalisation that preserves its outputs (A.10)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from amago_core.nets.layers import follow


class PopArt(nn.Module):
    """One scale and shift per discount; w and b are set in closed form, never by gradient.

    Raw critic outputs x mean `normalise(x) = w x + b` in normalised units and `value(x) = sigma (w x + b) + mu`
    in units of return.
    """

    mean: Tensor
    square: Tensor
    w: Tensor
    b: Tensor
    count: Tensor

    def __init__(self, discounts: int, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.register_buffer("mean", torch.zeros(discounts))
        self.register_buffer("square", torch.full((discounts,), 100.0))
        self.register_buffer("w", torch.ones(discounts))
        self.register_buffer("b", torch.zeros(discounts))
        self.register_buffer("count", torch.ones((), dtype=torch.int64))

    @property
    def sigma(self) -> Tensor:
        # Clamped before the root: rounding can push the variance below zero (pitfall 14).
        return (self.square - self.mean.square()).clamp(min=1e-8).sqrt().clamp(max=1e6)

    def normalise(self, x: Tensor) -> Tensor:
        """Raw critic outputs [..., G] -> normalised units."""
        return self.w * x + self.b

    def value(self, x: Tensor) -> Tensor:
        """Raw critic outputs [..., G] -> units of (scaled) return."""
        return self.sigma * self.normalise(x) + self.mean

    def standardise(self, y: Tensor) -> Tensor:
        """Returns [..., G] -> normalised units."""
        return (y - self.mean) / self.sigma

    @torch.no_grad()
    def update(self, y: Tensor) -> None:
        """Moves the statistics towards targets y [M, G], and w, b so that `value` stays the same function."""
        self.count += 1
        rate = self.rate / (1 - (1 - self.rate) ** self.count)
        sigma, mean = self.sigma, self.mean.clone()
        follow(self.mean, self.square, y, rate)
        self.w.mul_(sigma / self.sigma)
        self.b.mul_(sigma).add_(mean - self.mean).div_(self.sigma)
