"""The trajectory store: a memory-mapped ring of whole rollouts with a small index."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from amago_core.sequences import Batch, Packing
from amago_core.spaces import ActionCodec, ObservationCodec

SPARE_BYTES = 2**26  # beyond the capacity, as long as it is not doubled: minutes of small rollouts, and little disk


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


class ReplayDamaged(ValueError):
    """The files of a replay that is to be continued are not what they were; the line names the file."""


class Replay:
    """Keeps the newest rollouts and draws packed batches of slices from them.

    The files are allocated in full at creation, so a disk without room is an error there and not a crash hours
    later. A rollout lies in one piece; the oldest ones make way for it.

    A checkpoint holds the index only (`state_dict`). So that it can be continued, what the newest two checkpoints
    count on stays in the files: they have room beyond the capacity, and `checkpoint_due` says when it runs out. Which
    rollouts are kept does not depend on it: that follows from a ring of the capacity alone.

    Args:
        folder: for the files, one per field.
        observations, actions: give the widths and dtypes of the fields.
        tokens: capacity of the ring.
        trajectories: the most rollouts kept.
        burst: the most tokens that are added between two chances of a checkpoint; 0: none will be made.
        state: of `state_dict`, to go on from with the files as they are.

    Raises:
        OSError: the folder has no room for the ring, with the size that it needs.
        ReplayDamaged: `state` is given and a file is missing, cut or changed.
    """

    def __init__(
        self,
        folder: Path,
        observations: ObservationCodec,
        actions: ActionCodec,
        tokens: int,
        trajectories: int,
        burst: int = 0,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self.capacity, self.most, self.burst = tokens, trajectories, burst
        folder.mkdir(parents=True, exist_ok=True)
        layout: dict[str, tuple[tuple[int, ...], npt.DTypeLike]] = {
            "observation": ((observations.row_width,), np.float32),
            "action": (actions.row_shape, actions.dtype),
            "reward": ((), np.float32),
            "terminal": ((), np.bool_),
            "reset": ((), np.bool_),
        }
        token_bytes = sum(int(np.prod(shape)) * np.dtype(dtype).itemsize for shape, dtype in layout.values())
        # Four bursts: one until the request for a checkpoint is heard, one more until the second, which is what sets
        # space free, and what is wasted at the end of the ring.
        self.size = tokens + (max(4 * burst, min(tokens, SPARE_BYTES // token_bytes)) if burst else 0)
        place = _allocate if state is None else _reopen
        self._fields = {name: place(folder / name, (self.size, *s), dtype) for name, (s, dtype) in layout.items()}
        # The index: a ring of rollouts, the oldest at self._oldest. An address counts the tokens since the beginning,
        # so that comparing two tells which is older; `_start` is one in the files, `_ring` one in the capacity.
        self._start = np.zeros(trajectories, np.int64)
        self._ring = np.zeros(trajectories, np.int64)
        self._length = np.zeros(trajectories, np.int64)
        self._check = np.zeros(trajectories, np.int64)  # CRC-32, taken when a checkpoint first counts on the rollout
        self._oldest, self._count = 0, 0
        self._head, self._ring_head = 0, 0
        self._unchecked = 0  # from this address on there is no CRC yet
        self._held: list[int] = []  # the oldest address of each kept checkpoint
        self._waiting: tuple[int, int, int] | None = None  # the slice that crossed the last batch's token budget
        if state is not None:
            self._restore(state, folder)

    def __len__(self) -> int:
        """Number of rollouts kept."""
        return self._count

    @property
    def checkpoint_due(self) -> bool:
        """Whether the room for rollouts that no kept checkpoint counts on is running out."""
        return bool(self._held) and self.size - (self._head - self._held[0]) < 2 * self.burst

    def add(self, trajectory: Trajectory) -> None:
        """Copies a rollout of at least one transition into the ring."""
        n = len(trajectory)
        if not 2 <= n <= self.capacity:
            raise ValueError(f"a rollout of {n} tokens does not fit a replay of {self.capacity}: raise replay_tokens")
        start, ring = _fit(self._head, n, self.size), _fit(self._ring_head, n, self.capacity)
        while self._count and self._ring[self._oldest] + self.capacity < ring + n:
            self._forget_oldest()
        if self._count == self.most:
            self._forget_oldest()
        if self._held and start + n - self._held[0] > self.size:
            raise RuntimeError("the replay has no room left that its checkpoints do not count on; save another first")
        at = start % self.size
        for name, field in self._fields.items():
            field[at : at + n] = getattr(trajectory, name)
        slot = (self._oldest + self._count) % self.most
        self._start[slot], self._ring[slot], self._length[slot] = start, ring, n
        self._count += 1
        self._head, self._ring_head = start + n, ring + n

    def _forget_oldest(self) -> None:
        start, length = self._start[self._oldest], self._length[self._oldest]
        if self._waiting is not None and start <= self._waiting[0] < start + length:
            self._waiting = None
        self._oldest = (self._oldest + 1) % self.most
        self._count -= 1

    def state_dict(self) -> dict[str, Any]:
        """The index. Makes the files durable, and keeps what it counts on until two later ones have been taken."""
        live = self._live()
        for slot in live[self._start[live] >= self._unchecked]:
            self._check[slot] = self._crc(slot)
        self._unchecked = self._head
        for field in self._fields.values():
            field.flush()
        oldest = int(self._start[self._oldest]) if self._count else self._head
        self._held = [*self._held[-1:], oldest]
        return {
            "capacity": [self.capacity, self.most, self.size],
            "index": np.stack([self._start[live], self._ring[live], self._length[live], self._check[live]]),
            "heads": [self._head, self._ring_head],
            "held": self._held,
            "waiting": self._waiting,
        }

    def _restore(self, state: Mapping[str, Any], folder: Path) -> None:
        if state["capacity"] != [self.capacity, self.most, self.size]:
            raise ReplayDamaged(f"{folder} holds a replay of another size")
        index = np.asarray(state["index"])
        self._count = index.shape[1]
        for ring, values in zip((self._start, self._ring, self._length, self._check), index, strict=True):
            ring[: self._count] = values
        self._head, self._ring_head = state["heads"]
        self._unchecked, self._held, self._waiting = self._head, list(state["held"]), state["waiting"]
        for slot in range(self._count):
            if self._crc(slot) != self._check[slot]:
                raise ReplayDamaged(f"{folder}: the replay files are not what they were at the checkpoint")

    def _crc(self, slot: int) -> int:
        at, n = self._start[slot] % self.size, self._length[slot]
        check = 0
        for field in self._fields.values():
            check = zlib.crc32(field[at : at + n].tobytes(), check)
        return check

    def _live(self) -> npt.NDArray[np.int64]:
        """Slots of the index in use, oldest first."""
        return (self._oldest + np.arange(self._count)) % self.most

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
            by_transition: a rollout is drawn in proportion to how many slices it takes to show its transitions, so
                that each is as likely; else uniformly (the paper's rule, which over-samples the transitions of short
                rollouts where longer ones are cut, A.13). Where none is cut both are the same.
        """
        if not self._count:
            raise ValueError("the replay is empty: collect a rollout before the first update")
        live = self._live()
        starts, lengths = self._start[live], self._length[live]
        if by_transition:
            cumulative = np.cumsum((lengths - 1) / np.minimum(lengths - 1, context))
            chosen = np.searchsorted(cumulative[:-1], rng.uniform(high=cumulative[-1], size=sequences), side="right")
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
        """(address, timestep, tokens) of each slice -> packed batch."""
        first, offset, size = (np.array(x, np.int64) for x in zip(*slices, strict=True))
        packing = Packing(size)
        within = np.arange(packing.tokens) - np.repeat(packing.starts, size)
        index = np.repeat(first % self.size, size) + within
        fields = {name: torch.from_numpy(np.ascontiguousarray(f[index])) for name, f in self._fields.items()}
        return Batch(packing=packing, position=torch.from_numpy(np.repeat(offset, size) + within), **fields)


def _fit(head: int, n: int, size: int) -> int:
    """The first address from `head` on at which n tokens lie in one piece in a ring of `size`."""
    return head if head % size + n <= size else -(-head // size) * size


def _allocate(path: Path, shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.memmap[Any, Any]:
    """A memory-mapped file of zeros whose blocks exist on the disk from the start."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    with open(path, "wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, max(size, 1))
        except OSError as error:
            what = f"no room for {size / 1e6:.0f} MB of replay ({error.strerror})"
            raise OSError(error.errno, what, str(path)) from None
    return np.memmap(path, dtype=dtype, mode="r+", shape=shape)


def _reopen(path: Path, shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.memmap[Any, Any]:
    """The file that `_allocate` made, with what it holds."""
    size = max(int(np.prod(shape)) * np.dtype(dtype).itemsize, 1)
    if not path.is_file():
        raise ReplayDamaged(f"the replay file {path} is missing")
    if path.stat().st_size != size:
        raise ReplayDamaged(f"the replay file {path} has {path.stat().st_size} bytes instead of {size}")
    return np.memmap(path, dtype=dtype, mode="r+", shape=shape)
