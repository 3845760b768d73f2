"""Options that several commands share."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from results.schema import TIERS


class Near(click.Choice[str]):
    """A choice whose error for a wrong value names the nearest right ones."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        near = difflib.get_close_matches(str(value), self.choices, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(self.choices)}"
        return f"{value!r} is unknown; {hint}"


class Seeds(click.ParamType):
    """`0-4` or `0,1` or `0-2,7`, as a tuple of seeds without duplicates."""

    name = "seeds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        seeds: dict[int, None] = {}
        for part in str(value).split(","):
            first, _, last = part.strip().partition("-")
            if not (first.isdecimal() and (last or first).isdecimal()) or int(last or first) < int(first):
                self.fail(f"{value!r} is not a list of seeds; write for instance 0-4 or 0,1", param, ctx)
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

results = click.option(
    "--results", "root", type=click.Path(path_type=Path, file_okay=False), default=None,
    help="Your runs and figures; the committed reference is read beside them.  "
    "[default: $AMAGO_BENCH_RESULTS, or results/ of the checkout or else of this folder]",
)  # fmt: skip

replace = click.option("--replace", is_flag=True, help="Run again what was run with another configuration.")

workers = click.option(
    "--workers", type=click.IntRange(min=1), default=None, help="Runs at once.  [default: the available cores]"
)
