"""Logs how every slot got from its reset to its present state: the actions, and a checksum of the answers."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import Space

FIRST_SIZE = 256  # steps; doubled when a rollout needs more
FACTOR = np.uint64(0x9E3779B97F4A7C15)  # large, and odd, so that multiplying by it loses nothing


class RolloutLog:
    """The rollouts under way in B slots. `add` is called at every step, so most of the work is left to `checksum`.

    Attributes:
        actions: [timestep, B, ...], as the environment got them.
        asked: the instance that the last reset asked for, int64 [B], -1: none.
    """

    def __init__(self, action_space: Space, slots: int) -> None:
        assert action_space.shape is not None
        self.actions = np.zeros((FIRST_SIZE, *action_space.shape), action_space.dtype)
        self.asked = np.full(slots, -1)
        self._slots = np.arange(slots)
        # For every word of an answer a polynomial in FACTOR modulo 2**64, whose coefficients are the values of that
        # word since the reset: arrays [B, n], first that of the rewards, then one for each part of an observation.
        self._sums: list[np.ndarray] = []

    def begin(self, slots: np.ndarray, instance: np.ndarray | None, observation: Any) -> None:
        """A rollout begins in `slots`."""
        self.asked[slots] = -1 if instance is None else np.asarray(instance)[slots]
        words = [np.zeros((len(self._slots), 1), np.uint32), *_words(observation, len(self._slots))]
        if not self._sums:
            self._sums = [np.zeros(part.shape, np.uint64) for part in words]
        for total, part in zip(self._sums, words, strict=True):
            total[slots] = part[slots]

    def add(self, t: np.ndarray, actions: np.ndarray, observation: Any, reward: np.ndarray) -> None:
        """One step of every slot, at timesteps `t` [B]."""
        try:
            self.actions[t, self._slots] = actions
        except IndexError:
            self.actions = np.concatenate([self.actions, np.zeros_like(self.actions)])
            self.actions[t, self._slots] = actions
        for total, part in zip(self._sums, _words((reward, observation), len(self._slots)), strict=True):
            total *= FACTOR
            total += part

    def checksum(self) -> np.ndarray:
        """Of every observation and reward since the reset, uint32 [B]."""
        rows = (b"".join(total[slot].tobytes() for total in self._sums) for slot in self._slots)
        return np.array([zlib.crc32(row) for row in rows], np.uint32)


def extended(digest: int, slots: int, *parts: Any) -> int:
    """The checksum of a stream to which `parts`, actions or answers of all slots, are added; 32 bits, so it resumes."""
    for part in parts:
        for words in _words(part, slots):
            digest = zlib.crc32(np.ascontiguousarray(words).data, digest)
    return digest


def _words(answer: Any, slots: int) -> Iterator[np.ndarray]:
    """The bytes of an answer as numbers of at most 32 bits, [B, n] for each of its parts."""
    if isinstance(answer, np.ndarray) and answer.dtype.kind != "O" and len(answer) == slots:
        rows = answer.reshape(slots, answer.size // slots)
        yield rows.view(np.uint32 if rows.shape[1] * rows.itemsize % 4 == 0 else np.uint8)
    elif isinstance(answer, tuple | Mapping):
        for part in answer.values() if isinstance(answer, Mapping) else answer:
            yield from _words(part, slots)
    else:  # texts and graphs
        yield np.full((slots, 1), zlib.crc32(repr(answer).encode()), np.uint32)
