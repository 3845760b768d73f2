"""What leads every slot of an environment from its reset to where it is: the actions, and a checksum of the answers."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import Space

FIRST_SIZE = 256  # steps; doubled as rollouts need it
FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd: multiplying by it loses nothing


class RolloutLog:
    """The rollouts under way in B slots.

    Attributes:
        actions: [timestep, B, ...], as the environment got them.
        asked: the instance that the last reset asked for, int64 [B], -1: none.
        checksum: of every observation and reward since the reset, uint64 [B].
    """

    def __init__(self, action_space: Space, slots: int) -> None:
        assert action_space.shape is not None
        self.actions = np.zeros((FIRST_SIZE, *action_space.shape), action_space.dtype)
        self.asked = np.full(slots, -1)
        self.checksum = np.zeros(slots, np.uint64)
        self._slots = np.arange(slots)
        self._weights: dict[tuple[int, int], np.ndarray] = {}

    def begin(self, slots: np.ndarray, instance: np.ndarray | None, observation: Any) -> None:
        """A rollout begins in `slots`."""
        self.asked[slots] = -1 if instance is None else np.asarray(instance)[slots]
        self.checksum[slots] = self._mixed(np.zeros_like(self.checksum), observation)[slots]

    def add(self, t: np.ndarray, actions: np.ndarray, observation: Any, reward: np.ndarray) -> None:
        """One step of every slot, at timesteps `t` [B]."""
        if int(t.max()) >= len(self.actions):
            self.actions = np.concatenate([self.actions, np.zeros_like(self.actions)])
        self.actions[t, self._slots] = actions
        self.checksum = self._mixed(self.checksum, (observation, reward))

    def _mixed(self, before: np.ndarray, answer: Any) -> np.ndarray:
        total = np.zeros_like(before)
        for i, words in enumerate(_words(answer, len(before))):
            key = i, words.shape[1]
            if key not in self._weights:
                self._weights[key] = np.random.default_rng(key).integers(2**63, size=key[1], dtype=np.uint64) * 2 + 1
            total += words @ self._weights[key]
        mixed = (before ^ total) * FACTOR
        return mixed ^ (mixed >> np.uint64(29))


def _words(answer: Any, slots: int) -> Iterator[np.ndarray]:
    """The bytes of an answer as numbers of at most 32 bits, [B, n] for each of its parts."""
    if isinstance(answer, Mapping):
        answer = tuple(answer.values())
    if isinstance(answer, tuple):
        for part in answer:
            yield from _words(part, slots)
    elif isinstance(answer, np.ndarray) and answer.dtype.kind != "O" and len(answer) == slots:
        octets = np.ascontiguousarray(answer).reshape(slots, answer.size // slots).view(np.uint8)
        yield octets.view(np.uint32) if octets.shape[1] % 4 == 0 else octets
    else:  # texts and graphs
        yield np.full((slots, 1), zlib.crc32(repr(answer).encode()), np.uint32)
