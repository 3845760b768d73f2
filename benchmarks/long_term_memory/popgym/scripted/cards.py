"""Card games that memory alone solves, each from the cards that were shown."""

from __future__ import annotations

from collections import Counter, deque

from benchmarks.long_term_memory.popgym.scripted.slots import Player

WATCH = 1  # Autoencode's other mode is PLAY
HIGHER, LOWER = range(2)


def repeat_first(suit: int) -> Player:
    """Name the first suit at every step."""
    while True:
        yield suit


def repeat_previous(suit: int, lag: int) -> Player:
    """Name the suit `lag` - 1 cards back; answers before there are `lag` cards do not count."""
    suits = deque([suit], maxlen=lag)
    while True:
        suits.append((yield suits[0]))


def autoencode(seen: list[int]) -> Player:
    """Push the suits while watching, then pop them. The last card is shown when the mode has already changed."""
    mode, suit = seen
    suits = [suit]
    while mode == WATCH:
        mode, suit = yield 0
        suits.append(suit)
    while True:
        yield suits.pop()


def count_recall(seen: list[int]) -> Player:
    """Count the values; a card counts for the query it is shown with."""
    counts: Counter[int] = Counter()
    while True:
        card, query = seen
        counts[card] += 1
        seen = yield counts[query]


def higher_lower(rank: int, decks: int) -> Player:
    """Say what most of the remaining cards are. Answers change no card, so the best answer at each step is optimal."""
    left = [4 * decks] * 13
    while True:
        left[rank] -= 1
        rank = yield LOWER if sum(left[:rank]) > sum(left[rank + 1 :]) else HIGHER
