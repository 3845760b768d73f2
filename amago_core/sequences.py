"""What a timestep holds, and the packed batch: the tokens of all sequences one after another, plus their lengths.

Everything but the sequence model works token by token, so there is no padding and nothing to mask. A token holds
what the agent knows at one timestep: the observation, and the action, reward and end of the transition that led
there. The transition *from* token i is therefore read from token i + 1, and the N - B tokens that have a
successor are the ones with a loss: the last transition of a rollout is always among them (agent.md 8.3).

Letters: N tokens, B sequences, L longest length, M = N - B transitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from amago_core.spaces import ActionCodec, Field, ObservationCodec


class Packing:
    """Where each sequence of a packed batch begins and ends.

    Args:
        lengths: tokens of each sequence, [B], all at least 1.
    """

    def __init__(self, lengths: npt.ArrayLike, device: torch.device | str = "cpu") -> None:
        self.lengths = np.asarray(lengths, np.int64)
        if self.lengths.ndim != 1 or len(self.lengths) == 0 or self.lengths.min() < 1:
            raise ValueError(f"sequence lengths must be a list of positive numbers, not {self.lengths.tolist()}")
        self.device = device
        self.ends = np.cumsum(self.lengths)
        self.starts = self.ends - self.lengths
        self.tokens = int(self.ends[-1])
        self.sequences = len(self.lengths)
        self.longest = int(self.lengths.max())
        self.equal = bool((self.lengths == self.longest).all())

    @cached_property
    def cumulative(self) -> Tensor:
        """[0, end of sequence 0, ...] as int32 [B + 1], the form that flash-attention takes."""
        return torch.from_numpy(np.concatenate([[0], self.ends]).astype(np.int32)).to(self.device)

    @cached_property
    def current(self) -> Tensor:
        """Indices of the M tokens that have a successor in their sequence."""
        keep = np.ones(self.tokens, bool)
        keep[self.ends - 1] = False
        return torch.from_numpy(np.flatnonzero(keep)).to(self.device)

    @cached_property
    def _cells(self) -> Tensor:
        """Index of each token in the flattened [B, L] grid."""
        row = np.repeat(np.arange(self.sequences), self.lengths)
        column = np.arange(self.tokens) - np.repeat(self.starts, self.lengths)
        return torch.from_numpy(row * self.longest + column).to(self.device)

    def unpack(self, x: Tensor) -> Tensor:
        """[N, ...] -> [B, L, ...], with zeros after the end of shorter sequences."""
        shape = (self.sequences, self.longest, *x.shape[1:])
        if self.equal:
            return x.reshape(shape)
        grid = x.new_zeros((self.sequences * self.longest, *x.shape[1:]))
        return grid.index_copy(0, self._cells, x).view(shape)

    def pack(self, grid: Tensor) -> Tensor:
        """[B, L, ...] -> [N, ...], the inverse of `unpack`."""
        flat = grid.reshape(self.sequences * self.longest, *grid.shape[2:])
        return flat if self.equal else flat.index_select(0, self._cells)


#: The fields of a timestep by name, see `timestep_layout`.
Layout: TypeAlias = Mapping[str, Field]
#: Consecutive timesteps: an array for each field, the timesteps along the first axis. A rollout of T transitions has
#: T + 1 of them.
Timesteps: TypeAlias = Mapping[str, npt.NDArray[Any]]


def timestep_layout(observations: ObservationCodec, actions: ActionCodec) -> Layout:
    """What is stored for a timestep: the observation's fields, and what led there.

    action: the previous action, `ActionCodec.blank` at the start of a rollout.
    reward: the previous reward, as the environment gave it.
    terminal: the value target ends here.
    reset: first timestep of a rollout or of an inner episode.
    """
    flag = Field((), np.dtype(np.bool_))
    reward = Field((), np.dtype(np.float32))
    return {**observations.fields, "action": actions.field, "reward": reward, "terminal": flag, "reset": flag}


@dataclass(frozen=True)
class Batch:
    """A packed batch of timesteps; every tensor has N rows."""

    packing: Packing
    position: Tensor  # [N] int64: timestep since the start of the rollout
    fields: Mapping[str, Tensor]  # as in the layout

    def __getitem__(self, name: str) -> Tensor:
        return self.fields[name]

    def to(self, device: torch.device | str) -> Batch:
        fields = {name: field.to(device) for name, field in self.fields.items()}
        return Batch(Packing(self.packing.lengths, device), self.position.to(device), fields)
