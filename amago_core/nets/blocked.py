"""Causal attention in blocks of queries: each block is multiplied only with the keys it may see.

Half of a causal score matrix is masked. A block of queries multiplies the keys up to its last query and no further,
with plain products that stay in a core's cache; PyTorch's fused kernel is slower on a CPU, especially in bfloat16
(docs/performance.md). The probabilities are kept for the backward pass: N x L / 2 numbers per head.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 64  # queries; 32 and 128 are slower at lengths 100 to 500


class BlockedAttention(torch.autograd.Function):
    """Causal softmax(q k^T) v: q, k, v `[B, L, Dh]` of one type, q already scaled."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = torch.empty_like(q)
        future = q.new_full((BLOCK, BLOCK), -math.inf).triu_(1)  # within a block; all earlier keys are visible
        probabilities = []
        for queries, keys in _blocks(q.shape[1]):
            scores = torch.bmm(q[:, queries], k[:, keys].transpose(1, 2))
            size = scores.shape[1]
            scores[:, :, queries] += future[:size, :size]  # adding is several times faster than filling
            p = scores.softmax(dim=-1)
            out[:, queries] = torch.bmm(p, v[:, keys])
            probabilities.append(p)
        ctx.save_for_backward(q, k, v, *probabilities)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v, *probabilities = ctx.saved_tensors
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for p, (queries, keys) in zip(probabilities, _blocks(q.shape[1]), strict=True):
            dp = torch.bmm(out[:, queries], v[:, keys].transpose(1, 2))
            scores = torch.ops.aten._softmax_backward_data(dp, p, -1, p.dtype)
            dq[:, queries] = torch.bmm(scores, k[:, keys])
            dk[:, keys] += torch.bmm(scores.transpose(1, 2), q[:, queries])
            dv[:, keys] += torch.bmm(p.transpose(1, 2), out[:, queries])
        return dq, dk, dv


def _blocks(length: int) -> Iterator[tuple[slice, slice]]:
    """Each block of queries with the keys that any of them may see."""
    for start in range(0, length, BLOCK):
        end = min(start + BLOCK, length)
        yield slice(start, end), slice(0, end)
