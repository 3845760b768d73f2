"""Plain gymnasium environments side by side in this process, one per slot, with checks of what they return."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Mapping, Sequence
from operator import methodcaller
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Space, spaces

SUCCESS = ("success", "is_success")  # the infos that count as success; where both are told, the first
#: The infos that the harness reads; all others are dropped.
TOLD = (*SUCCESS, "inner_reset", "inner_truncated", "instance")

MakeEnv = Callable[[], gymnasium.Env]


class SlotFault(Exception):
    """What went wrong in a slot (None: the slot is unknown); the harness adds the task, the seed and the step."""

    def __init__(self, slot: int | None, what: str, trace: str = "") -> None:
        super().__init__(what)
        self.slot, self.trace = slot, trace
        if trace:
            self.add_note(trace)  # for log.txt


class Slots:
    """The environments of the slots `numbers`, called one after the other; `busy` gets the slot before each call.

    Raises `SlotFault` if an environment raises or does not return gymnasium's tuple.
    """

    def __init__(self, make: MakeEnv, numbers: range, busy: Callable[[int], None] = lambda slot: None) -> None:
        self._numbers, self._busy = numbers, busy
        self._envs = [self._call(number, make) for number in numbers]
        for slot, env in zip(numbers[1:], self._envs[1:], strict=True):
            if any(env is other for other in self._envs[: slot - numbers.start]):
                raise SlotFault(slot, "make() gave an environment that another slot has; it must build a new one")
        self._answer: list[tuple[Any, ...]] = []

    def spaces(self) -> tuple[Space, Space]:
        """Observation and action space of one environment."""
        return self._envs[0].observation_space, self._envs[0].action_space

    def begin(self, command: str, *arguments: Any) -> None:
        """Do `reset` or `step`; `end` returns the answer. Two calls, as with a `Worker`, which works in between."""
        self._answer = getattr(self, f"_{command}")(*arguments)

    def end(self) -> list[tuple[Any, ...]]:
        """One tuple for each slot that `begin` called."""
        return self._answer

    def _reset(self, asked: Mapping[int, tuple[int | None, dict[str, Any]]]) -> list[tuple[Any, ...]]:
        """{slot: (seed, options)} -> [(observation, infos)]."""
        return [
            self._tuple(2, "reset()", slot, methodcaller("reset", seed=seed, options=options))
            for slot, (seed, options) in asked.items()
        ]

    def _step(self, actions: Sequence[Any]) -> list[tuple[Any, ...]]:
        """One action per slot -> [(observation, reward, terminated, truncated, infos)]."""
        pairs = zip(self._numbers, actions, strict=True)
        return [self._tuple(5, "step()", slot, methodcaller("step", action)) for slot, action in pairs]

    def _tuple(self, length: int, name: str, slot: int, call: Callable[[gymnasium.Env], Any]) -> tuple[Any, ...]:
        answer = self._call(slot, call, self._envs[slot - self._numbers.start])
        if not isinstance(answer, tuple) or len(answer) != length or not isinstance(answer[-1], Mapping):
            found = f"a tuple of {len(answer)}" if isinstance(answer, tuple) else f"a {type(answer).__name__}"
            expected = f"gymnasium expects a tuple of {length} that ends with the infos"
            raise SlotFault(slot, f"{name} returned {found}; {expected}")
        return own((*answer[:-1], {name: answer[-1][name] for name in TOLD if name in answer[-1]}))

    def _call(self, slot: int, function: Callable[..., Any], *arguments: Any) -> Any:
        self._busy(slot)
        try:
            return function(*arguments)
        except (Exception, SystemExit) as error:  # sys.exit() in an environment must not end the run as if finished
            what = f"the environment raised {type(error).__name__}: {error}"
            raise SlotFault(slot, what, traceback.format_exc()) from error

    def close(self) -> None:
        for slot, env in zip(self._numbers, self._envs, strict=True):
            with contextlib.suppress(SlotFault):  # no measurement depends on it
                self._call(slot, env.close)


def own(value: Any) -> Any:
    """The value with its arrays copied, and tensors as arrays: an environment, or all of a class, may reuse one buffer.

    A tensor sent to another process would refer to memory that goes with its sender.
    """
    if isinstance(value, np.ndarray):
        return value.copy()
    if hasattr(value, "__array__") and not isinstance(value, np.generic):
        return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value).copy()
    if isinstance(value, list):
        return list(map(own, value))
    if isinstance(value, Mapping):
        return {key: own(part) for key, part in value.items()}
    return tuple(map(own, value)) if isinstance(value, tuple) else value


def stack(space: Space, items: Sequence[Any], name: str = "the observation") -> Any:
    """Single values of a space as one batch of copies, whatever their dtype.

    Text, graphs and sequences stay a tuple. Raises SlotFault for a value with a wrong shape or wrong keys.
    """
    if isinstance(space, spaces.Dict):
        for slot, item in enumerate(items):
            if not isinstance(item, Mapping) or item.keys() != space.spaces.keys():
                found = sorted(item) if isinstance(item, Mapping) else type(item).__name__
                raise SlotFault(slot, f"{name} has the keys {found}, its space declares {sorted(space.spaces)}")
        return {k: stack(part, [item[k] for item in items], f"{name}[{k!r}]") for k, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        for slot, item in enumerate(items):
            if not isinstance(item, tuple | list) or len(item) != len(space.spaces):
                raise SlotFault(slot, f"{name} is not a tuple of the {len(space.spaces)} parts that its space declares")
        return tuple(stack(part, [item[i] for item in items], f"{name}[{i}]") for i, part in enumerate(space.spaces))
    if space.shape is None or space.dtype is None:
        return tuple(items)
    return batch(items, space.shape, name)


def batch(items: Sequence[Any], shape: tuple[int, ...], name: str) -> np.ndarray:
    """Arrays or numbers of one shape as a fresh array [B, *shape]. Raises SlotFault for anything else."""
    with contextlib.suppress(ValueError, TypeError):  # ragged
        together = np.array(items)
        if together.shape == (len(items), *shape) and together.dtype.kind in "biuf":
            return together
    return np.stack([_array(slot, item, shape, name) for slot, item in enumerate(items)])


def _array(slot: int, value: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise SlotFault(slot, f"{name} is not an array: {error}") from None
    if array.dtype.kind not in "biuf":
        raise SlotFault(slot, f"{name} has dtype {array.dtype}: {value!r}")
    if shape == () and array.size == 1:  # a reward of shape (1,) can mean only one thing
        array = array.reshape(())
    if array.shape != shape:
        raise SlotFault(slot, f"{name} has shape {array.shape} instead of {shape}")
    return array
