"""The T-Maze tasks: the oracle, the ends of the scale, budgets and AMAGO's settings."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.gate.vector_step import VectorStep
from benchmarks.long_term_memory.tmaze.env import DOWN, LEFT, RIGHT, UP, TMaze
from benchmarks.task import Budget, Task


def follow_cue(step: VectorStep, memory: np.ndarray | None, first_action: int) -> tuple[np.ndarray, np.ndarray]:
    """The oracle: remembers the cue of each slot, goes right, and turns towards the cue at the junction."""
    at_junction, sign = step.observation.T
    cue = np.zeros(len(sign)) if memory is None else np.where(step.first, 0, memory)
    cue = np.where(at_junction == 0, cue + sign, cue)
    turn = np.where(cue > 0, UP, DOWN)
    actions = np.where((at_junction == 1) & (sign == 0), turn, RIGHT)
    return np.where(step.first, first_action, actions), cue


def random_return(corridor: int, active: bool) -> float:
    """The expected return of uniformly random actions.

    Three of four actions cost 1/N on each step but the last (and the free first one of the active maze). The goal:
    the passive maze allows one way to it among the 4^(N+1). The active maze leaves two spare steps; reaching the
    junction first after N, N+1 and N+2 steps has 1, 2N and 2N(N+1) + N ways, each followed by 16, 4 and 1 ways
    to end in a given arm with the 3, 2 and 1 steps that are left.
    """
    n = corridor
    if not active:
        return -0.75 + 0.25 ** (n + 1)
    return -0.75 * (n + 1) / n + (2 * n * n + 11 * n + 16) * 0.25 ** (n + 3)


CORRIDORS = (10, 30, 100, 300, 1000, 3000, 10_000)

LAPTOP_ENV_STEPS = {10: 60_000, 30: 150_000, 100: 500_000, 300: 1_500_000}  # corridor -> all slots together
LAPTOP_SEEDS = {10: (0, 1, 2, 3, 4), 30: (0, 1, 2, 3, 4), 100: (0, 1, 2, 3, 4), 300: (0, 1, 2)}
LAPTOP_SLOTS = 32
LAPTOP_EVALUATIONS = 20
LAPTOP_STOP_RETURN = 0.99
SOLVED_AT = 0.95

# The official example: 36 actors; 800 steps per actor and epoch at N = 400, 10,000 at N = 10,000. It does not state the
# rule between these two points, nor the number of epochs (we take the code's default).
PAPER_SLOTS = 36
PAPER_EPOCHS = 1000


def _budgets(corridor: int, horizon: int) -> dict[str, Budget]:
    slots = 8 if corridor <= 300 else 2
    steps = max(3000, slots * (horizon + 32))  # so that a whole rollout is followed by an iteration of updates
    budgets = {"smoke": Budget(steps, slots, evaluations=2, seeds=(0,))}
    if corridor in LAPTOP_ENV_STEPS:
        budgets["laptop"] = Budget(
            LAPTOP_ENV_STEPS[corridor],
            LAPTOP_SLOTS,
            LAPTOP_EVALUATIONS,
            LAPTOP_SEEDS[corridor],
            LAPTOP_STOP_RETURN,
        )
    paper_steps = PAPER_SLOTS * max(800, corridor) * PAPER_EPOCHS
    budgets["paper"] = Budget(paper_steps, PAPER_SLOTS, evaluations=100, seeds=(0, 1, 2, 3, 4))
    return budgets


def _settings(horizon: int, tier: str, budget: Budget) -> dict[str, Any]:
    """agent.md 10.3: always the mode of the policy, little noise in the corridor, reward x 100, gamma 0.9999."""
    common = {
        "gamma": 0.9999,
        "reward_multiplier": 100.0,
        "sample_actions": False,
        "corridor_epsilon": 0.5 / horizon,
        "epsilon_start": (1.0, 0.01),
        "epsilon_end": (0.8, 0.01),
        "replay_trajectories": 5_000,
    }
    if tier == "paper":
        return {
            **common,
            "replay_tokens": 5_000 * (horizon + 1),  # all of the 5,000 rollouts
            "encoder_hidden": (128, 128),
            "encoder_width": 128,
            "width": 128,
            "layers": 2,
            "anneal_steps": 100_000,
            "warmup_updates": 6_000,
            "steps_per_iteration": budget.env_steps // (budget.num_envs * PAPER_EPOCHS),
            "updates_per_iteration": 600,
            "batch_sequences": 18 if horizon > 5_000 else 24,
        }
    return {
        **common,
        "steps_per_iteration": horizon,
        "updates_per_iteration": 16,
        "warmup_iterations": 1,
        "anneal_steps": 40 * horizon,
    }


def _task(corridor: int, active: bool) -> Task:
    horizon = corridor + (3 if active else 1)
    budgets = _budgets(corridor, horizon)
    where = "one step behind the start" if active else "at the start"
    return Task(
        id=f"long_term_memory/tmaze/{'active' if active else 'passive'}-{corridor}",
        description=f"T-Maze: remember a cue shown {where} over a corridor of {corridor} steps",
        make=partial(TMaze, corridor=corridor, active=active),
        horizon=horizon,
        random_return=random_return(corridor, active),
        high=1.0,
        high_source="oracle",
        budgets=budgets,
        settings={tier: _settings(horizon, tier, budget) for tier, budget in budgets.items()},
        solved_at=SOLVED_AT,
        sample_actions=False,
        instances=2,
        oracle=partial(follow_cue, first_action=LEFT if active else RIGHT),
    )


TASKS = tuple(_task(corridor, active) for active in (False, True) for corridor in CORRIDORS)
