"""Causal attention over packed sequences: one signature, four backends.

A backend takes queries, keys and values `[N, H, Dh]` and the packing, and returns `[N, H, Dh]`; a query sees its own
key and the earlier ones of its sequence. (For acting, `cache.py` attends one token at a time.)
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from amago_core.nets.blocked import BlockedAttention
from amago_core.sequences import Packing

Backend: TypeAlias = Callable[[Tensor, Tensor, Tensor, Packing], Tensor]

BLOCKED_LENGTH = 1024  # beyond this, the probabilities that `blocked` keeps for the backward pass would fill memory


def reference(q: Tensor, k: Tensor, v: Tensor, packing: Packing) -> Tensor:
    """Plain mathematics, sequence by sequence; for reading and for testing the other backends."""
    outputs = []
    for start, end in zip(packing.starts.tolist(), packing.ends.tolist(), strict=True):
        scores = torch.einsum("ihd,jhd->hij", q[start:end], k[start:end]) / math.sqrt(q.shape[-1])  # [H, L, L]
        future = torch.ones(scores.shape[1:], dtype=torch.bool, device=q.device).triu(1)
        probabilities = scores.masked_fill(future, -math.inf).softmax(dim=-1)
        outputs.append(torch.einsum("hij,jhd->ihd", probabilities, v[start:end]))  # [L, H, Dh]
    return torch.cat(outputs)


def sdpa(q: Tensor, k: Tensor, v: Tensor, packing: Packing) -> Tensor:
    """PyTorch's fused kernel on the unpacked grid; memory grows linearly with the length.

    Padding is on the right, so the causal mask already hides it and no row is fully masked.
    """
    q, k, v = (packing.unpack(x).transpose(1, 2) for x in (q, k, v))  # [N, H, Dh] -> [B, H, L, Dh]
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return packing.pack(out.transpose(1, 2))  # [B, H, L, Dh] -> [N, H, Dh]


def blocked(q: Tensor, k: Tensor, v: Tensor, packing: Packing) -> Tensor:
    """Blocks of plain products on the unpacked grid, fastest on a CPU; `sdpa` if they would fill memory."""
    if packing.longest > BLOCKED_LENGTH:
        return sdpa(q, k, v, packing)
    q = q / math.sqrt(q.shape[-1])
    grids = (packing.unpack(x).transpose(1, 2).flatten(0, 1) for x in (q, k, v))  # [N, H, Dh] -> [B H, L, Dh]
    out = BlockedAttention.apply(*grids)
    return packing.pack(out.unflatten(0, (packing.sequences, -1)).transpose(1, 2))  # [B H, L, Dh] -> [N, H, Dh]


def flash(q: Tensor, k: Tensor, v: Tensor, packing: Packing) -> Tensor:
    """The flash-attn package: packed sequences as they are, half precision, CUDA only."""
    from flash_attn import flash_attn_varlen_func  # type: ignore[import-not-found]

    dtype = q.dtype if q.dtype in (torch.float16, torch.bfloat16) else torch.bfloat16
    out: Tensor = flash_attn_varlen_func(
        q.to(dtype), k.to(dtype), v.to(dtype),
        packing.cumulative, packing.cumulative, packing.longest, packing.longest, causal=True,
    )  # fmt: skip
    return out.to(q.dtype)


BACKENDS: dict[str, Backend] = {"reference": reference, "sdpa": sdpa, "blocked": blocked, "flash": flash}


def choose(wanted: str, device: torch.device | str, head_width: int) -> tuple[str, str]:
    """The attention backend to use, and one line on why it is not the wanted one (empty if it is).

    `auto` is blocked on a CPU, flash on a GPU where it runs, and otherwise sdpa, with a line only if an installed
    flash-attn is broken. A named backend is kept if it works; flash is tested with a tiny forward pass, since a package
    that imports may still fail on the GPU at hand.
    """
    on_cpu = torch.device(device).type == "cpu"
    if wanted in ("reference", "sdpa") or (wanted == "blocked" and on_cpu):
        return wanted, ""
    if wanted == "blocked":
        return "sdpa", "attention=blocked is for CPUs, using sdpa"
    if wanted == "auto" and on_cpu:
        return "blocked", ""
    missing = _flash_missing(device)
    problem = missing or _flash_problem(device, head_width)
    if not problem:
        return "flash", ""
    worth_saying = wanted == "flash" or not missing
    instead = "blocked" if on_cpu else "sdpa"
    return instead, f"attention=flash is not usable ({problem}), using {instead}" if worth_saying else ""


def _flash_missing(device: torch.device | str) -> str:
    if torch.device(device).type != "cuda":
        return "it needs a CUDA device"
    if importlib.util.find_spec("flash_attn") is None:
        return "flash-attn is not installed: pip install 'amago-bench[flash]'"
    return ""


def _flash_problem(device: torch.device | str, head_width: int) -> str:
    if head_width % 8 or not 8 <= head_width <= 256:
        return f"head width {head_width} is not a multiple of 8 in 8..256"
    try:
        x = torch.zeros(3, 1, head_width, device=device, dtype=torch.bfloat16)
        flash(x, x, x, Packing([2, 1], device))
        torch.cuda.synchronize()
    except Exception as error:  # a broken installation raises anything from ImportError to a CUDA error
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""
