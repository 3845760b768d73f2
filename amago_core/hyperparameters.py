"""Settings of an agent as a dataclass that checks its values, reads them from text and says what each one means.

@dataclass(frozen=True)
class Settings(Hyperparameters):
    spread: float = setting(1.0, "standard deviation of a change", low=0, also=("std",))
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar

from amago_core.names import did_you_mean


class DataclassInstance(Protocol):
    """An object of any dataclass, for which Python has no public type."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]


Record = TypeVar("Record", bound=DataclassInstance)


def setting(
    default: Any, meaning: str, *, low: float = -math.inf, high: float = math.inf, also: tuple[str, ...] = ()
) -> Any:
    """A field of a record of settings.

    Args:
        default: its value where nothing else is said.
        meaning: what it is, with its unit, in a phrase.
        low, high: smallest and largest number, of a tuple for each element.
        also: what other libraries call it; whoever gives such a name is told ours.
    """
    return dataclasses.field(default=default, metadata={"meaning": meaning, "low": low, "high": high, "also": also})


@dataclass(frozen=True)
class Hyperparameters:
    """A flat record of settings; numbers must be finite and in the range of their `setting`.

    Raises:
        ValueError: a number that is not finite or out of its range.
    """

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            name, value = field.name, getattr(self, field.name)
            low, high = field.metadata.get("low", -math.inf), field.metadata.get("high", math.inf)
            for number in value if isinstance(value, tuple) else (value,):
                if not isinstance(number, int | float):
                    continue
                if not math.isfinite(number):
                    raise ValueError(f"{name} must be a finite number, not {number}")
                if not low <= number <= high:
                    wanted = f"at least {low}" if high == math.inf else f"between {low} and {high}"
                    raise ValueError(f"{name} must be {wanted}, not {number}")

    def replace(self, settings: Mapping[str, Any]) -> Self:
        """A copy with some fields replaced, as `replaced` makes it."""
        return replaced(self, settings)


def replaced(record: Record, settings: Mapping[str, Any]) -> Record:
    """A copy of a dataclass with some fields replaced; texts (from a command line) are read by the field's type.

    Raises:
        ValueError: unknown field, with ours for a usual name or else the nearest ones; or a value of the wrong type.
    """
    hints = _hints(type(record))
    fields = {field.name: field for field in dataclasses.fields(record)}
    values = {}
    for name, value in settings.items():
        if name not in fields:
            raise ValueError(f"it has no setting '{name}'; {_hint(name, fields)}")
        values[name] = _parse(name, value, hints[name]) if isinstance(value, str) else value
    return dataclasses.replace(record, **values)


def as_text(record: type[DataclassInstance], name: str, text: str) -> str:
    """The one way to write the value that `text` stands for: `0.0003` and `3E-4` are both `3e-4`.

    A text that the field cannot hold, or of a name that is no field, is returned as it is; `replaced` refuses it.
    """
    try:
        return _written(_parse(name, text, _hints(record)[name]))
    except (KeyError, ValueError):
        return text


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        return "+".join(map(_written, value)) or "+"
    if isinstance(value, float) and math.isfinite(value):
        small = 0 < abs(value) < 1e-2
        text = f"{Decimal(repr(value)):e}".replace("e+", "e") if small or "e" in repr(value) else repr(value)
        return text.removesuffix(".0")
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


_hints = cache(typing.get_type_hints)  # slow, and a sweep reads the settings of every run


@dataclass(frozen=True)
class Described:
    """One setting of a record as a user reads it."""

    name: str
    value: Any
    default: Any
    meaning: str  # empty where its author gave none


def described(record: DataclassInstance) -> list[Described]:
    """What there is to know of every setting, in the order of the class; the choices of a Literal end its meaning."""
    hints, default = _hints(type(record)), type(record)()
    rows = []
    for field in dataclasses.fields(record):
        name, meaning = field.name, field.metadata.get("meaning", "")
        if typing.get_origin(hints[name]) is Literal:
            meaning = f"{meaning} ({', '.join(map(str, typing.get_args(hints[name])))})".strip()
        rows.append(Described(name, getattr(record, name), getattr(default, name), meaning))
    return rows


def _hint(name: str, fields: Mapping[str, dataclasses.Field[Any]]) -> str:
    for field in fields.values():
        if name in field.metadata.get("also", ()):
            return f"it is called {field.name} here ({field.metadata['meaning']})"
    return did_you_mean(name, fields, f"it has {', '.join(fields)}")


def _parse(name: str, text: str, hint: Any) -> Any:
    """Text to a value of the annotated type, e.g. '64+64' to a tuple of int (a comma separates settings)."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    try:
        if origin in (types.UnionType, typing.Union):
            inner = next(a for a in args if a is not types.NoneType)
            return None if text.lower() == "none" else _parse(name, text, inner)
        if origin is Literal:
            if text not in args:
                raise ValueError
            return text
        if origin is tuple:
            items = tuple(args[0](part) for part in text.split("+") if part)
            if Ellipsis not in args and len(items) != len(args):
                raise ValueError
            return items
        if origin is not None:  # list[int] and the like would take a text apart into letters
            raise ValueError
        if hint is bool:
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        return hint(text)
    except (ValueError, TypeError, KeyError):
        wanted = getattr(hint, "__name__", str(hint))
        if origin is Literal:
            wanted = "one of " + ", ".join(map(str, args))
        elif origin is tuple:
            wanted = "numbers with + between them"
        raise ValueError(f"setting {name}={text}: expected {wanted}") from None
