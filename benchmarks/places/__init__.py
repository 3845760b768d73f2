"""Where runs are made. A place is a class with the interface `executor.Executor`, in a module of its own."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.places.executor import Executor

PLACES: Mapping[str, str] = {"local": "benchmarks.places.local:Local"}


def open_place(name: str, *arguments: Any, **options: Any) -> Executor:
    """An executor of the place, which is imported only now, because it may need packages of its own."""
    module, _, of_class = PLACES[name].partition(":")
    executor: Executor = getattr(import_module(module), of_class)(*arguments, **options)
    return executor
