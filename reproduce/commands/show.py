"""The command `show`: the settings of an agent."""

from __future__ import annotations

import click

from reproduce import options
from reproduce.text import aligned


@click.command()
@click.argument("agent")
@click.option("--task", "task_id", metavar="TASK", help="Show the values on this task.  [default: before any task's]")
@options.tier()
def show(agent: str, task_id: str | None, tier: str) -> None:
    """Show the settings of an agent: value, default and meaning.

    The value is what a run gets: at the tier on the task, changed by the agent's preset and by what AGENT itself sets.
    AMAGO's defaults are what the experiments of the paper share. `--set NAME=VALUE` of `run` and `sweep` changes one;
    several numbers have a + between them.

    \b
    amago-bench show amago
    amago-bench show amago-gru --task long_term_memory/tmaze/passive-10 --tier laptop
    amago-bench show sb3:DQN
    """
    from amago_core.hyperparameters import described
    from benchmarks.agents import check_agent, hyperparameters, parse_agent
    from benchmarks.catalog import get_task
    from benchmarks.runs.budget import agent_settings

    base, settings = parse_agent(agent)
    check_agent(base)
    task = get_task(task_id) if task_id else None
    if task:
        task.budget(tier)
    record = hyperparameters(base, task, tier, agent_settings(settings))
    if record is None:
        click.echo(f"agent {base} declares no settings")
        return
    rows = [(row.name, _text(row.value), _text(row.default), row.meaning) for row in described(record)]
    click.echo(aligned(("setting", "value", "default", "meaning"), rows))


def _text(value: object) -> str:
    """As `--set` reads it."""
    if isinstance(value, tuple):
        return "+".join(map(_text, value)) or "+"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


COMMANDS = (show,)
