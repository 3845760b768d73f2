"""Settings of AMAGO that have been renamed, and how what was stored under their old names is read.

Nothing stored is rewritten: tables, config.json and run folders keep their names, and readers translate. So a finished
run stays finished, and a stopped one can be resumed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from results.schema import Row, RunRow, run_id

#: Old name -> new name. Only the name tells which it is, so a retired name must never return with another meaning.
RENAMED: Mapping[str, str] = {
    "target_rate": "tau",
    "middle_epsilon": "corridor_epsilon",
    "edges": "corridor_ends",
    "head_hidden": "actor_critic_hidden",
    "head_activation": "actor_critic_activation",
}


def current_agent(agent: str) -> str:
    """The id of a stored agent as it would be today: `amago@target_rate=0.005` is `amago@tau=0.005`.

    Agents other than `amago` and `amago-...` are left alone: their settings are their own.
    """
    base, mark, settings = agent.partition("@")
    if not mark or not _is_amago(agent):
        return agent
    pairs = [pair.partition("=") for pair in settings.split(",")]
    renamed = sorted((RENAMED.get(name, name), value) for name, _, value in pairs)
    return f"{base}@{','.join(f'{name}={value}' for name, value in renamed)}"


def current_identity(identity: Mapping[str, Any]) -> dict[str, Any]:
    """The identity of a run in config.json or a checkpoint, as it would be written today.

    Anything malformed is returned unchanged, since whoever reads it has an error for it.
    """
    agent = identity.get("agent")
    if not isinstance(agent, str) or not _is_amago(agent):
        return dict(identity)
    current = _current_config(identity) | {"agent": current_agent(agent)}
    if all(name in identity for name in ("run_id", "tier", "task", "seed")):
        current["run_id"] = run_id(identity["tier"], identity["task"], current["agent"], identity["seed"])
    return current


def current_row(row: Row) -> Row:
    """A row of a table, with agent, run id and configuration as they would be written today."""
    if not isinstance(row, RunRow) or not _is_amago(row.agent):
        return row
    changes: dict[str, Any] = {}
    if (agent := current_agent(row.agent)) != row.agent:
        changes = {"agent": agent, "run_id": run_id(row.tier, row.task, agent, row.seed)}
    config = getattr(row, "config", "")
    if any(f'"{old}"' in config for old in RENAMED):
        changes["config"] = _current_json(config)
    return replace(row, **changes) if changes else row


def _is_amago(agent: str) -> bool:
    return agent.partition("@")[0] == "amago" or agent.startswith("amago-")


def _current_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings are stored twice: all hyper-parameters, and the settings that were given."""
    parts = {key: config[key] for key in ("hyperparameters", "settings") if isinstance(config.get(key), dict)}
    renamed = {key: {RENAMED.get(name, name): value for name, value in part.items()} for key, part in parts.items()}
    return {**config, **renamed}


def _current_json(config: str) -> str:
    try:
        parsed = json.loads(config)
    except ValueError:  # another program wrote it
        return config
    if not isinstance(parsed, dict):
        return config
    return json.dumps(_current_config(parsed), sort_keys=True, separators=(",", ":"))
