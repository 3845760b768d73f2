"""Only one process may write a run, on whatever machine it is.

The owner's lock file in the run's folder says which process it is, is locked in the kernel where the file system can do
that, and is touched as long as the process lives. Its times are those of the file system, so machines whose clocks
differ agree. An owner that ends, however, on the same machine is taken over at once; one on another machine when it has
been silent for `MISSED` beats, since only a beat tells a process that lives there from a node that is dead.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from results.errors import UserError
from results.tablefile import naming

LOCK = "lock"
BEAT_S = 10.0
MISSED = 6  # beats; a busy file server may swallow a few
SETTLE_S = 1.0  # after taking over: of several processes that do it at the same moment, the last one to write stays


class TakenOver(UserError):
    """Another process owns the run now: write nothing more."""


@dataclass(frozen=True)
class Holder:
    """A process that owns a run."""

    host: str
    space: str  # of process numbers: containers on a host have their own
    process: int
    since: str  # tells it from a later process with the same number

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"

    @property
    def is_here(self) -> bool:
        """Whether it is, or was, a process that this one could see."""
        return (self.host, self.space) == (platform.node(), _space())

    @property
    def exists(self) -> bool:
        """Whether there is a process of its number here."""
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # of another user
            return True
        return True


class Owner:
    """This process, as the owner of a run.

    Attributes:
        previous: the owner that it was taken over from, which ended without releasing it; else empty.
    """

    def __init__(self, path: Path, me: Holder, file: BinaryIO, previous: str) -> None:
        self.previous = previous
        self._path, self._file, self._me = path, file, me
        self._lost: Holder | None = None
        self._ended = threading.Event()
        threading.Thread(target=self._beat, daemon=True).start()

    def check(self) -> None:
        """Raises TakenOver if this process was silent for so long that another has taken the run over."""
        if self._lost is not None:
            raise TakenOver(f"{self._path.parent} was taken over by {self._lost}, since this process gave no beat")

    def release(self) -> None:
        self._ended.set()
        with contextlib.suppress(OSError):
            if _holder(self._path) == self._me:
                self._path.unlink()
        self._file.close()

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_S):
            with contextlib.suppress(OSError):  # the file system is away for a moment
                other = _holder(self._path)
                if other not in (self._me, None):
                    self._lost = other
                    return
                os.utime(self._file.fileno())


@contextlib.contextmanager
def owned(run: Path, say: Callable[[str], object] = print) -> Iterator[Owner]:
    """Own the run's folder, which is made if need be.

    Waits, and tells `say` so, while it cannot be known whether an owner on another machine is alive. Raises UserError
    if another process owns the run; the message says which.
    """
    path = run / LOCK
    with naming(path):
        run.mkdir(parents=True, exist_ok=True)
        owner = Owner(path, *_claim(path, say))
    try:
        yield owner
    finally:
        owner.release()


def is_owned(run: Path) -> bool:
    """Whether a living process owns the run, as far as can be told from outside."""
    holder = _holder(run / LOCK)
    if holder is None or (holder.is_here and not holder.exists):
        return False
    with contextlib.suppress(OSError):
        return holder.is_here or time.time() - (run / LOCK).stat().st_mtime < BEAT_S * MISSED
    return False


def _claim(path: Path, say: Callable[[str], object]) -> tuple[Holder, BinaryIO, str]:
    """Makes this process the holder: who it is, its lock file, and whom it took the run over from."""
    me = Holder(platform.node(), _space(), os.getpid(), str(time.time_ns()))
    seen: tuple[Holder, float] | None = None  # an owner elsewhere, and its last beat when we first looked
    while True:
        with contextlib.suppress(FileExistsError):
            return me, _created(path, me), ""
        try:
            file = open(path, "r+b", buffering=0)  # noqa: SIM115
        except FileNotFoundError:  # released at this moment
            continue
        with file:
            locked = _lock(file)
            if not _is_at(path, file):  # released or taken over at this moment
                continue
            holder, beat = _holder(path), os.fstat(file.fileno()).st_mtime
            silent_s = _now(path) - beat
            if _is_gone(holder, locked, silent_s):
                alone = locked is True and (holder is None or holder.is_here)  # no other can do the same now
                previous = "" if holder is None else f"{holder}, silent for {silent_s:.0f} s"
                return me, _replaced(path, me, settle=not alone), previous
        if holder is None or holder.is_here or (seen and seen[0] == holder and beat > seen[1]):
            raise UserError(f"{path.parent} is being written by {holder or 'another process'}; wait for it or stop it")
        if seen is None or seen[0] != holder:
            seen = holder, beat
            say(f"waiting to see whether {holder} lives, which owns {path.parent}")
        time.sleep(min(1.0, BEAT_S / 5))


def _is_gone(holder: Holder | None, locked: bool | None, silent_s: float) -> bool:
    """Whether the owner of an existing lock file is dead; `locked` is what `_lock` returned."""
    if holder is None:  # it died before it wrote who it is, or is just about to
        return bool(locked) or (locked is None and silent_s > BEAT_S * MISSED)
    if holder.is_here and locked is not None:
        return locked
    if holder.is_here and not holder.exists:
        return True
    return silent_s > BEAT_S * MISSED


def _replaced(path: Path, me: Holder, settle: bool) -> BinaryIO:
    """A lock file of our own in the place of a dead owner's, which a file server may keep locked for good."""
    own = path.with_name(f".{LOCK}.{me.host}.{me.process}.{me.since}")
    file = _created(own, me)
    os.replace(own, path)
    if settle:
        time.sleep(SETTLE_S)
    if not _is_at(path, file):
        file.close()
        raise UserError(f"{path.parent} has just been taken over by {_holder(path) or 'another process'}")
    return file


def _created(path: Path, me: Holder) -> BinaryIO:
    """A new lock file. Raises FileExistsError if there is one, or another process took this one for a dead owner's."""
    file = open(path, "x+b", buffering=0)  # noqa: SIM115 (closed by the owner)
    try:
        # Another process may have found it before it was locked, taken it for a dead owner's, and replaced it.
        if _lock(file) is False or not _is_at(path, file):
            raise FileExistsError
        file.write(json.dumps(asdict(me)).encode())
    except FileExistsError:
        file.close()
        raise
    except BaseException:
        file.close()
        path.unlink()
        raise
    return file


def _lock(file: BinaryIO) -> bool | None:
    """True: this process has the kernel's lock now; False: another has it; None: the file system has no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_at(path: Path, file: BinaryIO) -> bool:
    """Whether the open file is the one at `path`."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _holder(path: Path) -> Holder | None:
    """None: nobody, or it cannot be read."""
    try:
        return Holder(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _now(path: Path) -> float:
    """The time by the clock of the file system: that of a file that is made and deleted there now."""
    with tempfile.TemporaryFile(dir=path.parent, prefix=f".{LOCK}.") as probe:
        return os.fstat(probe.fileno()).st_mtime


def _space() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:  # not Linux
        return ""
