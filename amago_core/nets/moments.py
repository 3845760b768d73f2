"""Running mean and variance that stay accurate when the mean is large compared with the spread."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Moments(nn.Module):
    """Moving mean and variance of each column, with bias-corrected rates (as Adam's).

    The n-th batch moves them at rate r / (1 - (1 - r)^n), so they begin as plain averages over the batches. Equal to
    moving averages of x and x^2, but kept as mean and variance in float64: in float32, E[x^2] - E[x]^2 loses all its
    digits once the mean is a few thousand times the spread, and a mean near 1e5 cannot move by 1e-4 of a small
    distance.

    Args:
        columns: number of them.
        rate: r, the weight of a batch in the long run.
        variance: the initial variance; the initial mean is 0.
        batches: how many batches the initial values count as.
    """

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(self, columns: int, rate: float, variance: float = 1.0, batches: int = 0) -> None:
        super().__init__()
        self.rate = rate
        self.register_buffer("mean", torch.zeros(columns, dtype=torch.float64))
        self.register_buffer("variance", torch.full((columns,), variance, dtype=torch.float64))
        self.register_buffer("count", torch.full((), batches, dtype=torch.int64))

    @torch.no_grad()
    def update(self, batch: Tensor) -> None:
        """Moves towards the moments of a batch [N, columns], except in a column whose squares are not finite.

        A skipped gradient step leaves no trace, but a NaN would never leave a moving average.
        """
        self.count += 1
        rate = self.rate / (1 - (1 - self.rate) ** self.count.double())
        # Distances from the mean so far are small, so they and their squares fit the type of the batch.
        origin = self.mean.to(batch.dtype)
        distance = batch - origin
        mean = distance.mean(0)
        variance = (distance - mean).square().mean(0).double()
        step = origin.double() + mean.double() - self.mean
        finite = distance.square().sum(0).isfinite()
        step, variance = torch.where(finite, step, 0.0), torch.where(finite, variance, self.variance)
        self.mean += rate * step
        self.variance += rate * (variance - self.variance) + rate * (1 - rate) * step.square()
