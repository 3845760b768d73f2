"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from amago_core.names import did_you_mean
from benchmarks.places import PLACES
from results.schema import TIERS


class Near(click.Choice[str]):
    """A choice whose error for a wrong value names the nearest right ones."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        hint = did_you_mean(str(value), self.choices, f"choose from {', '.join(self.choices)}")
        return f"{value!r} is unknown; {hint}"


class Seeds(click.ParamType):
    """`3`: the first three, as a number; `0-4`, `0,1` or `0-2,7`: these, as a tuple without duplicates."""

    name = "seeds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | tuple[int, ...]:
        if not isinstance(value, str):
            return value  # converted already
        if value.isdecimal() and int(value) > 0:
            return int(value)
        seeds: dict[int, None] = {}
        for part in value.split(","):
            first, _, last = part.strip().partition("-")
            numbers = first.isdecimal() and (last or first).isdecimal() and int(last or first) >= int(first)
            if value.isdecimal() or not numbers:
                hint = "write 3 for the first three, or these: 0-4, or 0,1; one alone is 7-7"
                self.fail(f"{value!r} is not a number of seeds nor a list of them; {hint}", param, ctx)
            seeds |= dict.fromkeys(range(int(first), int(last or first) + 1))
        return tuple(seeds)


def tier(default: str | None = "smoke") -> Callable[[Any], Any]:
    """`--tier`; without a default, None means all tiers."""
    text = "Budget, model size and seeds." if default else "Only this tier.  [default: all]"
    return click.option("--tier", type=Near(TIERS), default=default, show_default=bool(default), help=text)


def tasks(required: bool = True) -> Callable[[Any], Any]:
    """`--task`, a shell pattern, repeatable."""
    return click.option(
        "--task", "patterns", multiple=True, required=required, metavar="PATTERN",
        help="Task id or shell pattern; may be given several times.",
    )  # fmt: skip


agents = click.option(
    "--agent", "agent_ids", multiple=True, required=True, metavar="AGENT",
    help="Agent id, such as amago, amago@lr=3e-4 or my_module:MyAgent; may be given several times.",
)  # fmt: skip


def _results(exists: bool) -> Callable[[Any], Any]:
    return click.option(
        "--results", "root", type=click.Path(path_type=Path, file_okay=False, exists=exists), default=None,
        help="Your runs and figures; the committed reference is read beside them.  "
        "[default: $AMAGO_BENCH_RESULTS, or results/ of the checkout or else of this folder]",
    )  # fmt: skip


results = _results(exists=False)  # of a command that makes runs, and the folder with them
read_results = _results(exists=True)  # of one that reads them: a folder that is not there is a slip


wide = click.option("--wide", is_flag=True, help="All columns, however wide.")

replace = click.option("--replace", is_flag=True, help="Run again what was run with another configuration.")


def _pairs(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[str, str] | None:
    if wrong := [pair for pair in value if not pair.partition("=")[2]]:
        raise click.BadParameter(f"{wrong[0]!r} is not of the form KEY=VALUE", ctx, param)
    return dict(pair.split("=", 1) for pair in value) or None


PLACE_OPTIONS = (
    click.option("--on", "place", type=Near(tuple(PLACES)), default="local", show_default=True, help="Where."),
    click.option(
        "--workers", type=click.IntRange(min=1),
        help="Local, Slurm: runs at once.  [default: the available cores; what Slurm starts]",
    ),
    click.option("--detach", is_flag=True, help="Slurm: only submit; without it the same command follows the runs."),
    click.option("--partition", metavar="NAME", help="Slurm: the partition.  [default: the cluster's]"),
    click.option("--time", metavar="LIMIT", help="Slurm: of one start, such as 4:00:00 or 2-00:00.  [default: 1 day]"),
    click.option("--memory", metavar="SIZE", help="Slurm: per run, such as 16G.  [default: the cluster's]"),
    click.option(
        "--slurm", multiple=True, metavar="KEY=VALUE", callback=_pairs,
        help="Slurm: any other option of sbatch, such as account=lab; repeatable.",
    ),
    click.option("--address", metavar="A", help="Ray: HOST:PORT of a cluster, or auto.  [default: start one here]"),
    click.option("--cpus", type=click.IntRange(min=1), help="Slurm, Ray: cores per run.  [default: its threads]"),
    click.option("--gpus", type=click.FloatRange(min=0), help="Slurm, Ray: GPUs per run; Ray: also 0.5.  [default: 0]"),
)  # fmt: skip


def places(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--on` and what each place can be told; arguments of `benchmarks.places.open_place`."""
    for option in reversed(PLACE_OPTIONS):
        command = option(command)
    return command


threads = click.option(
    "--threads", type=click.IntRange(min=1), default=1, show_default=True, help="Threads of a run; part of its setting."
)

seeds = click.option(
    "--seeds", type=Seeds(), default=None,
    help="3: the first three, 0 to 2; or these: 0-4, or 0,1.  [default: those of the tier]",
)  # fmt: skip


def _chosen(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys(value) if name != "none")


def _overridden(ctx: click.Context, param: click.Parameter, value: int | None) -> None:
    if value is not None:
        ctx.meta.setdefault(OVERRIDDEN, {})[param.name] = str(value)


OVERRIDDEN = "reproduce.budget"  # where the context of a command keeps what `budget` was given


def budget(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--steps`, `--num-envs` and `--evaluations`, settings of the agent's id by the same names; see `overrides`."""
    for name, text in (
        ("--evaluations", "Evaluations of a run, the final one included."),
        ("--num-envs", "Environments of a run."),
        ("--steps", "Environment steps of a run, all slots together."),
    ):
        command = click.option(
            name, type=click.IntRange(min=1), default=None, expose_value=False, callback=_overridden,
            help=f"{text}  [default: the tier's; another number is part of the agent's id]",
        )(command)  # fmt: skip
    return command


def overrides() -> dict[str, str]:
    """What `budget` was given, as settings."""
    return dict(click.get_current_context().meta.get(OVERRIDDEN, {}))


trackers = click.option(
    "--tracker", "trackers", multiple=True, default=("tensorboard",), show_default=True, metavar="NAME",
    callback=_chosen,
    help="Shows the curves: tensorboard, wandb, my_module:MyTracker, or none; may be given several times.",
)  # fmt: skip
