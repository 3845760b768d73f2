"""Where runs are made. A place is a class with the interface `executor.Executor`, in a module of its own."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from results.errors import UserError

if TYPE_CHECKING:
    from benchmarks.places.executor import Executor

PLACES: Mapping[str, str] = {
    "local": "benchmarks.places.local:Local",
    "slurm": "benchmarks.places.slurm:Slurm",
    "ray": "benchmarks.places.ray:Ray",
}


def open_place(name: str, **options: Any) -> Executor:
    """An executor of the place, which is imported only now, because it may need packages of its own.

    `options` are arguments of its class; those that are None have not been given. Raises UserError for one that the
    place does not have.
    """
    module, _, of_class = PLACES[name].partition(":")
    factory = getattr(import_module(module), of_class)
    given = {option: value for option, value in options.items() if value is not None}
    if foreign := sorted(given.keys() - inspect.signature(factory).parameters.keys()):
        raise UserError(f"--{foreign[0]} means nothing for --on {name}; leave it out or choose another place")
    executor: Executor = factory(**given)
    return executor
