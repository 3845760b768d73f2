"""Small building blocks: activations, an MLP, dropout with its own generator, sigma-reparametrised maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


def activation(name: str) -> nn.Module:
    """`leaky_relu` (slope 0.01, as everywhere in the paper), `relu` or `gelu`; overwrites its input where it can.

    Fresh memory costs a wide layer more than the activation itself, and no linear map needs its own output again.
    """
    modules = {"leaky_relu": lambda: nn.LeakyReLU(inplace=True), "relu": lambda: nn.ReLU(inplace=True), "gelu": nn.GELU}
    return modules[name]()


class ExactProduct(torch.autograd.Function):
    """`x @ weight + bias` in the type of the weights, whatever the type of x, with gradients in the type of x.

    Float32 keeps small differences between large outputs. Gradients have no such differences, and they are most of the
    arithmetic.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.bias_shape = bias.shape
        if weight.dim() == 2:
            return (x.to(weight.dtype) @ weight).add_(bias)
        # Members one by one: on a CPU one batched product takes a quarter longer.
        return torch.stack([torch.addmm(b, each.to(w.dtype), w) for each, w, b in zip(x, weight, bias, strict=True)])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, out: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        rounded = out.to(x.dtype)
        # Observations need no gradient, and constant critics need only that of the action.
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        of_x = rounded @ weight.to(x.dtype).mT if needs_x else None
        of_weight = (x.mT @ rounded).to(weight.dtype) if needs_weight else None
        return of_x, of_weight, out.sum_to_size(ctx.bias_shape) if needs_bias else None


class Float32Linear(nn.Linear):
    """A linear map whose output is float32, also under autocast, for small differences that matter."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return ExactProduct.apply(x, self.weight.mT, self.bias)


def mlp(
    sizes: Sequence[int], act: str, *, first: type[nn.Linear] = nn.Linear, last: type[nn.Linear] = nn.Linear
) -> nn.Sequential:
    """Linear maps with an activation between them, none after the last; a single map is a `first`."""
    kinds = [first, *[nn.Linear] * (len(sizes) - 3), last][: len(sizes) - 1]
    layers: list[nn.Module] = []
    for linear, (fan_in, fan_out) in zip(kinds, pairwise(sizes), strict=True):
        layers += [linear(fan_in, fan_out), activation(act)]
    return nn.Sequential(*layers[:-1])


class Dropout(nn.Module):
    """Dropout that draws from its own generator, because no module may draw from a global one.

    Args:
        p: share of entries set to zero in training mode, to the nearest multiple of 2^-16.
        generator: shared by all dropouts of a model.
    """

    def __init__(self, p: float, generator: torch.Generator) -> None:
        super().__init__()
        self.p, self.generator = p, generator

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        # Four draws of 16 bits from one of 64, since a generator draws serially, on one core.
        words = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device)
        bits = words.random_(-(2**63), None, generator=self.generator).view(torch.int16)[: x.numel()].view(x.shape)
        keep = (bits >= round(self.p * 2**16) - 2**15).to(x.dtype)
        return (x * keep).mul_(1 / (1 - self.p))  # the factor itself would be rounded to the type of x


def _unit(x: Tensor) -> Tensor:
    return x / x.norm().clamp(min=1e-12)


class SigmaLinear(nn.Module):
    """Linear map with weight (gamma / sigma(W)) W: sigma-reparametrisation (agent.md 3.2).

    sigma(W) = u^T W v is the spectral norm, tracked by one power iteration per training forward. u and v are
    buffers: saved with the model, left alone in evaluation mode, and constant for the gradient.
    They start converged, so sigma is the spectral norm from the first rollout on (the paper-time code starts from
    random vectors, for which sigma is small and of either sign).
    """

    u: Tensor
    v: Tensor

    def __init__(self, fan_in: int, fan_out: int, bias: bool = True) -> None:
        super().__init__()
        linear = nn.Linear(fan_in, fan_out, bias=bias)
        self.weight, self.bias = linear.weight, linear.bias
        self.gamma = nn.Parameter(torch.ones(()))
        with torch.no_grad():
            left, _, right = torch.linalg.svd(self.weight, full_matrices=False)
        self.register_buffer("u", left[:, 0].clone())
        self.register_buffer("v", right[0].clone())
        self._folded: tuple[tuple[int, ...], Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        acting = not (self.training or torch.is_grad_enabled())
        return F.linear(x, self._folded_weight() if acting else self._scaled_weight(), self.bias)

    def _scaled_weight(self) -> Tensor:
        with torch.autocast(self.weight.device.type, enabled=False):  # acting scales in float32, learning must too
            if self.training:
                with torch.no_grad():
                    self.u.copy_(_unit(self.weight @ self.v))
                    self.v.copy_(_unit(self.u @ self.weight))
            # Copies, because the next forward overwrites the buffers before this one's backward may have run.
            return self.weight * (self.gamma / (self.u.clone() @ self.weight @ self.v.clone()))

    def _folded_weight(self) -> Tensor:
        """Acting calls this once per step with the same weights, so they are scaled once.

        PyTorch counts the in-place changes of a tensor: an optimiser step or a loaded checkpoint is noticed.
        """
        version = tuple(t._version for t in (self.weight, self.gamma, self.u, self.v))
        if self._folded is None or self._folded[0] != version:
            self._folded = version, self._scaled_weight()
        return self._folded[1]


class EnsembleLinear(nn.Module):
    """C linear maps side by side, `[C, M, in] -> [C, M, out]`.

    Weights start uniform in +-sqrt(3 / in), biases in +-1 / sqrt(in), as the paper's critics (agent.md 4.4).
    """

    def __init__(self, members: int, fan_in: int, fan_out: int) -> None:
        super().__init__()
        weight, bias = math.sqrt(3 / fan_in), 1 / math.sqrt(fan_in)
        self.weight = nn.Parameter(torch.empty(members, fan_in, fan_out).uniform_(-weight, weight))
        self.bias = nn.Parameter(torch.empty(members, 1, fan_out).uniform_(-bias, bias))

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, x, self.weight)


class Float32EnsembleLinear(EnsembleLinear):
    """An `EnsembleLinear` whose output is float32, also under autocast."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return ExactProduct.apply(x, self.weight, self.bias)
