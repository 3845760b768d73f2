"""Tasks x agents x settings x seeds as jobs, and which of them are still to be made."""

from __future__ import annotations

import dataclasses
import itertools
import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.agents import agent_id, check_agent, configuration, parse_agent, parse_settings, plays
from benchmarks.catalog import match
from benchmarks.runs.budget import agent_settings, with_overrides
from benchmarks.runs.checkpoint import differences
from benchmarks.runs.job import Job
from benchmarks.runs.plan import plan
from benchmarks.task import Task
from results.errors import UserError
from results.schema import Run
from results.store import load


def grid(
    tasks: Iterable[str],
    agents: Iterable[str],
    tier: str = "smoke",
    seeds: int | Sequence[int] | None = None,
    settings: Mapping[str, Sequence[object]] | None = None,
    *,
    say: Callable[[str], object] = print,
    **options: Any,
) -> list[Job]:
    """All runs of tasks x seeds x agents x settings, each once.

    Leaves out the tasks of a pattern without a budget at the tier, and `oracle` and `scripted` on tasks without such a
    policy; `say` gets a line on each kind.

    Args:
        tasks: ids or shell patterns.
        agents: ids; settings in an id hold for all of its runs, unless `settings` has the same key.
        tier: of all runs.
        seeds: these; a number N means 0 to N-1; None: those of the task's tier.
        settings: the values of each setting, numbers or tuples or texts as in `--set`; every combination makes an agent
            of its own, `amago@lr=3e-4`.
        options: other fields of `Job`.

    Raises:
        UserError: a name or a setting is wrong, or nothing is left.
    """
    bases = [parse_agent(agent) for agent in agents]
    for base, _ in bases:
        check_agent(base)
    chosen = {task.id: task for pattern in tasks for task in _playable(pattern, tier, say)}
    pairs = [[f"{key}={value}" for value in values] for key, values in (settings or {}).items()]
    combined = [parse_settings(each) for each in itertools.product(*pairs)]
    variants = [(base, {**own, **changed}) for base, own in bases for changed in combined]
    for task in chosen.values():
        for base, changed in variants:
            with_overrides(task.budget(tier), changed)
            configuration(base, task, tier, agent_settings(changed))  # report a wrong setting once, not in each run
    if without := [f"{base} on {task.id}" for task in chosen.values() for base, _ in bases if not plays(base, task)]:
        say(f"left out, without such a policy: {shortened(without)}")
    first = range(seeds) if isinstance(seeds, int) else seeds
    jobs = [
        Job(task.id, agent_id(base, changed), tier, seed, **options)
        for task in chosen.values()
        for seed in (task.budget(tier).seeds if first is None else first)
        for base, changed in variants
        if plays(base, task)
    ]
    if not jobs:
        raise UserError("there is no run to make; choose another agent or task")
    return list(dict.fromkeys(jobs))


def _playable(pattern: str, tier: str, say: Callable[[str], object]) -> list[Task]:
    """The tasks of a pattern that have a budget at the tier. Raises UserError if none has."""
    matched = match(pattern)
    playable = [task for task in matched if tier in task.budgets]
    if not playable:
        matched[0].budget(tier)
    if without := [task.id for task in matched if tier not in task.budgets]:
        say(f"left out, without a budget at the tier {tier}: {shortened(without)}")
    return playable


def shortened(names: Sequence[str], limit: int = 3) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def missing(jobs: Iterable[Job], root: Path, replace: bool = False) -> list[Job]:
    """The jobs that are not yet finished, either in the run folders under `root` or in the reference results.

    With `replace`, a run made with another configuration or protocol than its job would have now is run again. Without
    it, such a run in a run folder raises UserError; one in the reference counts as finished, because it is what is
    committed, and a warning says how many there are.
    """
    jobs = list(dict.fromkeys(jobs))
    tiers = sorted({job.tier for job in jobs})
    local = {row.run_id: row for tier in tiers for row in load("runs", root, ("runs",), tier)}
    reference = {row.run_id: row for tier in tiers for row in load("runs", root, ("reference",), tier)}
    todo: list[Job] = []
    refused: list[tuple[str, str]] = []  # with what has changed
    stale: list[tuple[str, str]] = []
    for job in jobs:
        row = local.get(job.run_id) or reference.get(job.run_id)
        changed = _changed(job, row) if row else ""
        if changed and replace:
            todo.append(dataclasses.replace(job, replace=True))
        elif changed:
            (refused if job.run_id in local else stale).append((job.run_id, changed))
        elif row is None or row.status != "finished":
            todo.append(job)
    if refused:
        (run, changed), *others = refused
        more = f" (and {len(others)} more runs like it)" if others else ""
        hint = "give --replace to run it again, or another folder with --results"
        raise UserError(f"{run} was made with another {changed}{more}; {hint}")
    if stale:
        what = f"{len(stale)} of the reference runs were made with another configuration and count as finished"
        (run, changed), *_ = stale
        warnings.warn(f"{what} ({run}: {changed}); --replace runs them again", stacklevel=2)
    return todo


def _changed(job: Job, row: Run) -> str:
    """The keys in which a run differs from what the job would make now.

    A finished run may have used another number of threads, which changes at most rounding; an unfinished one cannot
    resume with another.
    """
    now = plan(job.task, job.agent, job.tier, job.seed, threads=job.threads).identity
    names = {key: now[key] for key in ("run_id", "task", "agent", "tier", "seed")}
    threads = {"threads": now["threads"]} if row.status == "finished" else {}
    return differences(names | {"protocol": row.protocol} | json.loads(row.config) | threads, now)
