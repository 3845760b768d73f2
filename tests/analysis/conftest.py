"""Synthetic result tables, written through the real store."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from benchmarks.catalog import tasks
from benchmarks.runs.plan import Plan
from results import schema
from results.store import TableWriter, run_folder, write_table

TMAZE = "long_term_memory/tmaze/passive-"


def write_run(
    root: Path,
    task: str,
    agent: str,
    seed: int,
    score: float,
    tier: str = "laptop",
    best: float | None = None,
    status: str | None = None,
    protocol: str = "abcd1234",
    config: str = "",
    updates: int = 10,
    success: float | None = 1.0,
    stream: str = "",
) -> None:
    """One run whose final return is `score`; NaN is a failed run. `best` is the return of an evaluation before.

    The success of an evaluation is `success` times its return, and undefined if that is None.
    """
    status = status or ("failed" if math.isnan(score) else "finished")
    keys = {
        "run_id": schema.run_id(tier, task, agent, seed),
        "protocol": protocol,
        "task": task,
        "agent": agent,
        "tier": tier,
        "seed": seed,
    }
    zeros = dict.fromkeys(["tokens", "collect_s", "learn_s", "evaluate_s", "peak_rss_mb"], 0)
    texts = dict.fromkeys(["message", "commit", "device", "attention", "dtype", "torch", "python"], "")
    run = schema.Run(
        **keys, **zeros, **texts, status=status, dirty=False, parameters=None, threads=1,
        updates=updates, config=config, env_steps=1000 + seed, wall_s=60.0 + seed, started="2025-01-01T00:00:00Z",
        stream=stream,
    )  # fmt: skip
    folder = run_folder(root, tier, task, agent, seed)
    if known := tasks().get(task):
        planned = tier if tier in known.budgets else "smoke"
        facts = Plan(known, agent, {}, planned, seed, 1, root).facts
        write_table(folder / "tasks.csv", "tasks", [replace(facts, tier=tier, protocol=protocol)])
    with TableWriter(folder / "runs.csv", "runs") as writer:
        writer.append(run)
    with TableWriter(folder / "curves.csv", "curves") as writer:
        evaluations = [(best, False)] if best is not None else []
        evaluations += [(score, True)] if status == "finished" and not math.isnan(score) else []
        for number, (value, final) in enumerate(evaluations):
            quartiles = dict.fromkeys(["return_mean", "return_median", "return_q1", "return_q3"], value)
            writer.append(
                schema.Curve(
                    **keys,
                    **quartiles,
                    split="same",
                    evaluation=number,
                    final=final,
                    env_steps=500 * (number + 1),
                    updates=number,
                    wall_s=1.0,
                    success_mean=None if success is None else success * max(0.0, value),
                    rollouts=100,
                )
            )


@pytest.fixture(autouse=True)
def only_the_runs_of_the_test(without_reference: None) -> None:
    pass


@pytest.fixture(name="write_run")
def write_run_fixture(tmp_path: Path) -> Callable[..., None]:
    """`write_run(task, agent, seed, score, ...)` under the test's results root."""
    return partial(write_run, tmp_path)


Scores = Mapping[tuple[int, str], Sequence[float]]


@pytest.fixture
def write_tmaze(tmp_path: Path) -> Callable[..., Path]:
    """Writes the runs of {(corridor, agent): final returns of seeds 0, 1, ...} and returns the results root."""

    def write(returns: Scores, **kwargs: object) -> Path:
        for (corridor, agent), values in returns.items():
            for seed, value in enumerate(values):
                write_run(tmp_path, f"{TMAZE}{corridor}", agent, seed, value, **kwargs)  # type: ignore[arg-type]
        return tmp_path

    return write
