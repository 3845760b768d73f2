"""PopArt: value normalisation that preserves its outputs (van Hasselt et al. 2016)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from amago_core.nets.moments import Moments


class PopArt(nn.Module):
    """One scale and shift per discount; w and b are set in closed form, never by gradient.

    A raw critic output x is `normalise(x) = w x + b` in normalised units and `value(x) = sigma (w x + b) + mu` in units
    of return. Statistics, w and b are float64: sigma may be small beside the mean, and b follows the mean.
    """

    w: Tensor
    b: Tensor

    def __init__(self, discounts: int, rate: float) -> None:
        super().__init__()
        # The paper's start: a variance of 100 that counts as much as the first batch.
        self.moments = Moments(discounts, rate, variance=100.0, batches=1)
        self.register_buffer("w", torch.ones(discounts, dtype=torch.float64))
        self.register_buffer("b", torch.zeros(discounts, dtype=torch.float64))

    @property
    def sigma(self) -> Tensor:
        return self.moments.variance.clamp(min=1e-8).sqrt().clamp(max=1e6)

    def normalise(self, x: Tensor) -> Tensor:
        """Raw critic outputs [..., G] -> normalised units."""
        return self.w.to(x.dtype) * x + self.b.to(x.dtype)

    def value(self, x: Tensor) -> Tensor:
        """Raw critic outputs [..., G] -> units of (scaled) return."""
        scale, shift = self.sigma * self.w, self.sigma * self.b + self.moments.mean
        return scale.to(x.dtype) * x + shift.to(x.dtype)

    def standardise(self, y: Tensor) -> Tensor:
        """Returns [..., G] -> normalised units."""
        return (y - self.moments.mean.to(y.dtype)) / self.sigma.to(y.dtype)

    @torch.no_grad()
    def update(self, y: Tensor) -> None:
        """Moves the statistics towards targets y [M, G], and w, b so that `value` stays the same function."""
        sigma, mean = self.sigma, self.moments.mean.clone()
        self.moments.update(y)
        self.w.mul_(sigma / self.sigma)
        self.b.mul_(sigma).add_(mean - self.moments.mean).div_(self.sigma)
