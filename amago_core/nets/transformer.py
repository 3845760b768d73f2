"""The paper's Transformer (agent.md 3.1), from the position embeddings up to the whole model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from amago_core.config import Config
from amago_core.nets.attention import BACKENDS
from amago_core.nets.cache import KeyValueCache
from amago_core.nets.layers import Dropout, SigmaLinear, activation
from amago_core.nets.sequence_model import SequenceModel
from amago_core.sequences import Packing

#: Cosines and sines [N, 1, Dh / 2] of the angles by which queries and keys are rotated; None: no rotation.
Rotation: TypeAlias = tuple[Tensor, Tensor] | None


class LearnedPositions(nn.Module):
    """Adds a learned vector for each timestep of the rollout, N(0, 1) at the start (agent.md 3.3)."""

    def __init__(self, width: int, rows: int) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, width)

    def forward(self, x: Tensor, position: Tensor) -> tuple[Tensor, Rotation]:
        return x + self.table(position), None


class SinusoidalPositions(nn.Module):
    """Adds sines and cosines of the timestep, wavelengths from 2 pi to 10,000 * 2 pi."""

    frequencies: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("frequencies", _frequencies(width), persistent=False)

    def forward(self, x: Tensor, position: Tensor) -> tuple[Tensor, Rotation]:
        angle = position.unsqueeze(-1) * self.frequencies  # [N, D / 2], rounded up
        return x + torch.cat([angle.sin(), angle.cos()], dim=-1)[:, : x.shape[1]], None


class RotaryPositions(nn.Module):
    """Rotates pairs of query and key entries by angles proportional to the timestep (RoPE): only distances matter."""

    frequencies: Tensor

    def __init__(self, head_width: int) -> None:
        super().__init__()
        if head_width % 2:
            raise ValueError(f"rotary positions need an even head width, not {head_width}")
        self.register_buffer("frequencies", _frequencies(head_width), persistent=False)

    def forward(self, x: Tensor, position: Tensor) -> tuple[Tensor, Rotation]:
        angle = (position.unsqueeze(-1) * self.frequencies).unsqueeze(1)  # [N, 1, Dh / 2]
        return x, (angle.cos(), angle.sin())


def _frequencies(width: int) -> Tensor:
    return 10_000.0 ** -(torch.arange(0, width, 2) / width)


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Queries or keys [N, H, Dh], rotated in float32 and rounded to the type of x."""
    if rotation is None:
        return x
    cos, sin = rotation
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1).to(x.dtype)


class Attention(nn.Module):
    """Causal attention with a learned factor for each head, followed by NormFormer's norm.

    Args:
        config: sizes and switches.
        layer: its number, which finds its keys and values in the cache.
        backend: a name in `attention.BACKENDS`, used for whole sequences.
    """

    def __init__(self, config: Config, layer: int, backend: str) -> None:
        super().__init__()
        d, linear = config.width, SigmaLinear if config.sigma_reparam else nn.Linear
        self.layer, self.heads = layer, config.heads
        self.backend = BACKENDS[backend]
        self.qkv = linear(d, 3 * d, bias=False)
        self.head_scale = nn.Parameter(torch.ones(config.heads, 1), requires_grad=config.head_scaling)
        self.out = linear(d, d)
        self.norm = nn.LayerNorm(d) if config.normformer else nn.Identity()

    def forward(self, x: Tensor, rotation: Rotation, packing: Packing) -> Tensor:
        """Learning: all tokens of a packed batch, [N, D] -> [N, D]."""
        q, k, v = self._split(x, rotation)
        return self._join(self.backend(q, k, v, packing))

    def step(self, x: Tensor, rotation: Rotation, cache: KeyValueCache) -> Tensor:
        """Acting: the next token of each slot, [B, D] -> [B, D]."""
        q, k, v = self._split(x, rotation)
        return self._join(cache.attend(self.layer, q, k, v))

    def _split(self, x: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.qkv(x).view(len(x), 3, self.heads, -1).unbind(1)  # [N, D] -> three times [N, H, Dh]
        return rotate(q, rotation), rotate(k, rotation), v

    def _join(self, h: Tensor) -> Tensor:
        return self.norm(self.out((h * self.head_scale).flatten(1)))  # [N, H, Dh] -> [N, D]


class MLP(nn.Module):
    """Two linear maps, four times as wide between them, with NormFormer's norm after the activation."""

    def __init__(self, config: Config, generator: torch.Generator) -> None:
        super().__init__()
        d, linear = config.width, SigmaLinear if config.sigma_reparam else nn.Linear
        self.up = linear(d, 4 * d)
        self.act = activation(config.sequence_activation)
        self.norm = nn.LayerNorm(4 * d) if config.normformer else nn.Identity()
        self.down = linear(4 * d, d)
        self.drop = Dropout(config.dropout, generator)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.act(self.up(x)))  # [N, D] -> [N, 4 D]
        return self.drop(self.down(h))  # [N, 4 D] -> [N, D]


class Block(nn.Module):
    """One layer: attention and MLP, each of which reads the residual stream through a norm and adds to it."""

    def __init__(self, config: Config, layer: int, backend: str, generator: torch.Generator) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = Attention(config, layer, backend)
        self.mlp_norm = nn.LayerNorm(config.width)
        self.mlp = MLP(config, generator)

    def forward(self, x: Tensor, rotation: Rotation, packing: Packing) -> Tensor:
        x = x + self.attention(self.attention_norm(x), rotation, packing)
        return x + self.mlp(self.mlp_norm(x))

    def step(self, x: Tensor, rotation: Rotation, cache: KeyValueCache) -> Tensor:
        x = x + self.attention.step(self.attention_norm(x), rotation, cache)
        return x + self.mlp(self.mlp_norm(x))


class Transformer(SequenceModel):
    """Causal Transformer over packed sequences: pre-norm, NormFormer, sigma-reparametrised maps.

    Args:
        config: sizes and switches.
        inputs: width of a timestep embedding.
        horizon: steps of a rollout; a learned position table has horizon + 1 rows.
        backend: name of the attention backend, see `attention.choose`.
        generator: of the dropout.

    Raises:
        ValueError: rotary positions and an odd head width.
    """

    def __init__(self, config: Config, inputs: int, horizon: int, backend: str, generator: torch.Generator) -> None:
        super().__init__()
        head_width = config.width // config.heads
        positions: dict[str, Callable[[], nn.Module]] = {
            "learned": lambda: LearnedPositions(config.width, horizon + 1),
            "sinusoidal": lambda: SinusoidalPositions(config.width),
            "rotary": lambda: RotaryPositions(head_width),
        }
        self.embed = nn.Linear(inputs, config.width)
        self.positions = positions[config.positions]()
        self.drop = Dropout(config.dropout, generator)
        blocks = [Block(config, layer, backend, generator) for layer in range(config.layers)]
        self.blocks: Sequence[Block] = nn.ModuleList(blocks)  # type: ignore[assignment]  # a list that PyTorch knows of
        self.norm = nn.LayerNorm(config.width)
        # An acting query sees as many keys as the last query of a training slice that has a loss.
        self.window = config.context or horizon + 1
        self._cache_shape = (config.heads, head_width, self.window)

    def forward(self, tokens: Tensor, packing: Packing, position: Tensor) -> Tensor:
        # The residual stream stays float32 under autocast, because each block adds to it.
        x, rotation = self.positions(self.embed(tokens).float(), position)  # [N, input] -> [N, D]
        x = self.drop(x)
        for block in self.blocks:
            x = block(x, rotation, packing)
        return self.norm(x)

    def step(self, tokens: Tensor, cache: KeyValueCache, position: Tensor) -> Tensor:
        x, rotation = self.positions(self.embed(tokens), position)  # [B, input] -> [B, D]
        cache.begin(position, x)
        for block in self.blocks:
            x = block.step(x, rotation, cache)
        return self.norm(x)

    def new_cache(self, slots: int) -> KeyValueCache:
        return KeyValueCache(len(self.blocks), slots, *self._cache_shape)

    def save_cache(self, cache: KeyValueCache, tokens: int) -> Tensor:
        return cache.save(tokens)

    def load_cache(self, saved: Tensor) -> KeyValueCache:
        cache = self.new_cache(saved.shape[2])
        cache.restore(saved)
        return cache
