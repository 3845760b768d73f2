"""Importing the user's modules, from the current folder too."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from typing import Any

from results.errors import UserError


def look_here() -> None:
    """Make the current folder importable, as `python -m` does; an installed command does not look there."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def load_object(path: str, what: str) -> Any:
    """The object `module:name`, or `module:outer.name`.

    Raises UserError where there is none; `what` (agent, tracker) says what it should have been.
    """
    module, _, name = path.partition(":")
    if not (module and name):
        raise UserError(f"{what} {path!r} is not of the form module:name")
    look_here()
    try:
        found: Any = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # the user's module may raise anything
        hint = "; is it installed, or in this folder?" if isinstance(error, ModuleNotFoundError) else ""
        raise UserError(f"{what} {path!r}: {type(error).__name__}: {error}{_raised(error)}{hint}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise UserError(f"{what} {path!r}: module {module} has no {name!r}")
        found = getattr(found, part)
    return found


def _raised(error: BaseException) -> str:
    """Where it was raised, unless in the import machinery: then the module itself was not found."""
    if isinstance(error, SyntaxError):
        return ""  # Python's own message says where
    frames = traceback.extract_tb(error.__traceback__)
    inside = [f for f in frames if f.filename not in (__file__, importlib.__file__) and not f.filename.startswith("<")]
    return f" ({inside[-1].filename}, line {inside[-1].lineno})" if inside else ""
