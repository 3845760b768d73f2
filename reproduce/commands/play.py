"""Commands that play: run, sweep, evaluate."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from amago_core.names import did_you_mean
from benchmarks.places import open_place
from reproduce import options
from reproduce.output import say
from results.errors import UserError

if TYPE_CHECKING:
    from benchmarks.places.executor import Executor
    from benchmarks.runs.job import Job

INTERRUPTED = 130  # exit code after Ctrl-C, as shells have it


@click.command()
@click.option("--task", metavar="TASK", help="Task id, see `amago-bench list`.")
@click.option("--env", "env_id", metavar="ID", help="A gymnasium environment instead: Id-v0 or module:Id-v0.")
@click.option("--agent", default="amago", show_default=True, help="Agent id, or my_module:MyAgent.")
@options.tier()
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a hyper-parameter; repeatable.")
@options.budget
@click.option("--replace", is_flag=True, help="Discard a run with the same id and start over.")
@options.threads
@options.trackers
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
@options.results
def run(
    task: str | None, env_id: str | None, agent: str, tier: str, seed: int, settings: tuple[str, ...],
    replace: bool, threads: int, trackers: tuple[str, ...], quiet: bool, root: Path | None,
) -> None:  # fmt: skip
    """Train an agent on a task, evaluate it, write its rows.

    An environment given by --env runs in a worker process, so that it cannot crash the run. AMAGO_BENCH_WORKERS sets
    how many (0: it runs in this process, which is faster), AMAGO_BENCH_ENV_TIMEOUT how many seconds a step may take
    (60).

    \b
    amago-bench run --task long_term_memory/tmaze/passive-10 --agent amago
    amago-bench run --task long_term_memory/tmaze/passive-10 --set lr=3e-4 --seed 1
    amago-bench run --task long_term_memory/tmaze/passive-30 --steps 20000 --num-envs 16
    amago-bench run --env CartPole-v1 --agent my_module:MyAgent --tracker my_module:MyTracker
    """
    if bool(task) == bool(env_id):
        raise click.UsageError("give either --task or --env; `amago-bench list` shows the tasks")
    from benchmarks.agents import agent_id, parse_agent, parse_settings
    from benchmarks.catalog import foreign_id
    from benchmarks.runs.job import Job, make
    from results.store import results_root

    base, own = parse_agent(agent)
    named = agent_id(base, {**own, **parse_settings(settings), **options.overrides()})
    job = Job(task or foreign_id(env_id or ""), named, tier, seed, threads, trackers, replace)
    tell = (lambda line: None) if quiet else say
    folder = make(job, root or results_root(), tell)
    tell(f"rows in {folder}")


@click.command()
@options.tasks(required=False)
@click.option("--env", "env_ids", multiple=True, metavar="ID", help="A gymnasium environment; repeatable.")
@options.agents
@options.tier()
@options.seeds
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE,...",
    help="Change a hyper-parameter; several values make a grid; repeatable.",
)  # fmt: skip
@options.budget
@options.replace
@options.threads
@options.trackers
@options.places
@click.option("--dry-run", is_flag=True, help="Only list the runs that it would make.")
@options.results
def sweep(
    patterns: tuple[str, ...], env_ids: tuple[str, ...], agent_ids: tuple[str, ...], tier: str,
    seeds: int | tuple[int, ...] | None, settings: tuple[str, ...], replace: bool, threads: int,
    trackers: tuple[str, ...], place: str,
    detach: bool, dry_run: bool, root: Path | None, **resources: Any,
) -> None:  # fmt: skip
    """Make many runs, several at once.

    Makes all of tasks x agents x settings x seeds that are not finished yet, each in a process of its own. Skips tasks
    of a pattern without a budget at the tier, and `oracle` and `scripted` on tasks without such a policy. A run that
    fails does not stop the others. To continue after Ctrl-C, repeat the command: finished runs stay finished, with
    --replace only those of the present configuration. If runs failed, lists them and exits with 1.

    Each value of --set makes an agent of its own: `--set lr=1e-4,3e-4` makes runs of amago@lr=1e-4 and amago@lr=3e-4.
    A value that is a list stands in brackets: `--set 'discounts=(0.9,0.97),(0.99)'`.

    On a cluster (docs/scaling.md) the results folder must be one that all its machines share. Runs on Slurm go on when
    this command ends; the same command follows them, and submits none that is queued or running.

    \b
    amago-bench sweep --task 'long_term_memory/tmaze/passive-*' --agent amago --agent amago-gru --tier laptop
    amago-bench sweep --task long_term_memory/tmaze/passive-10 --agent amago --seeds 0-4 --workers 2
    amago-bench sweep --task long_term_memory/tmaze/passive-10 --agent amago --set lr=1e-4,3e-4 --dry-run
    amago-bench sweep --task 'long_term_memory/popgym/*' --agent amago --tier paper --on slurm --partition gpu --gpus 1
    """
    from benchmarks.agents import parse_grid
    from benchmarks.catalog import foreign_id
    from benchmarks.runs.grid import grid, missing
    from results.store import results_root

    if not patterns and not env_ids:
        raise click.UsageError("give --task or --env; `amago-bench list` shows the tasks")
    root = root or results_root()
    tasks = (*patterns, *map(foreign_id, env_ids))
    values = parse_grid(settings) | {name: [value] for name, value in options.overrides().items()}
    jobs = grid(tasks, agent_ids, tier, seeds, values, say=say, threads=threads, trackers=trackers)
    todo = missing(jobs, root, replace)
    if dry_run:
        click.echo(f"{len(jobs) - len(todo)} of {len(jobs)} runs are finished, {len(todo)} to make:")
        for job in todo:
            click.echo(f"  {job.run_id}")
        return
    executor = open_chosen(place, detach, resources)
    if make_all(todo, len(jobs), root, executor, follow=not detach):
        raise click.exceptions.Exit(1)


def open_chosen(place: str, detach: bool, resources: Mapping[str, Any]) -> Executor:
    """The executor for the options of `options.places`."""
    executor = open_place(place, **resources)
    if detach and executor.cancel_command is None:
        raise UserError(f"--detach: runs on {place} end with this command; leave it out, or use --on slurm")
    return executor


def make_all(todo: Sequence[Job], of: int, root: Path, executor: Executor, follow: bool = True) -> list[Job]:
    """Make what is missing `of` a number of runs, or only submit it, and print what was done.

    Returns the jobs that failed or were lost, after printing a command for each.
    """
    from benchmarks.places.sweep import sweep as make
    from reproduce.live import live_report

    if not todo:
        say(f"nothing to run: all {of} runs are finished")
        return []
    say(f"{of - len(todo)} of {of} runs are finished, {len(todo)} to make")
    if not follow:
        executor.submit(todo, root)
        say(f"submitted; {_left_alone(executor)}")
        return []
    try:
        with live_report(executor) as report:
            states = make(todo, root, executor, report)
    except KeyboardInterrupt:
        if executor.cancel_command is None:
            raise
        say(f"\nthe runs go on; {_left_alone(executor)}")
        raise click.exceptions.Exit(INTERRUPTED) from None
    failed = [state for state in states if state.status != "finished"]
    if failed:
        click.echo(f"{len(failed)} of {len(states)} runs failed:", err=True)
        for state in failed:
            click.echo(f"  {state.job.run_id}: {state.message}  ({state.log})", err=True)
        click.echo("to run only these again:", err=True)
        for state in failed:
            click.echo(f"  {rerun_command(state.job, root)}", err=True)
    return [state.job for state in failed]


def _left_alone(executor: Executor) -> str:
    return f"`{executor.cancel_command}` ends them, the same command (without --detach) follows them"


def rerun_command(job: Job, root: Path) -> str:
    from results.store import results_root

    named = {"--task": job.task, "--agent": job.agent, "--tier": job.tier, "--seed": str(job.seed)}
    if job.threads > 1:
        named["--threads"] = str(job.threads)
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
    from benchmarks.gate.evaluate import SLOTS, summarise
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
        hint = did_you_mean(run, rows, "`amago-bench status` lists the runs")
        raise UserError(f"no run {run!r} under {root / 'runs'}; {hint}")
    row = rows[run]
    return run_folder(root, row.tier, row.task, row.agent, row.seed)


COMMANDS = (run, sweep, evaluate)
