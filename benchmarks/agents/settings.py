"""Settings: those of AMAGO per task and tier, and the texts that an agent of one's own is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from amago_core.names import did_you_mean
from benchmarks.places.cores import fast_dtype
from benchmarks.task import Task
from results.errors import UserError

Settings = Mapping[str, Any]


def settings_of(task: Task, tier: str) -> dict[str, Any]:
    """Fields of `amago_core.config.Config` that differ from its defaults.

    A task without settings of its own gets the small defaults of the tier, and the paper's at tier `paper`. Those of
    this repository were found on tuning seeds (1000 and up).
    """
    # Both types learn alike (docs/performance.md), so the type is a matter of speed. On a GPU, where the paper tier
    # runs, it is float32 until tests/gpu/check.sh has passed on one; then "dtype": "bfloat16" goes into the empty base.
    base: Settings = {} if tier == "paper" else {**SMALL, "dtype": fast_dtype()}
    hidden_time = {"positions": "rotary"} if task.time_limit == "artificial" else {}
    return {**base, **hidden_time, **task.settings.get(tier, {})}


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


class Given(Mapping[str, str]):
    """The settings of the command line as an agent gets them; remembers which ones it has asked for."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)
        self._asked: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self._asked.add(name)
        return self._settings[name]

    def __iter__(self) -> Iterator[str]:
        self._asked.update(self._settings)  # whoever goes through all of them reads all of them
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def __repr__(self) -> str:
        return repr(self._settings)

    def refuse_unread(self, agent: str) -> None:
        """Raises UserError for a setting that the agent has not asked for, with the nearest of those that it has."""
        if unread := sorted(self._settings.keys() - self._asked):
            known = sorted(self._asked)
            hint = did_you_mean(unread[0], known, f"it reads {', '.join(known) or 'none'}")
            raise UserError(f"agent {agent} never reads the setting '{unread[0]}'; {hint}")
