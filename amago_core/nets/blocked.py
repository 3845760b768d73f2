"""Causal attention in blocks of queries: each block meets only the keys that it may see.

Half of a causal score matrix is masked. A block of queries multiplies the keys up to its last query and no further,
with plain products that stay in a core's cache; PyTorch's fused kernel is slower on a CPU, above all in bfloat16
(docs/performance.md). The probabilities are kept for the backward pass: N x min(L, window) / 2 numbers a head.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 64  # queries; 32 and 128 are slower at lengths 100 to 500


def band(queries: slice, keys: slice, window: int, device: torch.device | str = "cpu") -> Tensor:
    """`[queries, keys]` bool: may query i see key j? j in (i - window, i]."""
    i = torch.arange(queries.start, queries.stop, device=device).unsqueeze(1)
    j = torch.arange(keys.start, keys.stop, device=device)
    return (j <= i) & (j > i - window)  # bytes, and no matrix of 64-bit distances


class BlockedAttention(torch.autograd.Function):
    """softmax(q k^T) v over the last `window` keys: q, k, v `[B, L, Dh]` of one type, q already scaled."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
        out = torch.empty_like(q)
        probabilities = []
        for queries, keys in _blocks(q.shape[1], window):
            scores = torch.bmm(q[:, queries], k[:, keys].transpose(1, 2))
            scores += _mask(queries, keys, window, scores)  # adding is several times faster than filling
            p = scores.softmax(dim=-1)
            out[:, queries] = torch.bmm(p, v[:, keys])
            probabilities.append(p)
        ctx.save_for_backward(q, k, v, *probabilities)
        ctx.window = window
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, out: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, *probabilities = ctx.saved_tensors
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for p, (queries, keys) in zip(probabilities, _blocks(q.shape[1], ctx.window), strict=True):
            dp = torch.bmm(out[:, queries], v[:, keys].transpose(1, 2))
            scores = torch.ops.aten._softmax_backward_data(dp, p, -1, p.dtype)
            dq[:, queries] = torch.bmm(scores, k[:, keys])
            dk[:, keys] += torch.bmm(scores.transpose(1, 2), q[:, queries])
            dv[:, keys] += torch.bmm(p.transpose(1, 2), out[:, queries])
        return dq, dk, dv, None


def _blocks(length: int, window: int) -> Iterator[tuple[slice, slice]]:
    """Each block of queries with the keys that any of them may see."""
    for start in range(0, length, BLOCK):
        end = min(start + BLOCK, length)
        yield slice(start, end), slice(max(0, start - window + 1), end)


def _mask(queries: slice, keys: slice, window: int, like: Tensor) -> Tensor:
    """0 where a query may see a key and -inf elsewhere."""
    visible = band(queries, keys, window, like.device)
    return torch.zeros(visible.shape, dtype=like.dtype, device=like.device).masked_fill_(~visible, -math.inf)
