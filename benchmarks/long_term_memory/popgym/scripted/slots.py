"""A policy for B slots from one for a single rollout, written as a generator."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.gate.vector_step import VectorStep

Player = Generator[Any, Any, None]  # yields an action and is sent what it sees next, as Python's integers


@dataclass(frozen=True)
class PerSlot:
    """Starts a player for each rollout, `player(first observation)`. The memory is the list of the players.

    For integer observations and actions, single or in rows. Can be pickled where `player` can.
    """

    player: Callable[[Any], Player]

    def __call__(self, step: VectorStep, memory: Any) -> tuple[np.ndarray, list[Player]]:
        players: list[Player] = memory or [self.player(None)] * len(step.first)
        actions = []
        for slot, (seen, first) in enumerate(zip(step.observation.tolist(), step.first.tolist(), strict=True)):
            if first:
                players[slot] = self.player(seen)
                actions.append(next(players[slot]))
            else:
                actions.append(players[slot].send(seen))
        return np.array(actions, np.int64), players
