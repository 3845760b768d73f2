"""Bernoulli bandits with uniform priors and a known number of pulls: an upper confidence bound that looks ahead."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.gate.vector_step import VectorStep

OPTIMISM = 0.65  # chosen by simulation at 10 arms and 200 pulls, 30 arms and 600 pulls


@dataclass
class _Memory:
    wins: np.ndarray  # [B, arms]
    pulls: np.ndarray  # [B, arms]
    arm: np.ndarray  # [B], pulled last


@dataclass(frozen=True)
class Bandit:
    """Pulls the arm with the highest `index`. A new arm is tried when none of the others promises as much.

    Args:
        arms: their number.
        horizon: pulls of a rollout.
    """

    arms: int
    horizon: int

    def __call__(self, step: VectorStep, memory: _Memory | None) -> tuple[np.ndarray, _Memory]:
        slots = np.arange(len(step.first))
        if memory is None:
            nothing = np.zeros((len(slots), self.arms))
            memory = _Memory(nothing, nothing.copy(), np.zeros(len(slots), np.int64))
        memory.wins[slots, memory.arm] += step.observation
        memory.pulls[slots, memory.arm] += 1
        memory.wins[step.first] = memory.pulls[step.first] = 0
        left = self.horizon - memory.pulls.sum(1, keepdims=True)
        memory.arm = index(memory.wins, memory.pulls - memory.wins, left).argmax(1)
        return memory.arm, memory


def index(wins: np.ndarray, losses: np.ndarray, left: np.ndarray) -> np.ndarray:
    """How much an arm promises, in log-odds of a payout, with `left` pulls to go.

    The log-odds of the mean of the posterior, Beta(wins + 1, losses + 1), plus a multiple of about their standard
    deviation. In log-odds the bound of an arm that has always paid is never above a certain payout, so a good arm is
    kept for life and not all arms have to be tried. The multiple falls as the pulls to gain from fall.
    """
    odds = np.log((wins + 1) / (losses + 1))
    deviation = np.sqrt(1 / (wins + 1) + 1 / (losses + 1))
    return odds + deviation * np.sqrt(OPTIMISM * np.log1p(left / (wins + losses + 2)))
