"""The command `bench`: how fast the core is on this machine."""

from __future__ import annotations

import textwrap

import click

from reproduce.text import aligned


@click.command()
@click.option("--only", "pattern", default="", metavar="PATTERN", help="Benchmarks whose name matches (pytest's -k).")
def bench(pattern: str) -> None:
    """Time the core on this machine, beside the official implementation on 2 cores of another.

    Times are medians. "in products" is the time in units of a 2048 x 1024 x 2048 matrix product of the same type, timed
    in the same process, so that machines can be compared. Nothing else should run at the same time.

    \b
    amago-bench bench
    amago-bench bench --only update-small
    """
    from benchmarks.throughput.report import COLUMNS, NOTE, rows, run

    click.echo(aligned(COLUMNS, rows(run(pattern))))
    click.echo(f"\n{textwrap.fill(NOTE, 118)}")


COMMANDS = (bench,)
