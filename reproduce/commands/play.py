"""Commands that play: run, sweep, evaluate."""

from __future__ import annotations

import difflib
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reproduce import options
from reproduce.text import shortened
from results.errors import UserError

if TYPE_CHECKING:
    from benchmarks.sweep import Job
    from benchmarks.task import Task


@click.command()
@click.option("--task", metavar="TASK", help="Task id, see `amago-bench list`.")
@click.option("--env", "env_id", metavar="ID", help="A gymnasium environment instead: Id-v0 or module:Id-v0.")
@click.option("--agent", default="amago", show_default=True, help="Agent id, or my_module:MyAgent.")
@options.tier()
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a hyper-parameter; repeatable.")
@click.option("--replace", is_flag=True, help="Discard a run with the same id and start over.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--tensorboard/--no-tensorboard", default=True, help="Mirror the curves to TensorBoard.  [default: yes]")
@click.option("--wandb", is_flag=True, help="Also log to Weights & Biases (WANDB_MODE=offline works).")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
@options.results
def run(
    task: str | None, env_id: str | None, agent: str, tier: str, seed: int, settings: tuple[str, ...],
    replace: bool, threads: int, tensorboard: bool, wandb: bool, quiet: bool, root: Path | None,
) -> None:  # fmt: skip
    """Train an agent on a task, evaluate it, write its rows.

    An environment given by --env runs in a worker process, so that it cannot crash the run. AMAGO_BENCH_WORKERS sets
    how many (0: it runs in this process, which is faster), AMAGO_BENCH_ENV_TIMEOUT how many seconds a step may take
    (60).

    \b
    amago-bench run --task long_term_memory/tmaze/passive-10 --agent amago
    amago-bench run --task long_term_memory/tmaze/passive-10 --set lr=3e-4 --seed 1
    amago-bench run --env CartPole-v1 --agent my_module:MyAgent
    """
    if bool(task) == bool(env_id):
        raise click.UsageError("give either --task or --env; `amago-bench list` shows the tasks")
    from benchmarks.agents import parse_settings
    from benchmarks.heap import keep_freed_memory
    from benchmarks.plan import plan
    from benchmarks.run import run as make

    def say(line: str) -> None:
        if not quiet:
            click.echo(line)

    keep_freed_memory()
    name = task or f"foreign/gymnasium/{env_id}"
    planned = plan(name, agent, tier, seed, parse_settings(settings), root=root, threads=threads)
    folder = make(planned, replace=replace, tensorboard=tensorboard, wandb=wandb, say=say)
    say(f"rows in {folder}")


@click.command()
@options.tasks()
@options.agents
@options.tier()
@click.option("--seeds", type=options.Seeds(), default=None, help="Such as 0-4 or 0,1.  [default: those of the tier]")
@options.replace
@options.workers
@options.results
def sweep(
    patterns: tuple[str, ...], agent_ids: tuple[str, ...], tier: str, seeds: tuple[int, ...] | None,
    replace: bool, workers: int | None, root: Path | None,
) -> None:  # fmt: skip
    """Make many runs, several at once.

    Makes all of tasks x agents x seeds that are not finished yet, each with one process and one thread. Skips tasks of
    a pattern without a budget at the tier, and `oracle` and `scripted` on tasks without such a policy. A run that fails
    does not stop the others. To continue after Ctrl-C, repeat the command: finished runs stay finished, with --replace
    only those of the present configuration. If runs failed, lists them and exits with 1.

    \b
    amago-bench sweep --task 'long_term_memory/tmaze/passive-*' --agent amago --agent amago-gru --tier laptop
    amago-bench sweep --task long_term_memory/tmaze/passive-10 --agent amago --seeds 0-4 --workers 2
    """
    from benchmarks.agents import agent_id, check_agent, configuration, parse_agent, plays
    from benchmarks.sweep import Job
    from results.store import results_root

    bases = [parse_agent(text) for text in agent_ids]
    for base, _ in bases:
        check_agent(base)
    tasks = {task.id: task for pattern in patterns for task in _playable(pattern, tier)}
    for task in tasks.values():
        for base, settings in bases:
            configuration(base, task, tier, settings)  # report a wrong setting once, not in each run
    jobs = [
        Job(task.id, agent_id(*agent), tier, seed)
        for task in tasks.values() for seed in seeds or task.budget(tier).seeds for agent in bases
        if plays(agent[0], task)
    ]  # fmt: skip
    if without := [f"{base} on {task.id}" for task in tasks.values() for base, _ in bases if not plays(base, task)]:
        click.echo(f"left out, without such a policy: {shortened(without)}")
    if not jobs:
        raise UserError("there is no run to make; choose another agent or task")
    if make_missing(jobs, root or results_root(), workers, replace):
        raise click.exceptions.Exit(1)


def _playable(pattern: str, tier: str) -> list[Task]:
    """The tasks of a pattern that have a budget at the tier; prints the others. Raises UserError if none has."""
    from benchmarks.catalog import match

    matched = match(pattern)
    playable = [task for task in matched if tier in task.budgets]
    if not playable:
        matched[0].budget(tier)
    if without := [task.id for task in matched if tier not in task.budgets]:
        click.echo(f"left out, without a budget at the tier {tier}: {shortened(without)}")
    return playable


def make_missing(jobs: Sequence[Job], root: Path, workers: int | None, replace: bool) -> list[Job]:
    """Make the missing runs and print what was done; return the failed ones, with a printed command for each.

    With `replace`, runs made with another configuration count as missing too.
    """
    from benchmarks.cores import available_cores
    from benchmarks.sweep import missing
    from benchmarks.sweep import sweep as make
    from reproduce.live import live_report

    todo = missing(jobs, root, replace)
    if not todo:
        click.echo(f"nothing to run: all {len(jobs)} runs are finished")
        return []
    workers = min(workers or available_cores(), len(todo))
    click.echo(f"{len(jobs) - len(todo)} of {len(jobs)} runs are finished, {len(todo)} to make, {workers} at once")
    with live_report(workers) as report:
        states = make(todo, root, workers, report)
    failed = [state for state in states if state.status == "failed"]
    if failed:
        click.echo(f"{len(failed)} of {len(states)} runs failed:", err=True)
        for state in failed:
            click.echo(f"  {state.job.run_id}: {state.message}  ({state.log})", err=True)
        click.echo("to run only these again:", err=True)
        for state in failed:
            click.echo(f"  {rerun_command(state.job, root)}", err=True)
    return [state.job for state in failed]


def rerun_command(job: Job, root: Path) -> str:
    from results.store import results_root

    named = {"--task": job.task, "--agent": job.agent, "--tier": job.tier, "--seed": str(job.seed)}
    if root != results_root():
        named["--results"] = str(root)
    return shlex.join(["amago-bench", "run", *(word for pair in named.items() for word in pair)])


@click.command()
@click.argument("run", metavar="RUN")
@click.option("--rollouts", type=click.IntRange(min=1), default=100, show_default=True, help="Rollouts to play.")
@options.results
def evaluate(run: str, rollouts: int, root: Path | None) -> None:
    """Evaluate a finished run again. RUN is its id or its folder. No table is changed.

    With 100 rollouts these are exactly the rollouts of its final evaluation, so the return must be the same.

    \b
    amago-bench evaluate smoke:long_term_memory/tmaze/passive-10:amago:0
    amago-bench evaluate results/runs/smoke/long_term_memory/tmaze/passive-10/amago/seed-0 --rollouts 400
    """
    from benchmarks import api
    from benchmarks.evaluate import SLOTS, summarise
    from results.store import results_root

    loaded = api.load(_folder_of(run, root or results_root()))
    result = summarise(loaded.evaluate(rollouts, slots=math.gcd(rollouts, SLOTS)), loaded.task.success)
    success = "" if result.success_mean is None else f", success {result.success_mean:.3f}"
    click.echo(
        f"{loaded.task.id}: mean return {result.return_mean:.4f}, median {result.return_median:.4f}, "
        f"quartiles {result.return_q1:.4f} to {result.return_q3:.4f}{success}, {result.rollouts} rollouts"
    )


def _folder_of(run: str, root: Path) -> Path:
    from results.store import load, run_folder

    if (Path(run) / "runs.csv").exists():
        return Path(run)
    rows = {row.run_id: row for row in load("runs", root, sources=("runs",))}
    if run not in rows:
        near = difflib.get_close_matches(run, rows, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "`amago-bench status` lists the runs"
        raise UserError(f"no run {run!r} under {root / 'runs'}; {hint}")
    row = rows[run]
    return run_folder(root, row.tier, row.task, row.agent, row.seed)


COMMANDS = (run, sweep, evaluate)
