"""One tree of seeds: every random stream of a run is a named child of the run's root."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # commands that only read tables come through here and must not pay for torch
    import torch


def child(root: np.random.SeedSequence | int, *names: str | int) -> np.random.SeedSequence:
    """The stream called `names` below `root`, the same whenever and in whatever order it is asked for.

    Unlike `SeedSequence.spawn` this keeps no counter: `child(root, "train", 3, 7)` is always the seed of
    rollout 7 in slot 3. A name is stable across processes (CRC-32, not `hash`), and a leading 0 or 1 keeps
    the integer 5 and a word with the checksum 5 apart.
    """
    sequence = np.random.SeedSequence(root) if isinstance(root, int) else root
    path: list[int] = []
    for name in names:
        path += [1, zlib.crc32(name.encode())] if isinstance(name, str) else [0, int(name)]
    return np.random.SeedSequence(entropy=sequence.entropy, spawn_key=(*sequence.spawn_key, *path))


def integer_seed(sequence: np.random.SeedSequence) -> int:
    """A seed below 2**31, which every environment and library accepts."""
    return int(sequence.generate_state(1)[0] >> 1)


def torch_generator(sequence: np.random.SeedSequence, device: str | torch.device = "cpu") -> torch.Generator:
    """A private torch generator for the stream."""
    import torch

    return torch.Generator(device=device).manual_seed(integer_seed(sequence))
