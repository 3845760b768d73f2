"""MineSweeper by counting: how likely each square is a mine, given all that has been opened; then the least risk.

Sets of squares are the bits of an integer, square `row * side + column` being bit 2 ** square.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache
from math import comb

import numpy as np

from benchmarks.long_term_memory.popgym.scripted.slots import Player

Clue = tuple[int, int]  # a set of unopened squares, and how many of them are mines


def sweep(_seen: int, side: int, mines: int) -> Player:
    """Open the safest square, until the risk costs more than the steps that are left.

    A mine costs 1/2 and 1/T and ends the rollout, T being the number of safe squares and of steps. Opening an open
    square again costs 0.5/(T - 2), so giving up pays late in a rollout.
    """
    safe = side**2 - mines
    opened: dict[int, int] = {}  # square -> mines around it
    while True:
        risk = risks(frozenset(opened.items()), side, mines)
        square = safest(risk, opened, side)
        left = safe - len(opened)
        if gives_up(risk[square], left, safe):
            square = next(iter(opened))
        opened[square] = yield list(divmod(square, side))


def safest(risk: np.ndarray, opened: Iterable[int], side: int) -> int:
    """Of the squares with the least risk the one with the fewest unopened neighbours: its number says most of each."""
    known = sum(1 << square for square in opened)
    neighbours = [(block & ~known).bit_count() for block in around(side)]
    return int(np.lexsort(np.stack([neighbours, risk.round(9)]))[0])


def gives_up(risk: float, left: int, safe: int) -> bool:
    """Whether giving up now, with `left` of `safe` squares unopened, beats one more guess and giving up then."""
    wait = -0.5 / (safe - 2)
    guess = (1 - risk) * (1 / safe + (left - 1) * wait) - risk * (0.5 + 1 / safe)
    return guess < left * wait


@lru_cache(100_000)
def risks(opened: frozenset[tuple[int, int]], side: int, mines: int) -> np.ndarray:
    """The probability that each square is a mine, [side ** 2], all layouts equally likely; infinite where opened.

    Groups of clues that share no square are enumerated separately and combined by their number of mines.
    """
    known = sum(1 << square for square, _ in opened)
    groups = independent([(around(side)[square] & ~known, count) for square, count in sorted(opened)])
    sea = (1 << side**2) - 1 & ~known & ~sum(squares for squares, _ in groups)  # no clue is about these

    solved = [layouts(clues, mines) for _, clues in groups]
    ways = [np.bincount(np.bitwise_count(layout), minlength=mines + 1) for layout in solved]  # by number of mines
    ways.append(np.array([comb(sea.bit_count(), number) for number in range(mines + 1)]))
    total = joined(ways, mines)[mines]

    risk = np.full(side**2, np.inf)
    for k, (squares, _) in enumerate(groups):
        others = joined(ways[:k] + ways[k + 1 :], mines)
        weight = others[mines - np.bitwise_count(solved[k]).astype(int)] / total
        inside = members(squares, side)
        risk[inside] = weight @ (solved[k][:, None] >> inside.astype(np.uint64) & np.uint64(1))
    if sea:
        number = np.arange(mines + 1)
        mean = joined(ways[:-1], mines)[mines - number] @ (ways[-1] * number) / total
        risk[members(sea, side)] = mean / sea.bit_count()
    return risk


def independent(clues: list[Clue]) -> list[tuple[int, list[Clue]]]:
    """The clues in groups that share no square, each with its squares and in an order in which neighbours follow."""
    groups: list[tuple[int, list[Clue]]] = []
    for clue in clues:
        if not clue[0]:
            continue
        squares, together = clue[0], [clue]
        apart = []
        for group in groups:
            if group[0] & clue[0]:
                squares, together = squares | group[0], group[1] + together
            else:
                apart.append(group)
        groups = [*apart, (squares, together)]
    return groups


def layouts(clues: list[Clue], mines: int) -> np.ndarray:
    """Every set of at most `mines` mines that fits all clues, uint64 [layouts]."""
    found, placed = np.zeros(1, np.uint64), 0
    for squares, count in clues:
        new = subsets(squares & ~placed)
        number = np.bitwise_count(found & np.uint64(squares))[:, None] + np.bitwise_count(new)
        fits = (number == count) & (np.bitwise_count(found)[:, None] + np.bitwise_count(new) <= mines)
        old, added = np.nonzero(fits)
        found, placed = found[old] | new[added], placed | squares
    return found


@cache
def subsets(squares: int) -> np.ndarray:
    """All subsets of a set, uint64."""
    found = np.zeros(1, np.uint64)
    while squares:
        lowest = squares & -squares
        found, squares = np.concatenate([found, found | np.uint64(lowest)]), squares ^ lowest
    return found


def joined(ways: list[np.ndarray], mines: int) -> np.ndarray:
    """In how many ways parts have 0 to `mines` mines together, float64, from the ways of each part."""
    together = np.eye(1, mines + 1)[0]
    for part in ways:
        together = np.convolve(together, part.astype(float))[: mines + 1]
    return together


def members(squares: int, side: int) -> np.ndarray:
    """The squares of a set, int64."""
    return np.array([square for square in range(side**2) if squares >> square & 1])


@cache
def around(side: int) -> list[int]:
    """For each square the set of the 3 x 3 block about it."""
    block = []
    for row in range(side):
        for column in range(side):
            rows = range(max(row - 1, 0), min(row + 2, side))
            columns = range(max(column - 1, 0), min(column + 2, side))
            block.append(sum(1 << (r * side + c) for r in rows for c in columns))
    return block
