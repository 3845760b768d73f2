"""AMAGO's hyper-parameters per suite and tier: one set per domain, found on tuning seeds (1000 and up)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.cores import fast_dtype
from benchmarks.long_term_memory.tmaze import PAPER_EPOCHS
from benchmarks.task import Task

Settings = Mapping[str, Any]


def settings_of(task: Task, tier: str) -> dict[str, Any]:
    """Fields of `amago_core.config.Config` that differ from its defaults.

    A suite without settings of its own gets the small defaults of the tier, and the paper's at tier `paper`.
    """
    suite = task.id.rsplit("/", 1)[0]
    # Both types learn alike (docs/performance.md), so the type is a matter of speed. On a GPU, where the paper tier
    # runs, it is float32 until tests/gpu/check.sh has passed on one; then "dtype": "bfloat16" goes into the empty base.
    base: Settings = {} if tier == "paper" else {**SMALL, "dtype": fast_dtype()}
    hidden_time = {"positions": "rotary"} if task.time_limit == "artificial" else {}
    return {**base, **hidden_time, **(SUITES[suite](task, tier) if suite in SUITES else {})}


#: Sizes for two cores; what the smoke and laptop tiers have in common.
SMALL: Settings = {
    "encoder_hidden": (128, 128),
    "encoder_width": 64,
    "width": 64,
    "layers": 2,
    "heads": 2,  # few wide heads: on a CPU the cost of attention grows with their number
    "actor_critic_hidden": (128, 128),
    "discounts": (0.9, 0.97, 0.99),
    "warmup_updates": 100,
    "lr": 5e-4,
    "steps_per_iteration": 16,
    "updates_per_iteration": 8,
    "anneal_steps": 2_000,
    "replay_trajectories": 5_000,
    "replay_tokens": 1_000_000,
    "device": "cpu",
}


def tmaze(task: Task, tier: str) -> Settings:
    """agent.md 10.3: always the mode of the policy, little noise in the corridor, reward x 100, gamma 0.9999."""
    common = {
        "gamma": 0.9999,
        "reward_multiplier": 100.0,
        "sample_actions": False,
        "corridor_epsilon": 0.5 / task.horizon,
        "epsilon_start": (1.0, 0.01),
        "epsilon_end": (0.8, 0.01),
        "replay_trajectories": 5_000,
    }
    if tier == "paper":
        budget = task.budget(tier)
        return {
            **common,
            "replay_tokens": 5_000 * (task.horizon + 1),  # all of the 5,000 rollouts
            "encoder_hidden": (128, 128),
            "encoder_width": 128,
            "width": 128,
            "layers": 2,
            "anneal_steps": 100_000,
            "warmup_updates": 6_000,
            "steps_per_iteration": budget.env_steps // (budget.num_envs * PAPER_EPOCHS),
            "updates_per_iteration": 600,
            "batch_sequences": 18 if task.horizon > 5_000 else 24,
        }
    return {
        **common,
        "steps_per_iteration": task.horizon,
        "updates_per_iteration": 16,
        "warmup_iterations": 1,
        "anneal_steps": 40 * task.horizon,
    }


def popgym(task: Task, tier: str) -> Settings:
    """agent.md 10.4: reward x 100; exploration falls over the 10,000 steps of the paper's wrapper."""
    assert task.time_scale is not None
    elapsed = task.horizon / task.time_scale  # share of the schedule's rollout that has passed when ours ends
    common = {
        "reward_multiplier": 100.0,
        "epsilon_start": (1.0, 0.05),
        "epsilon_end": (1.0 - 0.2 * elapsed, 0.05 - 0.04 * elapsed),
        "replay_trajectories": 80_000,
    }
    if tier == "paper":
        return {
            **common,
            "replay_tokens": 80_000 * (task.horizon + 1),  # all of the 80,000 rollouts
            "context": 2000,
            "encoder_width": 200,
            "tau": 0.0025,
        }
    return {
        **common,
        "updates_per_iteration": task.budget(tier).num_envs // 4,  # one per 64 steps
        "batch_tokens": 2_500,  # 24 rollouts of 103 steps; with longer ones an update would cost several times as much
        "replay_sampling": "transition",  # as likely in a short rollout as in one that is cut (agent.md 8.2)
    }


SUITES: Mapping[str, Callable[[Task, str], Settings]] = {
    "long_term_memory/tmaze": tmaze,
    "long_term_memory/popgym": popgym,
}
