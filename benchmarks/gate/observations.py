"""What an environment returns, checked against the space that it declares and cast to its dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from benchmarks.gate.slots import SlotFault

LARGEST = float(np.finfo(np.float32).max)


def checked(space: Space, value: Any, name: str) -> Any:
    """The value as fresh arrays of a batched space's dtypes; SlotFault if the space does not declare it."""
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping) or value.keys() != space.spaces.keys():
            found = sorted(value) if isinstance(value, Mapping) else type(value).__name__
            raise SlotFault(None, f"{name} has the keys {found}, its space declares {sorted(space.spaces)}")
        return {key: checked(part, value[key], f"{name}[{key!r}]") for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        if not isinstance(value, tuple) or len(value) != len(space.spaces):
            raise SlotFault(None, f"{name} is not a tuple of the {len(space.spaces)} parts that its space declares")
        parts = zip(space.spaces, value, strict=True)
        return tuple(checked(part, v, f"{name}[{i}]") for i, (part, v) in enumerate(parts))
    if space.shape is None or space.dtype is None:
        return value  # text, graphs: nothing to cast
    array = cast(np.asarray(value), space.shape, space.dtype, name)
    if array.dtype.kind != "f" and (limits := bounds(space)):  # a value past them has no one-hot
        outside = (array < limits[0]) | (array > limits[1])
        if outside.any():
            slot = int(np.argwhere(outside)[0, 0])
            raise SlotFault(slot, f"{name} is outside its space: {_short(array[slot])}")
    if isinstance(space, spaces.Box):
        _check_range(array, name)
    return array


def _check_range(array: np.ndarray, name: str) -> None:
    """Networks read float32, which ends at 3.4e38 and past 2**24 takes neighbouring integers for the same."""
    if array.itemsize < 4 or array.dtype == np.float32:
        return
    most = LARGEST if array.dtype.kind == "f" else 2**24
    beyond = (array > most) | (array < -most)
    if beyond.any():
        slot = int(np.argwhere(beyond)[0, 0])
        raise SlotFault(slot, f"{name} has values that float32 cannot hold, rescale them: {_short(array[slot])}")


def cast(array: np.ndarray, shape: tuple[int, ...], dtype: np.dtype, name: str) -> np.ndarray:
    """A fresh contiguous copy in the declared dtype, if that loses nothing but float precision."""
    if array.shape != shape:
        raise SlotFault(None, f"{name} has shape {array.shape} instead of {shape}")
    if array.dtype == dtype:
        result = np.array(array, order="C")
    else:
        if array.dtype.kind not in ("fiub" if dtype.kind == "f" else "iub"):
            raise SlotFault(None, f"{name} has dtype {array.dtype}, which {dtype} cannot hold")
        with np.errstate(over="ignore"):  # becomes infinite, which is caught below
            result = np.array(array, dtype, order="C")
        if dtype.kind != "f" and not np.array_equal(result, array):
            slot = int(np.argwhere(result != array)[0, 0])
            raise SlotFault(slot, f"{name} has values past {dtype}: {array[slot]}")
    if dtype.kind == "f" and not np.isfinite(result).all():
        slot = int(np.argwhere(~np.isfinite(result))[0, 0])
        raise SlotFault(slot, f"{name} is not finite: {_short(array[slot])}")
    return result


def bounds(space: Space) -> tuple[np.ndarray, np.ndarray] | None:
    """The lowest and highest values, both inclusive, of a batched space; None if its values are not arrays."""
    if isinstance(space, spaces.MultiDiscrete):  # a batch of Discrete
        return space.start, space.start + space.nvec - 1
    if isinstance(space, spaces.Box):  # a batch of Box, MultiDiscrete or MultiBinary
        return space.low, space.high
    return None


def _short(value: Any) -> str:
    return np.array2string(np.asarray(value), threshold=6, precision=4)
