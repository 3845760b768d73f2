"""Valid rows to start from, and a run folder made of them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from results import protocols, schema
from results.schema import Curve, Episode, Row, Run
from results.store import run_folder
from results.tablefile import TableWriter

RECORD = {
    "task": "long_term_memory/tmaze/passive-10",
    "horizon": 11,
    "time_limit": "finite",
    "split": "same",
    "evaluation": {"rollouts": 100},
    "packages": {"gymnasium": "1.2.0"},
}


def episode(**changes: Any) -> Episode:
    return Episode(**(_common(changes) | _evaluation() | EPISODE | changes))


def curve(**changes: Any) -> Curve:
    return Curve(**(_common(changes) | _evaluation() | CURVE | changes))


def run(**changes: Any) -> Run:
    return Run(**(_common(changes) | RUN | changes))


def _common(changes: dict[str, Any]) -> dict[str, Any]:
    keys = {"task": "long_term_memory/tmaze/passive-10", "agent": "amago", "tier": "laptop", "seed": 0}
    keys |= {name: changes[name] for name in keys if name in changes}
    return keys | {"run_id": schema.run_id(**keys), "protocol": protocols.protocol_id(RECORD)}


def _evaluation() -> dict[str, Any]:
    return {"split": "same", "evaluation": 3, "final": True, "env_steps": 20000, "updates": 400}


EPISODE = {
    "slot": 1,
    "rollout": 2,
    "episode": 0,
    "instance": "up",
    "episode_return": -0.1,
    "episode_length": 11,
    "success_any": True,
    "success_last": False,
    "finished": True,
}
CURVE = {
    "wall_s": 12.5,
    "return_mean": 0.1 + 0.2,  # 0.30000000000000004: needs all its digits
    "return_median": 1.0,
    "return_q1": 0.0,
    "return_q3": 1.0,
    "success_mean": None,
    "rollouts": 100,
}
RUN = {
    "status": "finished",
    "message": "",
    "commit": "0123abc",
    "dirty": False,
    "config": '{"lr":0.0003,"name":"a, \\"b\\""}',
    "env_steps": 20000,
    "updates": 400,
    "tokens": 440000,
    "parameters": None,
    "collect_s": 1.5,
    "learn_s": 8.25,
    "evaluate_s": 0.5,
    "wall_s": 10.75,
    "peak_rss_mb": 512.0,
    "device": "cpu",
    "attention": "sdpa",
    "dtype": "bfloat16",
    "threads": 1,
    "torch": "2.9.0",
    "python": "3.11.9",
    "started": "2026-01-02T03:04:05Z",
}


def write_rows(path: Path, table: str, *rows: Row) -> Path:
    with TableWriter(path, table) as writer:
        for row in rows:
            writer.append(row)
    return path


@pytest.fixture
def add_run(tmp_path: Path) -> Callable[..., Path]:
    """Writes a run folder under tmp_path: one training and one final evaluation of two rollouts."""

    def add(seed: int = 0, final_return: float = 1.0, **changes: Any) -> Path:
        row = run(seed=seed, **changes)
        same = {"seed": seed, "agent": row.agent}
        folder = run_folder(tmp_path, row.tier, row.task, row.agent, seed)
        write_rows(folder / "runs.csv", "runs", run(**same, status="running"), row)
        evaluations = [(0, False, 0.25), (1, True, final_return)]
        curves = [curve(**same, evaluation=e, final=f, return_mean=r) for e, f, r in evaluations]
        write_rows(folder / "curves.csv", "curves", *curves)
        episodes = [
            episode(**same, evaluation=e, final=f, rollout=n, episode_return=r)
            for e, f, r in evaluations
            for n in (1, 0)
        ]
        write_rows(folder / "episodes.csv", "episodes", *episodes)
        (folder / "protocol.json").write_text(json.dumps(RECORD))
        return folder

    return add


@pytest.fixture
def rows() -> dict[str, Callable[..., Any]]:
    """A maker of valid rows for each table that a run writes."""
    return {"episodes": episode, "curves": curve, "runs": run}


@pytest.fixture
def write() -> Callable[..., Path]:
    return write_rows


@pytest.fixture
def record() -> dict[str, Any]:
    return json.loads(json.dumps(RECORD))
