"""A budget of one's own: settings that change the tier's for one run.

They are part of the agent's id, `amago@steps=20000`: such a run never shares a cell with those of the tier's own
budget, and no claim is judged by it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from benchmarks.agents import canonical
from benchmarks.task import Budget
from results.errors import UserError

#: Setting -> field of `Budget`.
OVERRIDES = {"steps": "env_steps", "num_envs": "num_envs", "evaluations": "evaluations"}


def agent_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that are the agent's."""
    return {name: value for name, value in settings.items() if name not in OVERRIDES}


def canonical_settings(base: str, settings: Mapping[str, str]) -> dict[str, str]:
    """All settings of a run, each value written in one way; raises UserError as `agents.canonical`."""
    own = canonical(base, agent_settings(settings))
    return {name: own.get(name) or str(_number(name, value)) for name, value in settings.items()}


def with_overrides(budget: Budget, settings: Mapping[str, str]) -> Budget:
    """The budget, changed by those settings that are not the agent's. Raises UserError unless they are from 1 on."""
    changes: dict[str, Any] = {
        OVERRIDES[name]: _number(name, value) for name, value in settings.items() if name in OVERRIDES
    }
    return dataclasses.replace(budget, **changes) if changes else budget


def _number(name: str, value: str) -> int:
    if not (value.isascii() and value.isdecimal() and int(value) >= 1):
        raise UserError(f"{name} is {value!r}; it must be a whole number from 1 on")
    return int(value)
