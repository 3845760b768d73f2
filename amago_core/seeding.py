"""One tree of seeds: every random stream of a run is a named child of the run's root."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # commands that only read tables import this module and must not import torch
    import torch

Name = tuple[str | int, ...]


class Stream(np.random.SeedSequence):
    """A seed sequence that knows its name, so that an audit can see when it is used (see `listening`)."""

    name: Name = ()

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        state = super().generate_state(n_words, dtype)
        for listener in _listeners:
            listener(self.name, int(super().generate_state(1, np.uint64)[0]))
        return state


_listeners: list[Callable[[Name, int], None]] = []


@contextlib.contextmanager
def listening() -> Iterator[list[tuple[Name, int]]]:
    """Lists, in order, the name and first value of each stream that seeds a generator inside the `with` block.

    A stream listed twice is a fault: both users draw the same numbers.
    """
    heard: list[tuple[Name, int]] = []

    def listener(name: Name, value: int) -> None:
        heard.append((name, value))

    _listeners.append(listener)
    try:
        yield heard
    finally:
        _listeners.remove(listener)


def child(root: np.random.SeedSequence | int, *names: str | int) -> Stream:
    """The stream called `names` below `root`: the same one whenever, and in whatever order, it is requested.

    Unlike `SeedSequence.spawn` this keeps no counter: `child(root, "train", 3, 7)` is always the seed of
    rollout 7 in slot 3. Names are stable across processes (CRC-32, not `hash`), and a leading 0 or 1 tells
    the integer 5 from a word whose checksum is 5.
    """
    sequence = np.random.SeedSequence(root) if isinstance(root, int) else root
    path: list[int] = []
    for name in names:
        path += [1, zlib.crc32(name.encode())] if isinstance(name, str) else [0, int(name)]
    stream = Stream(entropy=sequence.entropy, spawn_key=(*sequence.spawn_key, *path))
    above = sequence.name if isinstance(sequence, Stream) else (f"seed {sequence.entropy}",)
    stream.name = (*above, *names)
    return stream


def integer_seed(sequence: np.random.SeedSequence) -> int:
    """A seed below 2**31, which every environment and library accepts."""
    return int(sequence.generate_state(1)[0] >> 1)


def torch_generator(sequence: np.random.SeedSequence, device: str | torch.device = "cpu") -> torch.Generator:
    """A private torch generator for the stream."""
    import torch

    return torch.Generator(device=device).manual_seed(integer_seed(sequence))
