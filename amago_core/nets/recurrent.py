"""The two other sequence models of the ablations: a GRU and a map without memory (agent.md 3.5)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from amago_core.config import Config
from amago_core.nets.layers import activation
from amago_core.nets.sequence_model import SequenceModel
from amago_core.sequences import Packing


class GRU(SequenceModel):
    """Stacked GRU, then Linear and LayerNorm. Its memory is not cut by a context length."""

    def __init__(self, config: Config, inputs: int) -> None:
        super().__init__()
        self.gru = nn.GRU(inputs, config.width, config.layers, batch_first=True)
        self.out = nn.Sequential(nn.Linear(config.width, config.width), nn.LayerNorm(config.width))

    def forward(self, tokens: Tensor, packing: Packing, position: Tensor) -> Tensor:
        grid = packing.unpack(tokens)  # padding stands behind the tokens, it reaches none
        # On a CPU the casts of each small step cost more than bfloat16 saves. On a GPU autocast would run it in half,
        # whatever its type: PyTorch casts the recurrent networks of cuDNN to float16.
        with torch.autocast(tokens.device.type, enabled=False):
            hidden, _ = self.gru(grid.float())  # [B, L, D]
        return self.out(packing.pack(hidden))

    def new_cache(self, slots: int) -> Tensor:
        """Hidden states [layers, B, D]."""
        like = next(self.gru.parameters())
        return like.new_zeros(self.gru.num_layers, slots, self.gru.hidden_size)

    def step(self, tokens: Tensor, cache: Tensor, position: Tensor) -> Tensor:
        cache.masked_fill_((position == 0).view(1, -1, 1), 0.0)
        out, hidden = self.gru(tokens.unsqueeze(1), cache)  # [B, 1, D]
        cache.copy_(hidden)
        return self.out(out.squeeze(1))


class Memoryless(SequenceModel):
    """Residual feed-forward blocks that see the current timestep only."""

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
        x = self.inp(tokens)
        for block in self.blocks:
            x = x + block(x)
        return self.out(x)
