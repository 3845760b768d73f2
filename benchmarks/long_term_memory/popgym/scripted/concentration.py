"""Concentration with perfect memory: never forget a card, and let chance pair what it can."""

from __future__ import annotations

from collections import defaultdict

from benchmarks.long_term_memory.popgym.scripted.slots import Player


def find_pairs(cards: list[int]) -> Player:
    """Turn an unseen card; then its match where one has been seen, and another unseen card where none has.

    Matching cards that have both been seen are left for the end, when nothing is unseen: they are safe anyway, and
    until then each is a match for an unseen card of its value. Optimal with the four cards of a rank (a slow test
    proves it); with the 26 or more of a colour a perfect player, who sometimes turns an unseen card although a match is
    known, has one failure fewer in ten rollouts.
    """
    unseen = list(range(len(cards)))  # the deck is shuffled, so any order will do
    seen: defaultdict[int, list[int]] = defaultdict(list)  # value -> its cards that lie face down
    while unseen:
        first = unseen.pop()
        value = (yield first)[first]
        if seen[value]:
            yield seen[value].pop()
            continue
        second = unseen.pop()
        other = (yield second)[second]
        if other != value:
            seen[value].append(first)
            seen[other].append(second)
    for pairs in seen.values():
        while pairs:
            yield pairs.pop()
