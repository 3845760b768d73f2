"""What an agent says about itself and its training, checked before it gets into a table."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from benchmarks.agents.protocol import Agent, ContractError, Progress


def description(agent: Agent) -> dict[str, Any]:
    """What the agent's `describe()` returns, in Python's own types; empty without one. Raises ContractError."""
    if not hasattr(agent, "describe"):
        return {}
    described = agent.describe()
    if not isinstance(described, Mapping):
        raise ContractError(f"describe() must return a mapping, it returned {type(described).__name__}")
    known = {name: str(described[name]) for name in ("device", "attention", "dtype") if name in described}
    parameters = described.get("parameters")
    return known | ({} if parameters is None else {"parameters": _whole(parameters, "describe()['parameters']")})


def plain(progress: Progress) -> Progress:
    """The report in Python's own types; NumPy's scalars are numbers too. Raises ContractError for what is none."""
    if not isinstance(progress.metrics, Mapping):
        raise ContractError(f"Progress.metrics must be a mapping, it is {_kind(progress.metrics)}")
    return Progress(
        updates=_whole(progress.updates, "Progress.updates"),
        tokens=_whole(progress.tokens, "Progress.tokens"),
        collect_s=_real(progress.collect_s, "Progress.collect_s"),
        learn_s=_real(progress.learn_s, "Progress.learn_s"),
        metrics={str(name): _real(value, f"Progress.metrics[{name!r}]") for name, value in progress.metrics.items()},
        checkpoint=bool(progress.checkpoint),
        skipped=_whole(progress.skipped, "Progress.skipped"),
    )


def _whole(value: object, what: str) -> int:
    if not isinstance(value, Integral):
        raise ContractError(f"{what} must be a whole number, it is {_kind(value)}")
    return int(value)


def _real(value: object, what: str) -> float:
    if not isinstance(value, Real):
        hint = "; give value.item()" if hasattr(value, "item") else ""
        raise ContractError(f"{what} must be a number, it is {_kind(value)}{hint}")
    return float(value)


def _kind(value: object) -> str:
    return f"of type {type(value).__name__}"
