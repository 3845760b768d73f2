"""Commands that report from the tables: table, verdicts, figure, merge; and reproduce, which makes the runs first."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click

from amago_core.names import did_you_mean
from analysis.figures import FIGURES, figures
from reproduce import options

CLAIMS = Path(__file__).resolve().parents[1] / "claims.yaml"


class _Figure(click.ParamType):
    """The name of a figure. Looked up when it is given, because the figures of other packages may import anything."""

    name = "figure"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        known = figures()
        if value not in known:
            self.fail(f"{value!r} is unknown; {_near(value, list(known))}", param, ctx)
        return value


@click.command()
@click.option("--task", "pattern", default="*", metavar="PATTERN", help="Task id or shell pattern.")
@click.option("--agent", "agent_ids", multiple=True, metavar="AGENT", help="Agent id or shell pattern; repeatable.")
@options.tier(default=None)
@click.option("--metric", type=options.Near(("return", "success")), default="return", show_default=True)
@click.option("--tuning", is_flag=True, help="The seeds that chose settings, from 1000 on, instead of the results.")
@options.wide
@click.option("--format", "form", type=options.Near(("text", "csv", "markdown")), default="text", show_default=True)
@options.read_results
def table(
    pattern: str,
    agent_ids: tuple[str, ...],
    tier: str | None,
    metric: str,
    tuning: bool,
    wide: bool,
    form: str,
    root: Path | None,
) -> None:
    """Print the final results with n and intervals; then the aggregates over tasks and the memory span.

    CSV and --tuning have only the first part.

    \b
    amago-bench table --task 'long_term_memory/tmaze/*' --tier laptop
    amago-bench table --agent 'amago@lr=*' --format csv
    """
    from analysis import aggregates, frames, memory_span
    from analysis.table import render, summarise

    loaded = frames.load("runs", root, tier)
    runs = frames.scores(root, tier, agents=agent_ids or None, tuning=tuning, runs=loaded)
    chosen = runs.loc[[fnmatchcase(task, pattern) for task in runs["task"]]]
    frame = summarise(chosen, metric)
    unmatched = list(_unmatched(root, tier, pattern, agent_ids)) if _lacks(frame["agent"], agent_ids) else []
    for line in unmatched:
        click.echo(f"amago-bench: {line}", err=True)
    if unmatched and frame.empty:
        raise click.exceptions.Exit(1)
    if not tuning and (left := frames.count_tuning(loaded, pattern, agent_ids or None)):
        said = f"seeds from {frames.FIRST_TUNING_SEED} on are for tuning; --tuning shows them"
        click.echo(f"amago-bench: {left} run{'s' * (left > 1)} left out: {said}", err=True)
    click.echo(render(frame, form, metric, wide), nl=False)
    if form != "csv" and metric == "return" and not tuning:
        over_tasks = aggregates.render(aggregates.over_tasks(chosen), form)
        spans = memory_span.render(memory_span.spans(runs, pattern), form)
        click.echo("".join(f"\n{part}" for part in (over_tasks, spans) if part), nl=False)


def _lacks(shown: Iterable[str], patterns: Sequence[str]) -> bool:
    """Whether nothing is shown, or nothing of some pattern."""
    known = set(shown)
    return not known or any(not any(fnmatchcase(agent, pattern) for agent in known) for pattern in patterns)


def _unmatched(root: Path | None, tier: str | None, pattern: str, agent_ids: Sequence[str]) -> Iterator[str]:
    """Filters that match no run, with what there is instead; nothing if nothing has run at all."""
    from analysis.frames import load

    runs = load("runs", root, tier)
    if runs.empty:
        return
    tasks = sorted(runs["task"].unique())
    if not any(fnmatchcase(task, pattern) for task in tasks):
        yield f"no runs of a task {pattern!r}; {_near(pattern, tasks)}"
        return
    agents = sorted(runs.loc[[fnmatchcase(task, pattern) for task in runs["task"]], "agent"].unique())
    for agent in agent_ids:
        if not any(fnmatchcase(known, agent) for known in agents):
            yield f"no runs of the agent {agent!r} there; {_near(agent, agents)}"


def _near(name: str, known: Sequence[str]) -> str:
    return did_you_mean(name, known, f"there are {', '.join(known)}")


@click.command()
@options.tier(default=None)
@click.option(
    "--claims", type=click.Path(exists=True, dir_okay=False, path_type=Path), default=None, metavar="FILE",
    help="Claims of your own, written as those of this project.  [default: its own]",
)  # fmt: skip
@options.read_results
def verdicts(tier: str | None, claims: Path | None, root: Path | None) -> None:
    """Print what the runs say about each claim.

    A claim of the paper is judged only at the paper tier; its restatement for the laptop has an id of its own.

    \b
    amago-bench verdicts --tier laptop
    """
    from analysis.claims import load_claims
    from analysis.verdicts import load_verdicts, to_text

    found = [
        verdict for verdict in load_verdicts(load_claims(claims or CLAIMS), root) if tier in (None, verdict.claim.tier)
    ]
    click.echo(to_text(found) if found else f"no claims at the tier {tier}")


@click.command()
@click.argument("name", type=_Figure(), metavar="FIGURE")
@options.tier()
@options.read_results
def figure(name: str, tier: str, root: Path | None) -> None:
    """Draw a figure from the tables, as PNG and PDF, with its numbers as CSV and its caption as Markdown.

    \b
    amago-bench figure passive-tmaze --tier laptop
    """
    for path in figures()[name].write(tier, root):
        click.echo(path)
        if path.suffix == ".md":
            caption = textwrap.fill(path.read_text(), 116, break_on_hyphens=False)
            click.echo(f"\n{textwrap.indent(caption, '  ')}\n")


@click.command()
@options.tier(default="laptop")
@click.option("--replace", is_flag=True, help="Replace reference rows of runs that were made again.")
@options.read_results
def merge(tier: str, replace: bool, root: Path | None) -> None:
    """Merge finished runs into the reference tables of the results folder.

    \b
    amago-bench merge --tier laptop
    """
    from results.store import merge_runs, results_root

    root = root or results_root()
    changed = merge_runs(root, tier, replace=replace)
    for run_id in changed:
        click.echo(run_id)
    click.echo(f"{len(changed)} runs new or changed in {root / 'reference' / tier}")


@click.command()
@options.tier()
@click.option(
    "--figure", "name", type=_Figure(), metavar="FIGURE", default=None,
    help=f"Only this one of {', '.join(FIGURES)}.  [default: all]",
)  # fmt: skip
@options.seeds
@options.replace
@options.places
@options.results
def reproduce(
    tier: str, name: str | None, seeds: int | tuple[int, ...] | None, replace: bool, place: str, detach: bool,
    root: Path | None, **resources: Any,
) -> None:  # fmt: skip
    """Make the missing runs for the figures, then write the figures.

    Makes what the results folder does not hold; that of a checkout holds the committed reference. On a cluster as with
    `sweep`; docs/scaling.md shows how.

    \b
    amago-bench reproduce
    amago-bench reproduce --tier laptop --figure passive-tmaze
    amago-bench reproduce --tier paper --figure passive-tmaze --on slurm --partition gpu --gpus 1 --detach
    """
    from benchmarks.runs.grid import missing
    from reproduce.commands.play import make_all, open_chosen
    from reproduce.pipeline import jobs, refresh
    from results.store import results_root

    root = root or results_root()
    names = [name] if name else list(FIGURES)
    wanted = jobs(names, tier, seeds)
    executor = open_chosen(place, detach, resources)
    failed = make_all(missing(wanted, root, replace), len(wanted), root, executor, follow=not detach)
    if detach:
        return
    for each in names:
        files, fresh = refresh(each, tier, root)
        click.echo(f"figure {each} {'drawn from the tables' if fresh else 'is up to date'}:")
        for path in files:
            click.echo(f"  {path}")
    if failed:
        raise click.exceptions.Exit(1)


COMMANDS = (table, verdicts, figure, merge, reproduce)
