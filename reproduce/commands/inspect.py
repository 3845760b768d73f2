"""Commands that look: list, status."""

from __future__ import annotations

import contextlib
import json
import math
import textwrap
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reproduce import options
from reproduce.text import aligned, duration

if TYPE_CHECKING:
    from results.schema import Run


@click.command("list")
@click.argument("pattern", default="*")
@options.wide
def list_(pattern: str, wide: bool) -> None:
    """List the tasks, with the returns that normalise their scores, and the agents.

    PATTERN is a shell pattern for task ids.

    \b
    amago-bench list
    amago-bench list 'long_term_memory/*'
    """
    from benchmarks.agents import agents
    from benchmarks.catalog import match

    head = ["task", "random", "high", "horizon", "tiers", *(["high from"] if wide else [])]
    rows = [
        (t.id, _number(t.random_return), _number(t.high), t.horizon, " ".join(t.budgets), t.high_source)[: len(head)]
        for t in match(pattern)
    ]
    click.echo(aligned(head, rows))
    names = f"agents: {', '.join(agents())}, sb3:ALGORITHM, module:Class"
    click.echo("\n" + textwrap.fill(names, 118, subsequent_indent="  ", break_on_hyphens=False))


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


@click.command()
@options.tasks(required=False)
@options.tier(default=None)
@options.results
def status(patterns: tuple[str, ...], tier: str | None, root: Path | None) -> None:
    """Show the runs of the results folder, and those that a figure still needs.

    Missing runs are listed only for tiers that have any runs. A run is `queued` while a sweep is going to make it, and
    `lost` if its process is gone: the same command resumes it. `reference` is a run that was not made here: tables and
    figures take it from the committed reference, `sweep` and `reproduce` make it. `older` marks runs of another commit.

    \b
    amago-bench status --tier laptop
    amago-bench status --task 'long_term_memory/tmaze/*'
    """
    from analysis.figures import FIGURES
    from benchmarks.places.queue import queued
    from benchmarks.runs.owner import is_owned
    from benchmarks.runs.record import git_state
    from reproduce.pipeline import jobs
    from results.store import load, results_root, run_folder

    root = root or results_root()
    rows = [row for row in load("runs", root, ("reference", "runs"), tier) if _wanted(row.task, patterns)]
    committed = {row.run_id for row in load("runs", root, ("committed",), tier)}
    waiting = {
        job.run_id: job for job in queued(root) if tier in (None, job.tier) and _wanted(job.task, patterns)
    }  # fmt: skip

    def absent(run_id: str) -> str:
        return "queued" if run_id in waiting else "reference" if run_id in committed else "missing"

    tiers = [tier] if tier else sorted({row.tier for row in rows})
    known = {row.run_id for row in rows}
    needed = [job.run_id for name in tiers for job in jobs(FIGURES, name) if _wanted(job.task, patterns)]

    def standing(row: Run) -> str:
        if row.run_id in waiting:
            return "queued"
        folder = run_folder(root, row.tier, row.task, row.agent, row.seed)
        return "lost" if row.status == "running" and not is_owned(folder) else row.status

    commit, _ = git_state()
    table: list[tuple[object, ...]] = [
        (
            row.run_id, standing(row), *_reached(row, root), row.started,
            "older" if commit and row.commit != commit else None, row.message or None,
        )
        for row in rows
    ] + [
        (run_id, absent(run_id), None, None, None, None, None)
        for run_id in dict.fromkeys([*waiting, *needed]) if run_id not in known
    ]  # fmt: skip
    if not table:
        click.echo(f"no runs yet under {root}; `amago-bench run --help` shows how to make one")
        return
    click.echo(aligned(("run", "status", "env steps", "wall", "started", "code", "message"), table))
    counts = {word: sum(line[1] == word for line in table) for word in dict.fromkeys(str(line[1]) for line in table)}
    click.echo("\n" + ", ".join(f"{count} {word}" for word, count in counts.items()))


def _reached(row: Run, root: Path) -> tuple[int, str]:
    """Steps and wall time; of a run without a last row, as of its last report."""
    from results.store import run_folder

    steps, wall_s = row.env_steps, row.wall_s
    if row.status == "running":
        folder = run_folder(root, row.tier, row.task, row.agent, row.seed)
        with contextlib.suppress(OSError, ValueError, KeyError):  # it has reported nothing yet
            progress = json.loads((folder / "progress.json").read_bytes())
            steps, wall_s = progress["env_steps"], progress["wall_s"]
    return steps, duration(wall_s)


def _wanted(task: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(fnmatchcase(task, pattern) for pattern in patterns)


COMMANDS = (list_, status)
