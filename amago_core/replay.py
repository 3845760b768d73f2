"""The store of whole rollouts: a memory-mapped ring with a small index. `sampler` draws batches from it."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from amago_core.sequences import Layout, Timesteps

SPARE_BYTES = 2**26  # beyond the capacity, as long as it is not doubled: minutes of small rollouts, and little disk


class ReplayDamaged(ValueError):
    """The files of a replay to be resumed are missing or have changed; the message names the file."""


class Replay:
    """Keeps the newest rollouts. Each has a serial number, counted from the first that was ever added.

    The files are allocated in full at creation, so a full disk is an error at the start and not a crash hours later.
    A rollout is stored in one piece; the oldest ones make way for it.

    A checkpoint holds only the index (`state_dict`). The files keep every rollout that the newest two checkpoints
    refer to: they have room beyond the capacity, and `checkpoint_due` tells when it runs out. Which rollouts count as
    kept does not depend on checkpoints, only on the capacity.

    Args:
        folder: for the files, one per field.
        layout: names, shapes and types of the fields.
        tokens: capacity of the ring.
        trajectories: the most rollouts kept.
        burst: the most tokens added between two opportunities for a checkpoint; 0: there will be no checkpoints.
        state: from `state_dict`, to resume with the files as they are.

    Raises:
        OSError: the folder has no room for the ring; the message states the size needed.
        ReplayDamaged: `state` is given and a file is missing, truncated or changed.
    """

    def __init__(
        self,
        folder: Path,
        layout: Layout,
        tokens: int,
        trajectories: int,
        burst: int = 0,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self.capacity, self.most, self.burst = tokens, trajectories, burst
        folder.mkdir(parents=True, exist_ok=True)
        token_bytes = sum(field.nbytes for field in layout.values())
        # Four bursts: one until the requested checkpoint is made, one more until the second, which is the one that
        # frees space, and what is wasted at the end of the ring.
        self.size = tokens + (max(4 * burst, min(tokens, SPARE_BYTES // token_bytes)) if burst else 0)
        place = _allocate if state is None else _reopen
        self._fields = {
            name: place(folder / quote(name, safe=""), (self.size, *field.shape), field.dtype)
            for name, field in layout.items()
        }
        # The index: a ring of rollouts, the oldest at self._oldest. An address counts tokens since the beginning, so
        # comparing two tells which is older; `_start` is an address in the files, `_ring` in a ring of the capacity.
        self._start = np.zeros(trajectories, np.int64)
        self._ring = np.zeros(trajectories, np.int64)
        self._length = np.zeros(trajectories, np.int64)
        self._check = np.zeros(trajectories, np.int64)  # CRC-32, taken when a checkpoint first refers to the rollout
        self._oldest, self._count, self._added = 0, 0, 0
        self._head, self._ring_head = 0, 0
        self._unchecked = 0  # rollouts from this address on have no CRC yet
        self._held: list[int] = []  # the oldest address that each kept checkpoint refers to
        if state is not None:
            self._restore(state, folder)

    def __len__(self) -> int:
        """Number of rollouts kept."""
        return self._count

    @property
    def first(self) -> int:
        """Serial number of the oldest rollout kept."""
        return self._added - self._count

    @property
    def serials(self) -> npt.NDArray[np.int64]:
        """Serial numbers of the rollouts kept, oldest first."""
        return np.arange(self.first, self._added)

    def lengths(self, serials: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Timesteps of rollouts that are kept."""
        lengths: npt.NDArray[np.int64] = self._length[self._slots(serials)]
        return lengths

    def rollout(self, serial: int) -> Timesteps:
        """A rollout that is kept, as read-only views into the files."""
        slot = self._slots(serial)
        at, n = self._start[slot] % self.size, self._length[slot]
        views = {name: field[at : at + n] for name, field in self._fields.items()}
        for view in views.values():
            view.flags.writeable = False
        return views

    def gather(
        self, serials: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
    ) -> Timesteps:
        """Copies pieces of rollouts, one after another: `size` timesteps of rollout `serial` from `start` on."""
        ends = np.cumsum(sizes)
        first = (self._start[self._slots(serials)] + starts) % self.size
        index = np.arange(ends[-1]) + np.repeat(first - (ends - sizes), sizes)
        return {name: np.asarray(field).take(index, axis=0) for name, field in self._fields.items()}

    def _slots(self, serials: Any) -> Any:
        """Positions of rollouts in the index."""
        return (self._oldest + serials - self.first) % self.most

    @property
    def checkpoint_due(self) -> bool:
        """Whether the space that no kept checkpoint refers to is running out."""
        return bool(self._held) and self.size - (self._head - self._held[0]) < 2 * self.burst

    def add(self, rollout: Timesteps) -> None:
        """Copies a rollout of at least one transition into the ring."""
        n = len(rollout["reward"])
        if not 2 <= n <= self.capacity:
            raise ValueError(f"a rollout of {n} tokens does not fit a replay of {self.capacity}: raise replay_tokens")
        start, ring = _fit(self._head, n, self.size), _fit(self._ring_head, n, self.capacity)
        while self._count and self._ring[self._oldest] + self.capacity < ring + n:
            self._forget_oldest()
        if self._count == self.most:
            self._forget_oldest()
        if self._held and start + n - self._held[0] > self.size:
            raise RuntimeError("the replay has no room left beside what its checkpoints refer to; save another first")
        at = start % self.size
        for name, field in self._fields.items():
            field[at : at + n] = rollout[name]
        slot = (self._oldest + self._count) % self.most
        self._start[slot], self._ring[slot], self._length[slot] = start, ring, n
        self._count += 1
        self._added += 1
        self._head, self._ring_head = start + n, ring + n

    def _forget_oldest(self) -> None:
        self._oldest = (self._oldest + 1) % self.most
        self._count -= 1

    def state_dict(self) -> dict[str, Any]:
        """The index. Makes the files durable, and keeps what it refers to until two later ones have been taken."""
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
            "added": self._added,
            "held": self._held,
        }

    def _restore(self, state: Mapping[str, Any], folder: Path) -> None:
        if state["capacity"] != [self.capacity, self.most, self.size]:
            raise ReplayDamaged(f"{folder} holds a replay of another size")
        index = np.asarray(state["index"])
        self._count = index.shape[1]
        for ring, values in zip((self._start, self._ring, self._length, self._check), index, strict=True):
            ring[: self._count] = values
        self._head, self._ring_head = state["heads"]
        self._unchecked, self._held, self._added = self._head, list(state["held"]), state["added"]
        for slot in range(self._count):
            if self._crc(slot) != self._check[slot]:
                raise ReplayDamaged(f"{folder}: the replay files have changed since the checkpoint")

    def _crc(self, slot: int) -> int:
        at, n = self._start[slot] % self.size, self._length[slot]
        check = 0
        for field in self._fields.values():
            check = zlib.crc32(field[at : at + n].tobytes(), check)
        return check

    def _live(self) -> npt.NDArray[np.int64]:
        """Slots of the index in use, oldest first."""
        return (self._oldest + np.arange(self._count)) % self.most


def _fit(head: int, n: int, size: int) -> int:
    """The first address from `head` on where n tokens fit in one piece in a ring of `size`."""
    return head if head % size + n <= size else -(-head // size) * size


def _allocate(path: Path, shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.memmap[Any, Any]:
    """A memory-mapped file of zeros, allocated on the disk from the start."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    with open(path, "wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, max(size, 1))
        except OSError as error:
            what = f"no room for {size / 1e6:.0f} MB of replay ({error.strerror})"
            raise OSError(error.errno, what, str(path)) from None
    return np.memmap(path, dtype=dtype, mode="r+", shape=shape)


def _reopen(path: Path, shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.memmap[Any, Any]:
    """The file that `_allocate` made, with its content."""
    size = max(int(np.prod(shape)) * np.dtype(dtype).itemsize, 1)
    if not path.is_file():
        raise ReplayDamaged(f"the replay file {path} is missing")
    if path.stat().st_size != size:
        raise ReplayDamaged(f"the replay file {path} has {path.stat().st_size} bytes instead of {size}")
    return np.memmap(path, dtype=dtype, mode="r+", shape=shape)
