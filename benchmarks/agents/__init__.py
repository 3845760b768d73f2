"""All agents by id: built-in ones, `sb3:ALGORITHM`, `module:Class`, and those that installed packages register."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from amago_core.hyperparameters import as_text, replaced
from amago_core.names import did_you_mean
from benchmarks.agents.protocol import Agent, AgentSpec, ContractError
from benchmarks.imports import load_object
from benchmarks.task import Task
from results.errors import UserError

GROUP = "amago_bench.agents"
SIMPLE = {
    "random": "benchmarks.agents.random:Random",
    "oracle": "benchmarks.agents.oracle:Oracle",
    "scripted": "benchmarks.agents.oracle:Scripted",
}
#: Agents that share a class: the module of their `PRESETS` and `configure`, and the class, built with `preset=id`.
FAMILIES = {
    "benchmarks.agents.presets": "benchmarks.agents.amago:Amago",
    "benchmarks.agents.sb3_presets": "benchmarks.agents.sb3:Sb3",
}
ALGORITHM = "sb3:"  # `sb3:DQN` is an algorithm of stable-baselines3 or sb3-contrib by the name of its class


def agents() -> list[str]:
    """The ids of all agents, sorted, without the two forms that need no list, `sb3:ALGORITHM` and `module:Class`."""
    return sorted({*SIMPLE, *_presets(), *_announced()})


def parse_agent(text: str) -> tuple[str, dict[str, str]]:
    """`amago@lr=3e-4,batch=8` -> ("amago", {"lr": "3e-4", "batch": "8"}). Raises UserError for other forms."""
    base, mark, rest = text.partition("@")
    return base, parse_settings(_split(rest)) if mark else {}


def parse_settings(pairs: Iterable[str]) -> dict[str, str]:
    """["lr=3e-4", "batch=8"] as a mapping.

    A value that is a list, `discounts=(0.9,0.99)`, gets its short form, `0.9+0.99`. Raises UserError for a pair without
    "=" or a key given twice.
    """
    settings: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = (part.strip() for part in pair.partition("="))
        if value.startswith("(") and value.endswith(")"):
            value = "+".join(number.strip() for number in value[1:-1].removesuffix(",").split(",")) or "+"
        if not (key and equals and value) or set(value) & set(",@/"):
            example = "lr=3e-4, or discounts=0.9+0.99 for several numbers"
            raise UserError(f"setting {pair!r} is not of the form key=value; write for instance {example}")
        if key in settings:
            raise UserError(f"setting {key!r} is given twice")
        settings[key] = value
    return settings


def parse_grid(pairs: Iterable[str]) -> dict[str, list[str]]:
    """["lr=1e-4,3e-4", "batch=8"] as the values of each setting. Raises UserError as `parse_settings`."""
    grid: dict[str, list[str]] = {}
    for pair in pairs:
        key, _, values = pair.partition("=")
        for value in _split(values):
            ((name, parsed),) = parse_settings([f"{key}={value}"]).items()
            grid.setdefault(name, []).append(parsed)
    return grid


def _split(text: str) -> list[str]:
    """Splits at the commas outside brackets."""
    return re.split(r",(?![^(]*\))", text)


def agent_id(base: str, settings: Mapping[str, str]) -> str:
    """The id under which an agent with changed settings is stored; the order of the settings does not matter."""
    return f"{base}@{','.join(f'{key}={settings[key]}' for key in sorted(settings))}" if settings else base


def canonical(base: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The settings with each value written in one way, so that `lr=3e-4` and `lr=0.0003` are one agent.

    The texts of an agent that does not declare its settings are its own. Raises UserError as `hyperparameters`.
    """
    if not settings or base in SIMPLE:
        return dict(settings)
    check_agent(base)
    record = hyperparameters(base, None, "smoke", {})
    return {name: as_text(type(record), name, text) for name, text in settings.items()} if record else dict(settings)


def check_agent(base: str) -> None:
    """Raises UserError with the nearest names where no agent has this id; a `module:Class` is not imported yet."""
    module, colon, name = base.partition(":")
    if colon and not (module and name):
        raise UserError(f"agent {base!r} is not of the form module:Class")
    if base in SIMPLE or colon:
        return
    known = agents()
    if base not in known:
        others = "sb3:ALGORITHM or module:Class"
        hint = did_you_mean(base, known, f"known: {', '.join(known)}, {others}")
        raise UserError(f"unknown agent {base!r}; {hint}")


def configuration(base: str, task: Task, tier: str, settings: Mapping[str, str]) -> dict[str, Any]:
    """All hyper-parameters of an agent, settings applied; empty for one that declares none. Raises as below."""
    record = hyperparameters(base, task, tier, settings)
    return {} if record is None else asdict(record)


def hyperparameters(base: str, task: Task | None, tier: str, settings: Mapping[str, str]) -> Any:
    """The agent's settings as a dataclass, with `settings` applied; None for an agent that declares none.

    Without a task they are those that no task has changed. Imports an agent that is not built in.

    Raises:
        UserError: a setting that does not exist or has a value of the wrong type; an agent that cannot be imported.
    """
    if base in SIMPLE:
        if settings:
            raise UserError(f"agent {base} has no hyper-parameters; leave {', '.join(sorted(settings))} out")
        return None
    try:
        if module := _configured_by(base):
            return importlib.import_module(module).configure(base, task, tier, settings)
        defaults = _declared(base)
        return None if defaults is None else replaced(defaults, settings)
    except ValueError as error:
        raise UserError(f"agent {base}: {error}") from None


def _configured_by(base: str) -> str | None:
    return "benchmarks.agents.sb3_algorithms" if base.startswith(ALGORITHM) else _presets().get(base)


def _declared(base: str) -> Any:
    """The defaults of the dataclass that an agent from outside may have as its attribute `Settings`."""
    declared = getattr(_factory(base), "Settings", None)
    if declared is None:
        return None
    try:
        defaults = declared()
        json.dumps(asdict(defaults))  # they are stored with each run
    except TypeError as error:
        wanted = "a dataclass in which every field has a default that JSON can hold"
        raise ContractError(f"agent {base}: its Settings must be {wanted} ({error})") from None
    return defaults


def plays(base: str, task: Task) -> bool:
    """Whether the agent can play the task at all: only some tasks have an `oracle` or a `scripted` policy."""
    return base not in ("oracle", "scripted") or getattr(task, base) is not None


def make_agent(base: str, spec: AgentSpec) -> Agent:
    """Build an agent. Raises UserError where it cannot be imported, ContractError where it breaks the contract."""
    check_agent(base)
    factory = _factory(base)
    if getattr(factory, "Settings", None) is not None:
        spec = replace(spec, settings=hyperparameters(base, spec.task, spec.tier, spec.settings))
    try:
        inspect.signature(factory).bind(spec)
    except TypeError as error:
        raise ContractError(
            f"agent {base}{_defined(factory)}: it cannot be built from a spec alone ({error}); "
            "write __init__(self, spec)"
        ) from None
    agent: Agent = factory(spec)
    for method in ("learn", "act", "save", "load"):
        if not callable(getattr(agent, method, None)):
            raise ContractError(f"agent {base}: it has no method {method}(); see benchmarks/agents/protocol.py")
    return agent


def _factory(base: str) -> Callable[[AgentSpec], Any]:
    if base in SIMPLE:
        return load_object(SIMPLE[base], "agent")
    if base.startswith(ALGORITHM):
        sb3 = importlib.import_module("benchmarks.agents.sb3").Sb3
        return lambda spec: sb3(spec, preset=base)
    if base in _presets():
        module, _, name = FAMILIES[_presets()[base]].partition(":")
        family = getattr(importlib.import_module(module), name)
        return lambda spec: family(spec, preset=base)
    if ":" in base:
        return load_object(base, "agent")
    point = _announced()[base]
    return load_object(f"{point.module}:{point.attr}", "agent")


def _defined(factory: Any) -> str:
    try:
        return f" ({inspect.getsourcefile(factory)}, line {inspect.getsourcelines(factory)[1]})"
    except (TypeError, OSError):  # not a class or function, or one without a source file
        return ""


def _presets() -> dict[str, str]:
    """Agent id -> the module with its hyper-parameters. None of these modules imports what the agent itself needs."""
    return {base: module for module in FAMILIES for base in importlib.import_module(module).PRESETS}


def _announced() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}
