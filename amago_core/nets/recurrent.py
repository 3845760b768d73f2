"""The sequence models of the ablations (agent.md 3.5): a GRU, and a network without memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from amago_core.config import Config
from amago_core.nets.layers import activation
from amago_core.nets.sequence_model import SequenceModel
from amago_core.sequences import Packing


class GRU(SequenceModel):
    """A stacked GRU, then Linear and LayerNorm.

    When learning, each slice starts from a zero state. When acting, the state is carried through the whole rollout,
    however short the context. Both are float32, also under autocast.
    """

    def __init__(self, config: Config, inputs: int) -> None:
        super().__init__()
        self.gru = nn.GRU(inputs, config.width, config.layers, batch_first=True)
        self.out = nn.Sequential(nn.Linear(config.width, config.width), nn.LayerNorm(config.width))

    def forward(self, tokens: Tensor, packing: Packing, position: Tensor) -> Tensor:
        grid = packing.unpack(tokens)  # [N, input] -> [B, L, input]; padding comes after the tokens and affects none
        # On a CPU the casts of each small step cost more than bfloat16 saves. On a GPU, autocast of any type would run
        # the GRU in float16: that is what PyTorch casts cuDNN's recurrent networks to.
        with torch.autocast(tokens.device.type, enabled=False):
            hidden, _ = self.gru(grid.float())  # [B, L, input] -> [B, L, D]
        return self.out(packing.pack(hidden))  # [B, L, D] -> [N, D]

    def new_cache(self, slots: int) -> Tensor:
        """Hidden states, [layers, B, D]."""
        like = next(self.gru.parameters())
        return like.new_zeros(self.gru.num_layers, slots, self.gru.hidden_size)

    def step(self, tokens: Tensor, cache: Tensor, position: Tensor) -> Tensor:
        cache.masked_fill_((position == 0).view(1, -1, 1), 0.0)
        out, hidden = self.gru(tokens.unsqueeze(1), cache)  # [B, input] -> [B, 1, D]
        cache.copy_(hidden)
        return self.out(out.squeeze(1))  # [B, 1, D] -> [B, D]


class Memoryless(SequenceModel):
    """Sees only the current timestep: residual feed-forward blocks, then Linear and LayerNorm."""

    def __init__(self, config: Config, inputs: int) -> None:
        super().__init__()
        d, act = config.width, config.sequence_activation
        self.inp = nn.Sequential(nn.Linear(inputs, d), activation(act))
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(d, 4 * d), activation(act), nn.Linear(4 * d, d), activation(act))
            for _ in range(config.layers)
        )
        self.out = nn.Sequential(nn.Linear(d, d), nn.LayerNorm(d))

    def forward(self, tokens: Tensor, packing: Packing, position: Tensor) -> Tensor:
        return self._map(tokens)

    def new_cache(self, slots: int) -> None:
        return None

    def step(self, tokens: Tensor, cache: Any, position: Tensor) -> Tensor:
        return self._map(tokens)

    def _map(self, tokens: Tensor) -> Tensor:
        x = self.inp(tokens)  # [N, input] -> [N, D]
        for block in self.blocks:
            x = x + block(x)
        return self.out(x)
