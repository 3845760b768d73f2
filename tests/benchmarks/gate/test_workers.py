"""Environments in worker processes: one layout of any observation, faults with their cause, one thread each."""

import functools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import cloudpickle
import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.testing import assert_array_equal

from benchmarks.gate import workers
from benchmarks.gate.slots import SlotFault
from benchmarks.gate.workers import SlotsEnv, vectorise
from results.errors import UserError

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # a worker cannot import a test
NUMBERS = (0, 1, 2)  # of workers; 0 is this process
CARTPOLE = functools.partial(gymnasium.make, "CartPole-v1", disable_env_checker=True)


class Mixed(gymnasium.Env):
    """Every kind of observation at once; `act` answers the action, so that it is known what arrived."""

    observation_space = spaces.Dict(
        image=spaces.Box(0, 255, (2, 3, 1), np.uint8),
        direction=spaces.Discrete(4),
        mission=spaces.Text(20),
        pair=spaces.Tuple([spaces.MultiDiscrete([2, 9]), spaces.Box(-1, 1, (2,), np.float32)]),
    )
    action_space = spaces.Dict(a=spaces.Discrete(5, start=2), b=spaces.Box(-1, 1, (2,), np.float32))

    def _observation(self):
        space = self.observation_space
        return {
            "image": self.np_random.integers(256, size=(2, 3, 1), dtype=np.uint8),
            "direction": int(self.np_random.integers(4)),
            "mission": "go to " + "ab"[self.np_random.integers(2)],
            "pair": (self.np_random.integers([2, 9]), space["pair"][1].low * 0.5),
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observation(), {"instance": seed % 7, "ignored": object()}

    def step(self, action):
        assert action in self.action_space
        return self._observation(), float(action["a"] + action["b"].sum()), False, False, {"success": action["a"] == 3}


class Bad(gymnasium.Env):
    """Slot and step of the fault are told by the seed: 100 * kind + step, given to one slot alone."""

    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.kind, self.left = divmod(seed, 100)
        return np.zeros(1, np.float32), {"instance": seed}

    def step(self, action):
        self.left -= 1
        if self.left == 0:
            KINDS[self.kind][1]()
        return np.zeros(1, np.float32), 0.0, False, False, {}


def _raise():
    raise ZeroDivisionError("by hand")


KINDS = [
    ("", lambda: None),
    ("the environment raised ZeroDivisionError: by hand", _raise),
    ("the environment raised SystemExit: 0", lambda: sys.exit(0)),
    ("the process of the environment ended with exit code 3", lambda: os._exit(3)),
    ("the process of the environment was killed by SIGSEGV", lambda: os.kill(os.getpid(), signal.SIGSEGV)),
    ("the environment gave no answer for 5 s", lambda: time.sleep(1000)),
]
LIMIT = 5  # seconds; a worker imports Gymnasium in its first call, which takes one second of a busy machine


def children():
    """Processes that this one has started and that have not ended."""
    return Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()


def play(env, actions, steps=60):
    """What an environment gives over some rollouts, flat; slots are reset by mask with a seed of their own."""
    seen = [env.reset(seed=[3 * slot for slot in range(env.num_envs)])]
    for t in range(steps):
        *answer, terminated, truncated, infos = env.step(actions(t))
        seen += [answer, terminated, truncated, infos]
        done = terminated | truncated | (np.arange(env.num_envs) == t % 20)
        if done.any():
            seeds = [1000 * t + slot for slot in range(env.num_envs)]
            seen.append(env.reset(seed=seeds, options={"reset_mask": done}))
    env.close()
    return seen


def equal(a, b):
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        return all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    return (a.dtype, a.tolist()) == (b.dtype, b.tolist()) if isinstance(a, np.ndarray) else a == b


# --- the same numbers however many workers there are ---


def test_any_number_of_workers_gives_what_gymnasium_gives():
    def actions(t):
        return np.random.default_rng(t).integers(2, size=5)

    theirs = play(SyncVectorEnv([CARTPOLE] * 5, autoreset_mode=AutoresetMode.DISABLED), actions)
    ours = [play(SlotsEnv(CARTPOLE, 5, number, 30), actions) for number in NUMBERS]
    assert any(isinstance(x, np.ndarray) and x.dtype == bool and x.any() for x in theirs)  # rollouts ended
    assert all(equal(one, theirs) for one in ours)


class Asked(gymnasium.Env):
    """Tells the instance that it was asked for."""

    observation_space = action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return 0, {"instance": options["instance"]}


@pytest.mark.parametrize("number", NUMBERS)
def test_each_slot_gets_its_own_instance(number):
    env = SlotsEnv(Asked, 3, number, 30)
    _, infos = env.reset(options={"instance": np.array([4, 5, 6])})
    assert infos["instance"].tolist() == [4, 5, 6]
    _, infos = env.reset(options={"instance": np.array([7, 8, 9]), "reset_mask": np.array([True, False, True])})
    assert infos["instance"].tolist() == [7, None, 9]
    env.close()


def test_one_environment_for_all_slots_is_refused():
    one = Asked()
    with pytest.raises(SlotFault, match=r"make\(\) gave an environment that another slot has") as caught:
        SlotsEnv(lambda: one, 3, 0, 30)
    assert caught.value.slot == 1


class Tensors(gymnasium.Env):
    """Answers with tensors, of which one has a gradient."""

    observation_space = spaces.Dict(a=spaces.Box(-9, 9, (2,), np.float32), b=spaces.Box(-9, 9, (2,), np.float32))
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        return self._observation(seed), {"instance": [1, {"a": 2}]}

    def _observation(self, value):
        grown = torch.full((2,), float(value), requires_grad=True) * 2
        return {"a": grown, "b": [torch.tensor(1.0), torch.tensor(value)]}

    def step(self, action):
        end = torch.tensor(False)
        return self._observation(action[0]), torch.tensor([0.5]), end, end, {"success": torch.tensor(True)}


def test_tensors_are_arrays_with_and_without_workers():
    def actions(t):
        return np.random.default_rng(t).random((2, 2), np.float32)

    here, *others = (play(SlotsEnv(Tensors, 2, number, 30), actions, 3) for number in NUMBERS)
    assert all(equal(here, other) for other in others)
    assert here[0][0]["a"].tolist() == [[0, 0], [6, 6]]
    assert here[1][1].tolist() == [0.5, 0.5]


def test_observations_of_any_kind_have_one_layout():
    def actions(t):
        rng = np.random.default_rng(t)
        return {"a": rng.integers(2, 7, size=3), "b": rng.uniform(-1, 1, (3, 2)).astype(np.float32)}

    first, *others = [play(SlotsEnv(Mixed, 3, number, 30), actions, 20) for number in NUMBERS]
    observation, infos = first[0]
    assert observation["image"].shape == (3, 2, 3, 1)
    assert observation["image"].dtype == np.uint8
    assert observation["pair"][0].shape == (3, 2)
    assert observation["mission"][0].startswith("go to ")
    assert infos.keys() == {"instance"}
    assert_array_equal(infos["instance"], [0, 3, 6])
    assert all(equal(first, other) for other in others)


def test_a_masked_reset_leaves_the_other_slots_alone():
    with_two = SlotsEnv(CARTPOLE, 4, 2, 30)
    before, _ = with_two.reset(seed=[1, 2, 3, 4])
    after, _ = with_two.reset(seed=[None, None, None, 9], options={"reset_mask": np.array([False, False, False, True])})
    with_two.close()
    assert_array_equal(after[:3], before[:3])
    assert (after[3] != before[3]).any()


def test_more_workers_than_slots_are_as_many_as_slots():
    env = SlotsEnv(CARTPOLE, 2, 9, 30)
    assert len(children()) == 2
    env.close()
    assert not children()


# --- faults ---


@pytest.mark.parametrize("kind", range(1, len(KINDS)), ids=lambda kind: KINDS[kind][0][-20:])
def test_a_fault_names_its_slot_and_all_workers_end(kind):
    env = SlotsEnv(Bad, 5, 2, LIMIT)  # slots 0, 1 and 2, 3, 4
    env.reset(seed=[50, 50, 50, 100 * kind + 2, 50])
    env.step(np.zeros(5, int))
    with pytest.raises(SlotFault) as caught:
        env.step(np.zeros(5, int))
    assert caught.value.slot == 3
    assert str(caught.value).startswith(KINDS[kind][0])
    env.close()
    assert not children()


def test_after_a_fault_no_answer_is_taken_for_that_of_another_step():
    """Whoever catches it and resets goes on with the steps that he asks for."""
    env = SlotsEnv(Bad, 4, 2, 30)
    env.reset(seed=[102, 50, 50, 50])
    env.step(np.zeros(4, int))
    with pytest.raises(SlotFault):
        env.step(np.zeros(4, int))
    for seed in (3, 4):
        _, infos = env.reset(seed=[seed] * 4)
        assert_array_equal(infos["instance"], [seed] * 4)
        assert len(env.step(np.zeros(4, int))) == 5
    env.close()


def test_the_traceback_of_the_worker_is_kept_for_the_log():
    env = SlotsEnv(Bad, 1, 1, 30)
    env.reset(seed=[101])
    with pytest.raises(SlotFault) as caught:
        env.step(np.zeros(1, int))
    assert "in _raise" in caught.value.trace
    env.close()


def test_a_slow_environment_is_no_hanging_one():
    """The limit is for one call of one slot: five slots that need a quarter of it each are in order."""

    class Slow(Bad):
        def step(self, action):
            time.sleep(LIMIT / 4)
            return super().step(action)

    env = SlotsEnv(Slow, 5, 1, LIMIT)
    env.reset(seed=[50] * 5)
    env.step(np.zeros(5, int))
    env.close()


@pytest.mark.parametrize("number", [0, 1])
def test_an_environment_that_cannot_be_made(number):
    def make():
        raise ImportError("libmissing.so")

    with pytest.raises(SlotFault, match=r"raised ImportError: libmissing\.so"):
        SlotsEnv(make, 2, number, 30)
    assert not children()


def test_a_worker_dies_with_a_run_that_is_killed_while_its_environment_hangs():
    code = """
import os, sys, time
from pathlib import Path
import gymnasium, numpy as np
from benchmarks.gate.workers import SlotsEnv

class Hangs(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return 0, {}
    def step(self, action):
        time.sleep(1000)

env = SlotsEnv(Hangs, 2, 2, 1000)
env.reset(seed=[0, 1])
print(*Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split(), flush=True)
env.step(np.zeros(2, int))
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    workers = [int(word) for word in parent.stdout.readline().split()]
    assert len(workers) == 2
    time.sleep(0.3)  # into the step
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 60
    while any(map(is_alive, workers)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_worker_has_one_thread_and_no_standard_input():
    class Tells(Bad):
        def reset(self, *, seed=None, options=None):
            threads = len(os.listdir("/proc/self/task"))
            return np.array([int(os.environ["OMP_NUM_THREADS"])], np.float32), {"instance": threads}

        def step(self, action):
            input()

    env = SlotsEnv(Tells, 1, 1, 30)
    observation, infos = env.reset(seed=[0])
    assert (observation[0, 0], infos["instance"][0]) == (1, 1)
    with pytest.raises(SlotFault, match="EOFError"):
        env.step(np.zeros(1, int))
    env.close()


# --- settings ---


def test_the_number_of_workers_and_the_limit_are_variables(monkeypatch):
    monkeypatch.setenv(workers.WORKERS, "2")
    env = vectorise(CARTPOLE, 3)
    assert len(children()) == 2
    env.close()
    monkeypatch.setenv(workers.WORKERS, "0")
    env = vectorise(CARTPOLE, 3)
    assert not children()
    env.close()
    monkeypatch.delenv(workers.WORKERS)
    env = vectorise(CARTPOLE, 3)
    assert len(children()) == 1
    env.close()


@pytest.mark.parametrize(("name", "value"), [(workers.WORKERS, "two"), (workers.WORKERS, "-1"), (workers.TIMEOUT, "0")])
def test_a_setting_that_is_no_number_is_named(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=f"{name} is '{value}'"):
        vectorise(CARTPOLE, 1)


def test_an_environment_that_cannot_be_pickled_is_one_line_with_a_way_out():
    lock = threading.Lock()

    def make():
        with lock:
            return CARTPOLE()

    with pytest.raises(UserError, match=r"cannot be sent to a worker process \(.*lock.*AMAGO_BENCH_WORKERS=0"):
        SlotsEnv(make, 1, 1, 60)
    SlotsEnv(make, 1, 0, 60).close()
