"""Plain gymnasium environments as a vector environment, in worker processes so that they cannot crash the run.

An environment that raises, dies or hangs in a worker becomes a `SlotFault`. Workers end with the run, however it ends.
A rollout depends only on its seed, so the number of workers changes no result and is not part of a run's identity.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import mmap
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import numpy as np
from gymnasium import Space
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, iterate

from benchmarks.gate.slots import TOLD, MakeEnv, SlotFault, Slots, batch, stack
from benchmarks.places.cores import process_environment
from benchmarks.variables import TIMEOUT, WORKERS
from results.errors import UserError

DEFAULTS = {WORKERS: 1, TIMEOUT: 60}
CLOSE_S = 5.0  # for the environments to release their resources before their worker is killed
BOARD = struct.Struct("qq")  # shared with a worker: the slot that it is calling, and the number of its calls so far


def vectorise(make: MakeEnv, num_envs: int) -> SlotsEnv:
    """`num_envs` environments made by `make`, with as many workers as AMAGO_BENCH_WORKERS says (default 1).

    Raises SlotFault if an environment cannot be made, UserError for a setting that is not a number.
    """
    return SlotsEnv(make, num_envs, _setting(WORKERS), _setting(TIMEOUT))


def _pickled(make: MakeEnv, slots: object) -> bytes:
    try:
        return cloudpickle.dumps((make, slots))
    except Exception as error:  # what holds a lock, a file or a window raises as it likes
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UserError(
            f"the environment cannot be sent to a worker process ({what}); give a function that makes it there, "
            f"or set {WORKERS}=0 to play in this process"
        ) from error


def _setting(name: str) -> int:
    text = os.environ.get(name, "") or str(DEFAULTS[name])
    if not text.isdecimal() or (name == TIMEOUT and int(text) < 1):
        raise UserError(f"{name} is {text!r}; set it to a whole number or leave it out")
    return int(text)


class SlotsEnv(VectorEnv):
    """A vector environment over plain environments; every slot is called through `Slots`, here or in a worker.

    Args:
        make: builds one environment; what it refers to in `__main__` travels along.
        num_envs: slots.
        workers: processes that share the slots; 0 uses this process, where a hanging step cannot be stopped.
        timeout: seconds for one reset or step of one slot, in a worker.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def __init__(self, make: MakeEnv, num_envs: int, workers: int, timeout: float) -> None:
        self.num_envs = num_envs
        self._groups: list[Slots | Worker] = []
        bounds = np.linspace(0, num_envs, min(workers or 1, num_envs) + 1).astype(int).tolist()
        self._shares = [range(a, b) for a, b in itertools.pairwise(bounds)]
        try:
            for share in self._shares:
                self._groups.append(Worker(make, share, timeout) if workers else Slots(make, share))
            found = [group.spaces() for group in self._groups]
        except BaseException:
            self.close()
            raise
        self.single_observation_space, self.single_action_space = found[0]
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._current: list[Any] = [None] * num_envs  # the last observation of each slot

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the slots in `options["reset_mask"]` (bool [B]; default all); the others keep their observation."""
        seeds = seed if isinstance(seed, list) else [None if seed is None else seed + i for i in range(self.num_envs)]
        options = dict(options or {})
        mask = options.pop("reset_mask", np.ones(self.num_envs, bool))
        each = [options] * self.num_envs
        if "instance" in options:  # [B]: one for each slot
            each = [options | {"instance": one} for one in np.asarray(options["instance"]).tolist()]
        asked = [{i: (seeds[i], each[i]) for i in share if mask[i]} for share in self._shares]
        answers = self._all("reset", asked)
        slots = np.flatnonzero(mask).tolist()
        for slot, (observation, _) in zip(slots, answers, strict=True):
            self._current[slot] = observation
        infos = self._infos({slot: info for slot, (_, info) in zip(slots, answers, strict=True)})
        return stack(self.single_observation_space, self._current), infos

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        single = list(iterate(self.action_space, actions))
        answers = self._all("step", [single[share.start : share.stop] for share in self._shares])
        self._current, rewards, terminated, truncated, infos = map(list, zip(*answers, strict=True))
        return (
            stack(self.single_observation_space, self._current),
            batch(rewards, (), "the reward"),
            batch(terminated, (), "terminated"),
            batch(truncated, (), "truncated"),
            self._infos(dict(enumerate(infos))),
        )

    def _all(self, command: str, asked: list[Any]) -> list[tuple[Any, ...]]:
        busy = [(group, what) for group, what in zip(self._groups, asked, strict=True) if what]
        for group, what in busy:
            group.begin(command, what)
        answers: list[tuple[Any, ...]] = []
        faults: list[SlotFault] = []
        for group, _ in busy:  # read all: an answer left in its pipe would be taken for the next step's
            try:
                answers += group.end()
            except SlotFault as fault:
                faults.append(fault)
        if faults:
            raise faults[0]
        return answers

    def _infos(self, infos: dict[int, dict[str, Any]]) -> dict[str, Any]:
        """One array [B] for each info that any slot returned, of objects unless all are bool; None: not told."""
        told: dict[str, Any] = {}
        for name in TOLD:
            if any(name in info for info in infos.values()):
                values = [infos.get(slot, {}).get(name) for slot in range(self.num_envs)]
                if name != "instance":  # a flag of shape (1,) can mean only one thing
                    values = [v.item() if isinstance(v, np.ndarray) and v.size == 1 else v for v in values]
                kind = bool if all(isinstance(value, bool | np.bool_) for value in values) else object
                told[name] = np.fromiter(values, kind, self.num_envs)
        return told

    def close_extras(self, **kwargs: Any) -> None:
        for group in self._groups:
            group.close()


class Worker:
    """A process that holds some of the slots; it has one thread and exchanges pickles over a socket pair."""

    def __init__(self, make: MakeEnv, numbers: range, timeout: float) -> None:
        self._timeout = timeout
        content = _pickled(make, numbers)  # before there is a process
        ours, theirs = socket.socketpair()
        with theirs, tempfile.TemporaryFile() as board:
            board.truncate(BOARD.size)
            self._board = mmap.mmap(board.fileno(), BOARD.size)
            self._board[:] = BOARD.pack(numbers.start, 0)
            handles = theirs.fileno(), board.fileno()
            command = [sys.executable, "-P", "-m", "benchmarks.gate.workers", *map(str, (os.getpid(), *handles))]
            self._process = subprocess.Popen(
                command, pass_fds=handles, stdin=subprocess.DEVNULL, env=process_environment()
            )
        self._connection = Connection(ours.detach())
        with contextlib.suppress(OSError):  # it has died; `end` reports how
            self._connection.send(sys.path)
            self._connection.send_bytes(content)

    def spaces(self) -> tuple[Space, Space]:
        """Observation and action space of one environment, which the worker sends once it has built them."""
        return self.end()

    def begin(self, command: str, *arguments: Any) -> None:
        """Send the worker a command; `Slots` has the same two methods."""
        with contextlib.suppress(OSError):
            self._connection.send((command, arguments))

    def end(self) -> Any:
        """The worker's answer. Raises SlotFault if the environment raised, died, or took over `timeout` seconds."""
        try:
            _, before = BOARD.unpack(self._board)
            while not self._connection.poll(self._timeout):
                slot, calls = BOARD.unpack(self._board)
                if calls == before:  # still the same call as a whole timeout ago
                    self._process.kill()
                    raise SlotFault(slot, f"the environment gave no answer for {self._timeout:g} s ({TIMEOUT} sets it)")
                before = calls
            answer, fault = self._connection.recv()
        except (EOFError, OSError):
            slot, _ = BOARD.unpack(self._board)
            raise SlotFault(slot, f"the process of the environment {self._last_words()}") from None
        if fault:
            raise SlotFault(*fault)
        return answer

    def _last_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_S)
        code = self._process.returncode
        if code is None:
            return "closed its connection"
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def close(self) -> None:
        """Let the environments close and the process end; kill it if that takes more than `CLOSE_S`."""
        self.begin("close")
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        finally:
            self._connection.close()


# --- in the worker ---------------------------------------------------------------------------------------------------


def _die_with_parent(parent: int) -> None:
    """Make the kernel kill this process when its parent dies, whatever the environment is doing."""
    if sys.platform == "linux":  # elsewhere a worker notices once its environment answers
        set_death_signal = 1
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
        if os.getppid() != parent:  # it died before this line
            os._exit(1)


def _main(parent: str, handle: str, board_handle: str) -> None:
    _die_with_parent(int(parent))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and then sends `close`
    connection, board, calls = Connection(int(handle)), mmap.mmap(int(board_handle), BOARD.size), 0

    def busy(slot: int) -> None:
        nonlocal calls
        calls += 1
        board[:] = BOARD.pack(slot, calls)

    sys.path[:] = connection.recv()
    try:
        make, numbers = pickle.loads(connection.recv_bytes())
        slots = Slots(make, numbers, busy)
        answer: Any = slots.spaces(), None
        while True:
            connection.send(answer)
            command, arguments = connection.recv()
            if command == "close":
                slots.close()
                return
            answer = _answer(slots, command, arguments)
    except SlotFault as fault:  # an environment that cannot be made
        connection.send((None, (fault.slot, str(fault), fault.trace)))
    except (EOFError, OSError):  # the parent is gone
        return


def _answer(slots: Slots, command: str, arguments: tuple[Any, ...]) -> tuple[Any, Any]:
    try:
        slots.begin(command, *arguments)
        return slots.end(), None
    except SlotFault as fault:
        return None, (fault.slot, str(fault), fault.trace)


if __name__ == "__main__":
    _main(*sys.argv[1:])
