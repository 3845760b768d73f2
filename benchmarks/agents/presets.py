"""AMAGO and its ablations as data. Imports no torch, so a command can list and check them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amago_core.config import Config
from benchmarks.agents.settings import settings_of
from benchmarks.task import Task
from results.renames import RENAMED

_PLAIN_TRANSFORMER = {"sigma_reparam": False, "normformer": False, "head_scaling": False}

#: Agent id -> what it changes in the settings of the task.
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "amago": {},
    "amago-gru": {"sequence_model": "gru"},
    "amago-memoryless": {"sequence_model": "memoryless"},
    # The naive off-policy Transformer of the paper's POPGym summary (agent.md 10.2).
    "amago-naive": {
        **_PLAIN_TRANSFORMER,
        "sequence_activation": "gelu",
        "actor_critic_activation": "relu",
        "encoder_activation": "relu",
        "critics": 2,
        "gamma": 0.99,
        "discounts": (),
    },
    "amago-no-multigamma": {"discounts": ()},
    "amago-vanilla-transformer": _PLAIN_TRANSFORMER,
    "amago-relu": {"sequence_activation": "relu", "actor_critic_activation": "relu", "encoder_activation": "relu"},
    "amago-two-critics": {"critics": 2},
    "amago-no-filtered-bc": {"offline_weight": 0.0},
}


def configure(preset: str, task: Task | None, tier: str, settings: Mapping[str, str]) -> Config:
    """The hyper-parameters of a run: the task's at the tier, then the preset's, then `settings` (`--set`).

    Raises:
        ValueError: a setting that does not exist, has the wrong type or is given by an old name.
    """
    for name in settings:
        if name in RENAMED:
            raise ValueError(f"the setting {name} is now called {RENAMED[name]}")
    base = Config(**settings_of(task, tier)) if task else Config()
    return base.replace(PRESETS[preset]).replace(settings)
