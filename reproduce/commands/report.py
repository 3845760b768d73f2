"""Commands that report from the tables alone: table, verdicts, figure, merge; and reproduce, which also runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from reproduce import options
from results.errors import UserError

CLAIMS = Path(__file__).resolve().parents[1] / "claims.yaml"


def figure_option(text: str):  # type: ignore[no-untyped-def]
    from reproduce.figures import FIGURES

    return click.option("--figure", "name", type=options.Near(tuple(FIGURES)), default=None, help=text)


@click.command()
@options.tasks(required=False)
@click.option("--agent", "agent_ids", multiple=True, metavar="AGENT", help="Only this agent; repeatable.")
@options.tier(default=None)
@options.results
def table(patterns: tuple[str, ...], agent_ids: tuple[str, ...], tier: str | None, root: Path | None) -> None:
    """Print mean final returns with n and intervals, published numbers beside them.

    \b
    amago-bench table --task 'long_term_memory/tmaze/*' --tier laptop
    """
    raise UserError("not there yet")


@click.command()
@options.tier(default=None)
@options.results
def verdicts(tier: str | None, root: Path | None) -> None:
    """Print what the runs say about each claim of the paper.

    A claim of the paper is judged at the paper tier only; its restatement for the laptop has an id of its own.

    \b
    amago-bench verdicts --tier laptop
    """
    raise UserError("not there yet")


COMMANDS = (table, verdicts)
