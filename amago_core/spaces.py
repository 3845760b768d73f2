"""gymnasium spaces <-> flat arrays: the only place that knows offsets, one-hots, bounds and dtypes.

Observations are stored as compact rows of float32 (a discrete value is one number) and expanded to network
inputs (a discrete value is a one-hot) only when a network reads them. Actions are stored zero-based and in the
smallest integer type that holds them, or as vectors in [-1, 1].
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn import functional as F

FloatArray: TypeAlias = npt.NDArray[np.float32]

#: The key of a Dict observation that holds the goals of an instruction, a Box of shape [K, features].
GOALS = "goals"
#: float32 holds every integer up to here, so discrete observations are stored without loss.
LARGEST_STORED_INTEGER = 2**24
#: A MultiDiscrete action is one choice among the product of its components, up to this many.
MOST_COMBINATIONS = 2**14


class UnsupportedSpace(ValueError):
    """A space that the core cannot train on; the message names the space, the key and the reason."""


@dataclass(frozen=True)
class _Leaf:
    """One Box, Discrete or MultiDiscrete inside an observation space."""

    key: tuple[str, ...]  # path through nested Dicts
    width: int  # columns of the stored row
    start: FloatArray | None  # lowest valid value of each discrete column, None for a Box
    choices: tuple[int, ...]  # number of values of each discrete column, empty for a Box

    @property
    def features(self) -> int:
        return sum(self.choices) if self.choices else self.width


def _leaves(space: gym.Space[Any], key: tuple[str, ...] = ()) -> list[_Leaf]:
    if isinstance(space, spaces.Dict):
        # Sorted, so that a checkpoint reads the features in the same order in every process (pitfall 22).
        return [leaf for name in sorted(space.spaces) for leaf in _leaves(space.spaces[name], (*key, name))]
    if isinstance(space, spaces.Box):
        if _is_image(space):
            raise UnsupportedSpace(
                f"observation {_name(key)} is {space}: an image has no encoder here, "
                "wrap the environment so that it gives features (a flat Box, or MultiDiscrete for symbols)"
            )
        return [_Leaf(key, int(np.prod(space.shape)), None, ())]
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        choices, start = _discrete(space)
        if int(np.abs(start).max() + choices.max()) > LARGEST_STORED_INTEGER:
            raise UnsupportedSpace(f"observation {_name(key)} is {space}: more values than float32 counts exactly")
        return [_Leaf(key, len(choices), start.astype(np.float32), tuple(choices.tolist()))]
    raise UnsupportedSpace(
        f"observation {_name(key)} is {space}: a {type(space).__name__} has no encoder here, "
        "wrap the environment so that it gives Box, Discrete, MultiDiscrete or a Dict of these"
    )


def _discrete(space: gym.Space[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Number of values and lowest value of each component."""
    if isinstance(space, spaces.Discrete):
        return np.array([space.n], np.int64), np.array([space.start], np.int64)
    assert isinstance(space, spaces.MultiDiscrete)
    return space.nvec.ravel().astype(np.int64), np.asarray(space.start, np.int64).ravel()


def _is_image(space: spaces.Box) -> bool:
    """Pixels or grids of symbols, also stacked, as gymnasium environments declare them: unfit as plain numbers."""
    return len(space.shape) >= 2 and space.dtype == np.uint8


def _name(key: tuple[str, ...]) -> str:
    return f"'{'/'.join(key)}'" if key else "space"


class ObservationCodec:
    """Turns batched observations of `space` into stored rows and stored rows into network inputs.

    Args:
        space: the observation space of one environment.

    Raises:
        UnsupportedSpace: at construction, naming the space, the key and the reason.
    """

    def __init__(self, space: gym.Space[Any]) -> None:
        leaves = _leaves(space)
        goals = space.spaces.get(GOALS) if isinstance(space, spaces.Dict) else None
        instruction = isinstance(goals, spaces.Box) and len(goals.shape) == 2  # else a key like any other
        self.goal_shape: tuple[int, ...] = tuple(goals.shape) if instruction else (0, 0)  # type: ignore[union-attr, arg-type]
        # Goals go through an encoder of their own; they stand last in the row so that one slice finds them.
        self._leaves = sorted(leaves, key=lambda leaf: instruction and leaf.key == (GOALS,))
        self.row_width = sum(leaf.width for leaf in self._leaves)
        goal_width = int(np.prod(self.goal_shape))
        self.features = sum(leaf.features for leaf in self._leaves) - goal_width
        self._plain_width = self.row_width - goal_width
        if self.row_width == 0:
            raise UnsupportedSpace(f"observation space {space} is empty: nothing to learn from")

    def store(self, observation: Any) -> FloatArray:
        """Batched observation [B, ...] -> rows [B, row_width], a fresh contiguous float32 array."""
        columns = []
        for leaf in self._leaves:
            value = observation
            for name in leaf.key:
                value = value[name]
            column = np.asarray(value, np.float32).reshape(len(value), leaf.width)
            columns.append(column if leaf.start is None else column - leaf.start)
        return columns[0].copy() if len(columns) == 1 else np.concatenate(columns, axis=1)

    def expand(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Rows [N, row_width] -> (features [N, features], goals [N, K * goal features])."""
        if all(not leaf.choices for leaf in self._leaves):
            return rows[:, : self._plain_width], rows[:, self._plain_width :]
        parts, at = [], 0
        for leaf in self._leaves:
            columns = rows[:, at : at + leaf.width]
            at += leaf.width
            if at > self._plain_width:
                break  # the goals, which stand last
            if not leaf.choices:
                parts.append(columns)
            done = 0
            for n, alike in itertools.groupby(leaf.choices):  # a deck of cards is one one-hot, not one a card
                count = len(list(alike))
                parts.append(F.one_hot(columns[:, done : done + count].long(), n).flatten(1).to(rows.dtype))
                done += count
        return torch.cat(parts, dim=1), rows[:, self._plain_width :]


class ActionCodec:
    """Turns the agent's actions into valid actions of `space` and describes how they are stored.

    A discrete space (MultiDiscrete as the row-major product of its components) has `discrete = True` and `size`
    choices. A Box has `size` dimensions: the agent acts in [-1, 1], bounded dimensions are rescaled to their
    bounds, those with one bound to the 2 units beside it, unbounded ones are passed on unscaled. Integers are rounded.

    Raises:
        UnsupportedSpace: at construction, naming the space and the reason.
    """

    def __init__(self, space: gym.Space[Any]) -> None:
        self.space = space
        self.discrete = isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
        if self.discrete:
            self._choices, self._start = _discrete(space)
            self.size = math.prod(self._choices.tolist())
            if isinstance(space, spaces.MultiDiscrete) and self.size > MOST_COMBINATIONS:
                raise UnsupportedSpace(
                    f"action space {space}: {self.size:,} combinations, and each needs a value; "
                    f"the most is {MOST_COMBINATIONS:,}"
                )
            # -1 stands for "no action yet", so the type is signed and 256 actions do not wrap (pitfall 34).
            self.dtype: np.dtype[Any] = np.dtype(np.min_scalar_type(-self.size))
            self.row_shape: tuple[int, ...] = ()
            self.blank: float = -1
        elif isinstance(space, spaces.Box) and space.shape:
            self.size = int(np.prod(space.shape))
            self.dtype, self.row_shape, self.blank = np.dtype(np.float32), (self.size,), -2.0
            self._low, self._high = (bound.ravel().astype(np.float64) for bound in (space.low, space.high))
            below, above = np.isfinite(self._low), np.isfinite(self._high)
            low = np.where(below, self._low, np.where(above, self._high - 2, -1.0))
            high = np.where(above, self._high, np.where(below, self._low + 2, 1.0))
            self._centre, self._scale = low / 2 + high / 2, high / 2 - low / 2
        else:
            raise UnsupportedSpace(f"action space {space}: only Box, Discrete and MultiDiscrete actions can be learned")

    def to_env(self, actions: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Stored actions [B] or [B, A] -> what the vector environment takes."""
        if not self.discrete:
            scaled = np.clip(self._centre + self._scale * actions, self._low, self._high)
            if np.issubdtype(self.space.dtype, np.integer):
                scaled = np.rint(scaled)
            return scaled.reshape(-1, *self.space.shape).astype(self.space.dtype)  # type: ignore[misc]
        if isinstance(self.space, spaces.Discrete):
            return actions.astype(np.int64) + self._start[0]
        parts = np.stack(np.unravel_index(actions.astype(np.int64), self._choices), axis=-1) + self._start
        return parts.reshape(-1, *self.space.shape).astype(self.space.dtype)  # type: ignore[misc]

    def features(self, stored: Tensor) -> Tensor:
        """Stored actions [N] or [N, A] -> network input [N, size]; no action yet is all ones or all -2 (A.1)."""
        if not self.discrete:
            return stored.float()
        stored = stored.long()
        one_hot = F.one_hot(stored.clamp(min=0), self.size).float()
        return torch.where((stored < 0).unsqueeze(-1), torch.ones_like(one_hot), one_hot)
