"""gymnasium spaces <-> named arrays: the only place that knows one-hots, bounds and dtypes.

An observation is stored as one field for each leaf of its space, in the leaf's own type (a discrete value is one small
integer, pixels stay bytes), and expanded to network inputs (a discrete value is a one-hot) only when a network reads
it. Actions are stored zero-based and in the smallest integer type that holds them, or as vectors in [-1, 1].
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn import functional as F

#: The key of a Dict observation that holds the goals of an instruction, a Box of shape [K, features].
GOALS = "goals"
#: A Box with several axes is read as plain numbers up to this size; a larger one looks like an image.
MOST_NUMBERS = 1024
#: A discrete observation becomes a one-hot, which must fit into memory for every token of a batch.
MOST_VALUES = 2**24
#: A MultiDiscrete action is one choice among the product of its components, up to this many.
MOST_COMBINATIONS = 2**14


class UnsupportedSpace(ValueError):
    """A space that the core cannot train on; the message names the space, the key and the reason."""


@dataclass(frozen=True)
class Field:
    """One named entry of a timestep as it is stored, without the axis of the timesteps."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class _Leaf:
    """One Box, Discrete, MultiDiscrete or MultiBinary inside an observation space."""

    key: tuple[str, ...]  # path through nested Dicts
    field: Field
    start: npt.NDArray[np.int64] | None = None  # lowest valid value of each discrete component
    choices: tuple[int, ...] = ()  # number of values of each discrete component, empty for plain numbers

    @property
    def name(self) -> str:
        """Name of the field; no other field of a timestep can have it."""
        return GOALS if self.key == (GOALS,) else "/".join(("observation", *self.key))

    @property
    def features(self) -> int:
        return sum(self.choices) if self.choices else math.prod(self.field.shape)


def _leaves(space: gym.Space[Any], key: tuple[str, ...] = ()) -> list[_Leaf]:
    if isinstance(space, spaces.Dict):
        # Sorted, so that the features have the same order in every process that loads a checkpoint.
        return [leaf for name in sorted(space.spaces) for leaf in _leaves(space.spaces[name], (*key, name))]
    if isinstance(space, spaces.Box):
        return [_Leaf(key, Field(space.shape, _number_type(space)))]
    if isinstance(space, spaces.MultiBinary):
        return [_Leaf(key, Field(space.shape, np.dtype(np.uint8)))]
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        choices, start = _discrete(space)
        if int(np.abs(start).max() + choices.max()) > MOST_VALUES:
            raise UnsupportedSpace(f"observation {_name(key)} is {space}: too many values for a one-hot")
        dtype = np.min_scalar_type(int(choices.max()) - 1)
        return [_Leaf(key, Field((len(choices),), dtype), start, tuple(choices.tolist()))]
    raise UnsupportedSpace(
        f"observation {_name(key)} is {space}: a {type(space).__name__} has no encoder here, "
        "wrap the environment so that it returns Box, Discrete, MultiDiscrete, MultiBinary or a Dict of these"
    )


def _number_type(space: spaces.Box) -> np.dtype[Any]:
    """Integers of up to 32 bits keep their type, the rest become float32, which is what networks read."""
    whole = np.issubdtype(space.dtype, np.integer) or space.dtype == np.bool_
    return np.dtype(space.dtype) if whole and np.dtype(space.dtype).itemsize <= 4 else np.dtype(np.float32)


def _discrete(space: gym.Space[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Number of values and lowest value of each component."""
    if isinstance(space, spaces.Discrete):
        return np.array([space.n], np.int64), np.array([space.start], np.int64)
    if isinstance(space, spaces.MultiBinary):
        size = math.prod(space.shape)
        return np.full(size, 2, np.int64), np.zeros(size, np.int64)
    assert isinstance(space, spaces.MultiDiscrete)
    return space.nvec.ravel().astype(np.int64), np.asarray(space.start, np.int64).ravel()


def _name(key: tuple[str, ...]) -> str:
    return f"'{'/'.join(key)}'" if key else "space"


def _check_encodable(leaf: _Leaf, space: gym.Space[Any]) -> None:
    """Raises UnsupportedSpace for what makes no sense as plain numbers: images of bytes or floats, malformed goals."""
    axes, numbers = len(leaf.field.shape), math.prod(leaf.field.shape)
    pixels = isinstance(space, spaces.Box) and axes >= 2 and (leaf.field.dtype == np.uint8 or numbers > MOST_NUMBERS)
    if pixels:
        raise UnsupportedSpace(
            f"observation {_name(leaf.key)} is {space}: an image has no encoder here, "
            "wrap the environment so that it returns features (a flat Box, or MultiDiscrete for symbols)"
        )
    if leaf.name == GOALS and not (isinstance(space, spaces.Box) and axes == 2):
        raise UnsupportedSpace(
            f"observation {_name(leaf.key)} is {space}: goals must be a Box of shape [goals, features of one]; "
            "give the key another name if it holds something else"
        )


class ObservationCodec:
    """Turns batched observations of `space` into stored fields and stored fields into network inputs.

    Args:
        space: the observation space of one environment.

    Attributes:
        fields: name -> shape and type of what is stored.
        features: width of the network input, goals left out.
        goal_shape: (K goals, features of one), zeros if there are none.

    Raises:
        UnsupportedSpace: at construction, naming the space, the key and the reason.
    """

    def __init__(self, space: gym.Space[Any]) -> None:
        leaves = _leaves(space)
        for leaf in leaves:
            _check_encodable(leaf, _at(space, leaf.key))
        if not leaves or all(leaf.features == 0 for leaf in leaves):
            raise UnsupportedSpace(f"observation space {space} is empty: nothing to learn from")
        self._leaves = leaves
        self.fields = {leaf.name: leaf.field for leaf in leaves}
        if len(self.fields) < len(leaves):
            raise UnsupportedSpace(f"observation space {space}: two keys form the same path; leave '/' out of keys")
        self.goal_shape: tuple[int, ...] = self.fields[GOALS].shape if GOALS in self.fields else (0, 0)
        self._inputs = [leaf for leaf in leaves if leaf.name != GOALS]
        self.features = sum(leaf.features for leaf in self._inputs)

    def store(self, observation: Any) -> dict[str, npt.NDArray[Any]]:
        """Batched observation [B, ...] -> fields [B, ...], fresh contiguous arrays."""
        stored = {}
        for leaf in self._leaves:
            value = _at(observation, leaf.key)
            if leaf.start is not None:
                value = np.asarray(value).reshape(len(value), -1) - leaf.start
            array = np.array(value, leaf.field.dtype, order="C")
            stored[leaf.name] = array.reshape(len(array), *leaf.field.shape)
        return stored

    def expand(self, fields: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Fields [N, ...] -> (features [N, features], goals [N, K * goal features])."""
        parts = []
        for leaf in self._inputs:
            stored = fields[leaf.name].flatten(1)
            if not leaf.choices:
                parts.append(stored.float())
            done = 0
            for n, alike in itertools.groupby(leaf.choices):  # one call for a whole deck of cards, not one per card
                count = len(list(alike))
                parts.append(F.one_hot(stored[:, done : done + count].long(), n).flatten(1).float())
                done += count
        some = next(iter(fields.values()))
        nothing = torch.zeros(len(some), 0, device=some.device)
        goals = fields[GOALS].flatten(1).float() if GOALS in self.fields else nothing
        return parts[0] if len(parts) == 1 else torch.cat(parts or [nothing], dim=1), goals


def _at(tree: Any, key: tuple[str, ...]) -> Any:
    for name in key:
        tree = tree[name]
    return tree


class ActionCodec:
    """Turns the agent's actions into valid actions of `space` and describes how they are stored.

    A discrete space (MultiDiscrete and MultiBinary as the row-major product of their components) has `discrete = True`
    and `size` choices. A Box has `size` dimensions: the agent acts in [-1, 1]; bounded dimensions are rescaled to their
    bounds, those with one bound to the 2 units next to it, unbounded ones are not rescaled. Integers are rounded.

    Raises:
        UnsupportedSpace: at construction, naming the space and the reason.
    """

    def __init__(self, space: gym.Space[Any]) -> None:
        self.space = space
        self.discrete = isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary)
        if self.discrete:
            self._choices, self._start = _discrete(space)
            self.size = math.prod(self._choices.tolist())
            if not isinstance(space, spaces.Discrete) and self.size > MOST_COMBINATIONS:
                raise UnsupportedSpace(
                    f"action space {space}: {self.size:,} combinations, and each needs a value; "
                    f"the most is {MOST_COMBINATIONS:,}"
                )
            # -1 stands for "no action yet", so the type is signed and 256 actions do not wrap.
            self.field = Field((), np.dtype(np.min_scalar_type(-self.size)))
            self.blank: float = -1
        elif isinstance(space, spaces.Box) and space.shape:
            self.size = int(np.prod(space.shape))
            self.field, self.blank = Field((self.size,), np.dtype(np.float32)), -2.0
            self._low, self._high = (bound.ravel().astype(np.float64) for bound in (space.low, space.high))
            below, above = np.isfinite(self._low), np.isfinite(self._high)
            low = np.where(below, self._low, np.where(above, self._high - 2, -1.0))
            high = np.where(above, self._high, np.where(below, self._low + 2, 1.0))
            self._centre, self._scale = low / 2 + high / 2, high / 2 - low / 2
        else:
            kinds = "Box, Discrete, MultiDiscrete and MultiBinary"
            raise UnsupportedSpace(f"action space {space}: only {kinds} actions can be learned")

    def to_env(self, actions: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Stored actions [B] or [B, A] -> actions of the vector environment."""
        if not self.discrete:
            scaled = np.clip(self._centre + self._scale * actions, self._low, self._high)
            if np.issubdtype(self.space.dtype, np.integer):
                return self._whole(scaled)
            return scaled.reshape(-1, *self.space.shape).astype(self.space.dtype)  # type: ignore[misc]
        if isinstance(self.space, spaces.Discrete):
            return actions.astype(np.int64) + self._start[0]
        parts = np.stack(np.unravel_index(actions.astype(np.int64), self._choices), axis=-1) + self._start
        return parts.reshape(-1, *self.space.shape).astype(self.space.dtype)  # type: ignore[misc]

    def _whole(self, scaled: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        """The nearest integers within the bounds, which float64 rounds past 2**53: 2**63 would wrap in int64."""
        most = np.iinfo(self.space.dtype).max
        largest = float(most) if int(float(most)) == most else np.nextafter(float(most), 0)
        whole = np.minimum(np.rint(scaled), largest).reshape(-1, *self.space.shape)  # type: ignore[misc]
        return np.clip(whole.astype(self.space.dtype), self.space.low, self.space.high)  # type: ignore[attr-defined]

    def features(self, stored: Tensor) -> Tensor:
        """Stored actions [N] or [N, A] -> network input [N, size]; "no action yet" is all 1 or -2 (agent.md 1.2)."""
        if not self.discrete:
            return stored.float()
        stored = stored.long()
        one_hot = F.one_hot(stored.clamp(min=0), self.size).float()
        return torch.where((stored < 0).unsqueeze(-1), torch.ones_like(one_hot), one_hot)
