"""Acting: the keys and values that attention keeps, and attention of one query at a time over them."""

from __future__ import annotations

import math

import torch
from torch import Tensor


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
        # Slots at the same timestep all write the same entry and see everything: no index, no mask.
        self._together = latest % self.window if earliest == latest else None
        if self._together is None:
            self._entry = position % self.window  # a ring: past the window a token replaces the oldest one
            # Entry j holds a token of this rollout iff j <= position; past the window every entry does.
            self._visible = torch.arange(needed, device=position.device) <= position.unsqueeze(1)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Stores k and v `[B, H, Dh]` of a layer and attends over the keys that each slot may see."""
        keys, values = self.store[layer]
        if self._together is None:
            keys[self._slots, :, self._entry] = k
            values[self._slots, :, self._entry] = v
        else:
            keys[:, :, self._together], values[:, :, self._together] = k, v
        n, visible = self._length, self._visible if self._together is None else None
        return attend_cached(q, keys[:, :, :n], values[:, :, :n], visible)

    def save(self, tokens: int) -> Tensor:
        """A copy of the entries, if no rollout has played more than `tokens` timesteps."""
        return self.store[..., :tokens, :].clone()  # later entries are written before they are visible

    def restore(self, saved: Tensor) -> None:
        """Takes over the entries of another cache, with their dtype and device."""
        layers, pair, slots, heads, room, width = self._shape
        self.store = saved.new_zeros(layers, pair, slots, heads, max(room, saved.shape[4]), width)
        self.store[..., : saved.shape[4], :] = saved
        self._slots = self._slots.to(saved.device)


def attend_cached(q: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None) -> Tensor:
    """One query per slot: q `[B, H, Dh]`, keys and values `[B, H, W, Dh]` -> `[B, H, Dh]`.

    `visible` `[B, W]` bool says which keys a slot may see; None: all.
    """
    # A row times a matrix is twice as fast on a CPU as a matrix times a column.
    scores = ((q / math.sqrt(q.shape[-1])).unsqueeze(2) @ keys.transpose(2, 3)).squeeze(2)  # [B, H, W]
    if visible is not None:
        scores = scores.masked_fill(~visible.unsqueeze(1), -math.inf)
    return (scores.softmax(dim=-1).unsqueeze(2) @ values).squeeze(2)  # [B, H, Dh]
