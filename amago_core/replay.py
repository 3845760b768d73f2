"""The trajectory store: a memory-mapped ring of whole rollouts with a small index."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from amago_core.sequences import Batch, Packing
from amago_core.spaces import ActionCodec, ObservationCodec


@dataclass(frozen=True)
class Trajectory:
    """One rollout: T transitions are T + 1 tokens, see `sequences`."""

    observation: npt.NDArray[np.float32]  # [T + 1, row]
    action: npt.NDArray[Any]  # [T + 1] or [T + 1, A], the previous action
    reward: npt.NDArray[np.float32]  # [T + 1], the previous reward
    terminal: npt.NDArray[np.bool_]  # [T + 1]
    reset: npt.NDArray[np.bool_]  # [T + 1]

    def __len__(self) -> int:
        return len(self.reward)


class Replay:
    """Keeps the newest rollouts and draws packed batches of slices from them.

    The files are allocated in full at creation, so a disk without room is an error there and not a crash hours
    later. A rollout lies in one piece; the oldest ones make way for it.

    Args:
        folder: for the files, one per field.
        observations, actions: give the widths and dtypes of the fields.
        tokens: capacity of the ring.
        trajectories: the most rollouts kept.

    Raises:
        OSError: the folder has no room for the ring, with the size that it needs.
    """

    def __init__(
        self, folder: Path, observations: ObservationCodec, actions: ActionCodec, tokens: int, trajectories: int
    ) -> None:
        self.capacity, self.most = tokens, trajectories
        folder.mkdir(parents=True, exist_ok=True)
        layout: dict[str, tuple[tuple[int, ...], npt.DTypeLike]] = {
            "observation": ((observations.row_width,), np.float32),
            "action": (actions.row_shape, actions.dtype),
            "reward": ((), np.float32),
            "terminal": ((), np.bool_),
            "reset": ((), np.bool_),
        }
        self._fields = {name: _allocate(folder / name, (tokens, *s), dtype) for name, (s, dtype) in layout.items()}
        self._start = np.zeros(trajectories, np.int64)  # a ring of (first token, tokens), oldest at self._oldest
        self._length = np.zeros(trajectories, np.int64)
        self._oldest, self._count, self._head = 0, 0, 0
        self._waiting: tuple[int, int, int] | None = None  # the slice that crossed the last batch's token budget

    def __len__(self) -> int:
        """Number of rollouts kept."""
        return self._count

    def add(self, trajectory: Trajectory) -> None:
        """Copies a rollout of at least one transition into the ring."""
        n = len(trajectory)
        if not 2 <= n <= self.capacity:
            raise ValueError(f"a rollout of {n} tokens does not fit a replay of {self.capacity}: raise replay_tokens")
        if self._head + n > self.capacity:  # not enough room before the end of the ring: the rest stays unused
            self._drop(self._head, self.capacity)
            self._head = 0
        self._drop(self._head, self._head + n)
        if self._count == self.most:
            self._forget_oldest()
        for name, field in self._fields.items():
            field[self._head : self._head + n] = getattr(trajectory, name)
        slot = (self._oldest + self._count) % self.most
        self._start[slot], self._length[slot] = self._head, n
        self._count += 1
        self._head += n

    def _drop(self, begin: int, end: int) -> None:
        """Forgets the oldest rollouts as long as they touch the tokens [begin, end)."""
        while self._count:
            start, length = self._start[self._oldest], self._length[self._oldest]
            if start >= end or start + length <= begin:
                return
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        start, length = self._start[self._oldest], self._length[self._oldest]
        if self._waiting is not None and start <= self._waiting[0] < start + length:
            self._waiting = None
        self._oldest = (self._oldest + 1) % self.most
        self._count -= 1

    def sample(
        self, rng: np.random.Generator, sequences: int, tokens: int, context: int, by_transition: bool = False
    ) -> Batch:
        """A packed batch of slices.

        Args:
            rng: of the draw.
            sequences: slices in the batch.
            tokens: budget of the batch; the slice that would cross it opens the next batch instead.
            context: transitions of a slice at most; longer rollouts give a random contiguous piece, and every start
                is as likely, the last one included (pitfall 6).
            by_transition: rollouts are drawn in proportion to their transitions, not uniformly (the paper's rule,
                which over-samples short rollouts).
        """
        if not self._count:
            raise ValueError("the replay is empty: collect a rollout before the first update")
        live = (self._oldest + np.arange(self._count)) % self.most
        starts, lengths = self._start[live], self._length[live]
        if by_transition:
            cumulative = np.cumsum(lengths - 1)
            chosen = np.searchsorted(cumulative, rng.integers(cumulative[-1], size=sequences), side="right")
        else:
            chosen = rng.integers(self._count, size=sequences)
        size = np.minimum(lengths[chosen], context + 1)
        offset = rng.integers(lengths[chosen] - size + 1)  # [sequences], from 0 to the last legal start
        slices = list(zip((starts[chosen] + offset).tolist(), offset.tolist(), size.tolist(), strict=True))
        return self._gather(self._within(slices, tokens))

    def _within(self, slices: list[tuple[int, int, int]], budget: int) -> list[tuple[int, int, int]]:
        """As many slices as the token budget allows, at least one, beginning with the one left over last time."""
        if self._waiting is not None:
            slices = [self._waiting, *slices[:-1]]
        total, self._waiting = 0, None
        for i, piece in enumerate(slices):
            total += piece[2]
            if total > budget and i:
                self._waiting = piece
                return slices[:i]
        return slices

    def _gather(self, slices: list[tuple[int, int, int]]) -> Batch:
        """(first token, timestep, tokens) of each slice -> packed batch."""
        first, offset, size = (np.array(x, np.int64) for x in zip(*slices, strict=True))
        packing = Packing(size)
        within = np.arange(packing.tokens) - np.repeat(packing.starts, size)
        index = np.repeat(first, size) + within
        fields = {name: torch.from_numpy(np.ascontiguousarray(f[index])) for name, f in self._fields.items()}
        return Batch(packing=packing, position=torch.from_numpy(np.repeat(offset, size) + within), **fields)


def _allocate(path: Path, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A memory-mapped file of zeros whose blocks exist on the disk from the start."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    with open(path, "wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, max(size, 1))
        except OSError as error:
            what = f"no room for {size / 1e6:.0f} MB of replay ({error.strerror})"
            raise OSError(error.errno, what, str(path)) from None
    return np.memmap(path, dtype=dtype, mode="r+", shape=shape)
