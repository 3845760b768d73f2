"""Battleship: shoot at the square that is most likely part of a ship, given every hit and miss so far.

Where one ship lies tells of the others: ships do not overlap, and each hit is part of one of them. Four ships have too
many joint places to list, so each ship's distribution over its own places is computed in turn as if the other ships
were independent (a mean field), a few rounds at each step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks.gate.vector_step import VectorStep

SHIPS = (2, 3, 3, 4)
ROUNDS = 4
TINY = 1e-6  # keeps logarithms finite where the independent ships contradict each other
UNKNOWN, HIT, MISS = range(3)


@dataclass
class _Memory:
    board: np.ndarray  # int [B, squares]: UNKNOWN, HIT or MISS
    shot: np.ndarray  # int [B], the last square


@dataclass(frozen=True)
class Battleship:
    """For a square board with sides of `side` squares. Actions int [B, 2]: row and column."""

    side: int

    def __call__(self, step: VectorStep, memory: _Memory | None) -> tuple[np.ndarray, _Memory]:
        slots = np.arange(len(step.first))
        if memory is None:
            memory = _Memory(np.zeros((len(slots), self.side**2), np.int64), np.zeros(len(slots), np.int64))
        memory.board[slots, memory.shot] = np.where(step.observation == 1, HIT, MISS)
        memory.board[step.first] = UNKNOWN
        ships = occupancy(memory.board, self.side)
        chance = (1 - np.prod(1 - ships, axis=0)).round(9)  # equal squares stay equal: the first is shot at
        memory.shot = np.where(memory.board == UNKNOWN, chance, -1).argmax(1)
        return np.stack(np.divmod(memory.shot, self.side), axis=1), memory


@cache
def places(side: int, length: int) -> np.ndarray:
    """Every place of a ship as a row of 0 and 1 over the squares, float64 [places, squares]."""
    found = []
    for row in range(side):
        for column in range(side - length + 1):
            board = np.zeros((side, side))
            board[row, column : column + length] = 1
            found += [board.ravel(), board.T.ravel()]
    return np.array(found)


def occupancy(board: np.ndarray, side: int) -> np.ndarray:
    """The probability that each ship is on each square, [ships, B, squares], for boards of `UNKNOWN`, `HIT`, `MISS`."""
    hit, miss = board == HIT, board == MISS
    on = np.zeros((len(SHIPS), *board.shape))
    for _ in range(ROUNDS):
        for ship, length in enumerate(SHIPS):
            others = np.delete(on, ship, axis=0)  # [ships - 1, B, squares]
            none = np.prod(1 - others, axis=0)
            one = sum(others[k] * np.prod(1 - np.delete(others, k, axis=0), axis=0) for k in range(len(others)))
            covered = np.log(np.maximum(none, TINY))  # this ship is on the square, so no other is
            explained = np.log(np.maximum(np.where(hit, one, 1), TINY))  # it is not: a hit is one of the others
            squares = np.where(miss, -np.inf, covered) - explained
            # -inf * 0 is not a number, so the misses are summed as a large cost.
            log_weight = np.maximum(squares, -1e3) @ places(side, length).T  # [B, places]
            weight = np.exp(log_weight - log_weight.max(1, keepdims=True))
            on[ship] = weight / weight.sum(1, keepdims=True) @ places(side, length)
    return on
