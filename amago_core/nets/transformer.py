"""The paper's Transformer (agent.md 3.1): pre-norm, two NormFormer norms, head scaling, sigma-reparametrisation."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from amago_core.config import Config
from amago_core.nets import attention
from amago_core.nets.layers import Dropout, SigmaLinear, activation
from amago_core.nets.sequence_model import SequenceModel
from amago_core.sequences import Packing


class LearnedPositions(nn.Module):
    """A table with a row for each timestep of the rollout, N(0, 1) at the start (agent.md 3.3)."""

    def __init__(self, width: int, rows: int) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, width)

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        return x + self.table(position)


class SinusoidalPositions(nn.Module):
    """Sines and cosines of the timestep, wavelengths from 2 pi to 10,000 * 2 pi."""

    frequencies: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        exponent = torch.arange(0, width, 2) / width
        self.register_buffer("frequencies", 10_000.0**-exponent, persistent=False)
        self.width = width

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        angle = position.unsqueeze(-1) * self.frequencies
        return x + torch.cat([angle.sin(), angle.cos()], dim=-1)[:, : self.width]


class Rotary(nn.Module):
    """Rotates pairs of query and key entries by an angle proportional to the timestep (RoPE)."""

    frequencies: Tensor

    def __init__(self, head_width: int) -> None:
        super().__init__()
        if head_width % 2:
            raise ValueError(f"rotary positions need an even head width, not {head_width}")
        exponent = torch.arange(0, head_width, 2) / head_width
        self.register_buffer("frequencies", 10_000.0**-exponent, persistent=False)

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        """x [N, H, Dh], position [N] -> [N, H, Dh], in float32 and then rounded to the type of x."""
        angle = position.unsqueeze(-1) * self.frequencies  # [N, Dh / 2]
        sin, cos = angle.sin().unsqueeze(1), angle.cos().unsqueeze(1)
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1).to(x.dtype)


class Keep(nn.Module):
    """Leaves its first argument as it is: the place of a switched-off position scheme."""

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        return x


class Block(nn.Module):
    """One layer of the residual stream. `attend` is given by the caller: whole sequences or a cache."""

    def __init__(self, config: Config, rotate: nn.Module, generator: torch.Generator) -> None:
        super().__init__()
        d, inner = config.width, 4 * config.width
        linear = SigmaLinear if config.sigma_reparam else nn.Linear
        extra_norm = nn.LayerNorm if config.normformer else lambda _: nn.Identity()
        self.heads = config.heads
        self.rotate = rotate
        self.norm1, self.norm2 = nn.LayerNorm(d), extra_norm(d)
        self.norm3, self.norm4 = nn.LayerNorm(d), extra_norm(inner)
        self.qkv = linear(d, 3 * d, bias=False)
        self.out = linear(d, d)
        self.head_scale = nn.Parameter(torch.ones(config.heads, 1), requires_grad=config.head_scaling)
        self.up, self.down = linear(d, inner), linear(inner, d)
        self.act = activation(config.sequence_activation)
        self.drop = Dropout(config.dropout, generator)

    def forward(self, x: Tensor, position: Tensor, attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
        qkv = self.qkv(self.norm1(x)).view(len(x), 3, self.heads, -1)  # [N, 3D] -> [N, 3, H, Dh]
        q, k, v = qkv.unbind(1)
        h = attend(self.rotate(q, position), self.rotate(k, position), v) * self.head_scale
        x = x + self.norm2(self.out(h.flatten(1)))  # [N, H, Dh] -> [N, D]
        h = self.norm4(self.act(self.up(self.norm3(x))))
        return x + self.drop(self.down(h))


class KeyValueCache:
    """Keys and values of the last `window` tokens of each slot; grows with the rollouts up to the window."""

    def __init__(self, layers: int, slots: int, heads: int, head_width: int, window: int) -> None:
        self.window = window
        self._shape = (layers, 2, slots, heads, min(window, 64), head_width)
        self.store = torch.zeros(self._shape)
        self._slots = torch.arange(slots)

    def begin(self, position: Tensor, like: Tensor) -> None:
        """Makes room for the tokens at `position` [B] and notes which entries each slot may see."""
        earliest, latest = (int(x) for x in position.aminmax())
        needed, have = min(latest + 1, self.window), self.store.shape[4]
        if self.store.dtype != like.dtype or self.store.device != like.device:
            self.store, self._slots = self.store.to(like), self._slots.to(like.device)
        if needed > have:  # doubling keeps short rollouts cheap under a long horizon
            grown = min(max(needed, 2 * have), self.window)
            self.store = torch.cat(
                [self.store, self.store.new_zeros(*self.store.shape[:4], grown - have, self.store.shape[5])], dim=4
            )
        self._length = needed
        # Slots at the same timestep write one entry and see all that is there: no index, no mask.
        self._together = latest % self.window if earliest == latest else None
        if self._together is None:
            self._entry = position % self.window  # a ring: the oldest key makes way past the window
            # Entry j holds a token of this rollout iff j <= position; past the window every entry does.
            self._visible = torch.arange(needed, device=position.device) <= position.unsqueeze(1)

    def restore(self, saved: Tensor) -> None:
        """Takes over the entries of another cache, its dtype and its device."""
        layers, pair, slots, heads, room, width = self._shape
        self.store = saved.new_zeros(layers, pair, slots, heads, max(room, saved.shape[4]), width)
        self.store[..., : saved.shape[4], :] = saved
        self._slots = self._slots.to(saved.device)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Stores k and v `[B, H, Dh]` and attends over what the slots may see."""
        keys, values = self.store[layer]
        if self._together is None:
            keys[self._slots, :, self._entry] = k
            values[self._slots, :, self._entry] = v
        else:
            keys[:, :, self._together], values[:, :, self._together] = k, v
        n, visible = self._length, self._visible if self._together is None else None
        return attention.attend_cached(q, keys[:, :, :n], values[:, :, :n], visible)


class Transformer(SequenceModel):
    """Causal Transformer over packed sequences.

    Args:
        config: sizes and switches.
        inputs: width of a timestep embedding.
        horizon: steps of a rollout; a learned position table has horizon + 1 rows.
        backend: name of the attention backend, see `attention.choose`.
        generator: of the dropout.
    """

    def __init__(self, config: Config, inputs: int, horizon: int, backend: str, generator: torch.Generator) -> None:
        super().__init__()
        # Keys that an acting query sees: as many as the last query of a training slice that a loss is read from.
        self.window = config.context or horizon + 1
        head_width = config.width // config.heads
        self.embed = nn.Linear(inputs, config.width)
        self.positions: nn.Module = Keep()
        rotate: nn.Module = Keep()
        if config.positions == "learned":
            self.positions = LearnedPositions(config.width, horizon + 1)
        elif config.positions == "sinusoidal":
            self.positions = SinusoidalPositions(config.width)
        else:
            rotate = Rotary(head_width)
        self.drop = Dropout(config.dropout, generator)
        self.blocks = nn.ModuleList(Block(config, rotate, generator) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.backend = attention.BACKENDS[backend]
        self._cache_shape = (config.layers, config.heads, head_width)

    def forward(self, tokens: Tensor, packing: Packing, position: Tensor) -> Tensor:
        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return self.backend(q, k, v, packing)

        # The residual stream is float32 under autocast too: each block adds to it.
        x = self.drop(self.positions(self.embed(tokens).float(), position))
        for block in self.blocks:
            x = block(x, position, attend)
        return self.norm(x)

    def new_cache(self, slots: int) -> KeyValueCache:
        layers, heads, head_width = self._cache_shape
        return KeyValueCache(layers, slots, heads, head_width, self.window)

    def save_cache(self, cache: KeyValueCache, tokens: int) -> Tensor:
        return cache.store[..., :tokens, :].clone()  # entries behind are written before they are visible

    def load_cache(self, saved: Tensor) -> KeyValueCache:
        cache = self.new_cache(saved.shape[2])
        cache.restore(saved)
        return cache

    def step(self, tokens: Tensor, cache: KeyValueCache, position: Tensor) -> Tensor:
        x = self.positions(self.embed(tokens), position)
        cache.begin(position, x)
        for i, block in enumerate(self.blocks):
            x = block(x, position, lambda q, k, v, layer=i: cache.attend(layer, q, k, v))
        return self.norm(x)
