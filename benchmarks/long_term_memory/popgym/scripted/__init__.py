"""Policies written by hand for the POPGym tasks: what an agent can score if it knows the rules and forgets nothing.

They see what an agent sees, and each is told the size of its task. An oracle is optimal, either proven or because it
reaches the highest possible return. A scripted policy is good, but not known to be the best. Needs no popgym.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from benchmarks.long_term_memory.popgym.scripted.bandit import Bandit
from benchmarks.long_term_memory.popgym.scripted.battleship import Battleship
from benchmarks.long_term_memory.popgym.scripted.cards import (
    autoencode,
    count_recall,
    higher_lower,
    repeat_first,
    repeat_previous,
)
from benchmarks.long_term_memory.popgym.scripted.cartpole import POSITIONS, VELOCITIES, CartPole
from benchmarks.long_term_memory.popgym.scripted.concentration import find_pairs
from benchmarks.long_term_memory.popgym.scripted.minesweeper import sweep
from benchmarks.long_term_memory.popgym.scripted.pendulum import Pendulum
from benchmarks.long_term_memory.popgym.scripted.slots import PerSlot
from benchmarks.task import Policy

EXACT = 1e-4  # the noise that a filter assumes when there is none but the rounding of float32


def _levels(family: str, *policies: Policy) -> dict[str, Policy]:
    return {family + level: policy for level, policy in zip(("Easy", "Medium", "Hard"), policies, strict=True)}


ORACLES: Mapping[str, Policy] = {
    **_levels("Autoencode", *[PerSlot(autoencode)] * 3),
    "ConcentrationHard": PerSlot(find_pairs),
    **_levels("CountRecall", *[PerSlot(count_recall)] * 3),
    **_levels("HigherLower", *[PerSlot(partial(higher_lower, decks=decks)) for decks in (1, 2, 3)]),
    **_levels("PositionOnlyCartPole", *[CartPole(POSITIONS, EXACT, horizon) for horizon in (200, 400, 600)]),
    **_levels("RepeatFirst", *[PerSlot(repeat_first)] * 3),
    **_levels("RepeatPrevious", *[PerSlot(partial(repeat_previous, lag=lag)) for lag in (4, 32, 64)]),
    **_levels("VelocityOnlyCartPole", *[CartPole(VELOCITIES, EXACT, horizon) for horizon in (200, 400, 600)]),
}

SCRIPTED: Mapping[str, Policy] = {
    **_levels("Battleship", *[Battleship(side) for side in (8, 10, 12)]),
    "ConcentrationEasy": PerSlot(find_pairs),
    "ConcentrationMedium": PerSlot(find_pairs),
    **_levels("MineSweeper", *[PerSlot(partial(sweep, side=s, mines=m)) for s, m in ((4, 2), (6, 6), (8, 10))]),
    **_levels("MultiarmedBandit", Bandit(10, 200), Bandit(20, 400), Bandit(30, 600)),
    **_levels("NoisyPositionOnlyCartPole", *[CartPole(POSITIONS, sigma, 200) for sigma in (0.1, 0.2, 0.3)]),
    **_levels("NoisyPositionOnlyPendulum", *[Pendulum(sigma) for sigma in (0.1, 0.2, 0.3)]),
    **_levels("PositionOnlyPendulum", *[Pendulum(EXACT)] * 3),
}
