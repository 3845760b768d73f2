"""All agents by id: the built-in ones, `module:Class`, and those that installed packages announce."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from benchmarks.agents.protocol import Agent, AgentSpec, ContractError
from benchmarks.imports import look_here
from benchmarks.task import Task
from results.errors import UserError

GROUP = "amago_bench.agents"
SIMPLE = {"random": "benchmarks.agents.random:Random", "oracle": "benchmarks.agents.oracle:Oracle"}


def agents() -> list[str]:
    """The ids of all agents, sorted. `module:Class` needs no id."""
    return sorted({*SIMPLE, *_presets(), *_announced()})


def parse_agent(text: str) -> tuple[str, dict[str, str]]:
    """`amago@lr=3e-4,batch=8` -> ("amago", {"lr": "3e-4", "batch": "8"}). Raises UserError for other forms."""
    base, mark, rest = text.partition("@")
    return base, parse_settings(rest.split(",")) if mark else {}


def parse_settings(pairs: list[str] | tuple[str, ...]) -> dict[str, str]:
    """["lr=3e-4", "batch=8"] as a mapping. Raises UserError for a pair without "=" or a key given twice."""
    settings: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not (key and equals and value) or set(value) & set(",@/"):
            raise UserError(f"setting {pair!r} is not of the form key=value; write for instance lr=3e-4")
        if key in settings:
            raise UserError(f"setting {key!r} is given twice")
        settings[key] = value
    return settings


def agent_id(base: str, settings: Mapping[str, str]) -> str:
    """The id under which an agent with changed settings is stored; the order of the settings does not matter."""
    return f"{base}@{','.join(f'{key}={settings[key]}' for key in sorted(settings))}" if settings else base


def check_agent(base: str) -> None:
    """Raises UserError with the nearest names where no agent has this id."""
    if base in SIMPLE or ":" in base:
        return
    known = agents()
    if base not in known:
        near = difflib.get_close_matches(base, known, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}, or module:Class"
        raise UserError(f"unknown agent {base!r}; {hint}")


def configuration(base: str, task: Task, tier: str, settings: Mapping[str, str]) -> dict[str, Any]:
    """All hyper-parameters of an agent of this project, settings applied; of any other agent nothing is known.

    Raises UserError for a setting that does not exist or has a value of the wrong type.
    """
    if base not in _presets():
        return {}
    return asdict(importlib.import_module("benchmarks.agents.presets").configure(base, task, tier, settings))


def make_agent(base: str, spec: AgentSpec) -> Agent:
    """Build an agent. Raises UserError where it cannot be found, ContractError where it lacks a method."""
    check_agent(base)
    agent: Agent = _factory(base)(spec)
    for method in ("learn", "act", "save", "load"):
        if not callable(getattr(agent, method, None)):
            raise ContractError(f"agent {base}: it has no method {method}(); see benchmarks/agents/protocol.py")
    return agent


def _factory(base: str) -> Callable[[AgentSpec], Any]:
    if base in SIMPLE:
        return _import(SIMPLE[base])
    if base in _presets():
        amago = importlib.import_module("benchmarks.agents.amago")
        return lambda spec: amago.Amago(spec, preset=base)
    if ":" in base:
        return _import(base)
    point = _announced()[base]
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        raise UserError(f"agent {base!r} is announced as {point.value}, which fails to import: {error}") from error


def _import(path: str) -> Callable[[AgentSpec], Any]:
    module, _, name = path.partition(":")
    look_here()
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise UserError(f"agent {path!r}: {error}; is it installed, or in this folder?") from error
    except AttributeError:
        raise UserError(f"agent {path!r}: module {module} has no {name!r}") from None


def _presets() -> tuple[str, ...]:
    return tuple(importlib.import_module("benchmarks.agents.presets").PRESETS)


def _announced() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}
