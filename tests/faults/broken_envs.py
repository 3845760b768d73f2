"""Environments that a user might bring, each wrong or odd in one way: `--env broken_envs:Hangs-v0`.

In order: the observation is (t, -t), the reward 1, the end at t = 4. `watching:Watcher` knows that.
"""

import os
import signal
import sys
import time

import gymnasium
import numpy as np
from gymnasium import spaces

LATE = 300  # steps of one environment: after the first evaluation of a smoke run, before its end


class Fine(gymnasium.Env):
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(3)
    steps = 0

    def observation(self):
        return np.array([self.t, -self.t], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.observation(), {}

    def step(self, action):
        self.t += 1
        self.steps += 1
        return self.observation(), 1.0, self.t == 4, False, {}


# --- wrong: a run ends with one line ---


class NanReward(Fine):
    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, float("nan") if self.t == 3 else 1.0, *rest


class LateNanReward(Fine):
    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, float("nan") if self.steps == LATE else 1.0, *rest


class InfiniteObservation(Fine):
    def observation(self):
        return np.array([self.t, np.inf if self.t == 3 else -self.t], np.float32)


class WrongShape(Fine):
    def observation(self):
        return np.zeros(3 if self.t == 3 else 2, np.float32)


class Broadcasts(Fine):
    """Assigned to a row of a batch, it would fill it without a word."""

    def observation(self):
        return np.zeros(1 if self.t == 3 else 2, np.float32)


class WrongShapeAtReset(Fine):
    def observation(self):
        return np.zeros((1, 2), np.float32)


class Ragged(Fine):
    def observation(self):
        return [[1.0], [2.0, 3.0]] if self.t == 3 else np.zeros(2, np.float32)


class Words(Fine):
    def observation(self):
        return np.array(["one", "two"])


class Wraps(Fine):
    """int64 that would wrap around in the declared uint8."""

    observation_space = spaces.Box(0, 255, (2,), np.uint8)

    def observation(self):
        return np.array([self.t, 256 if self.t == 3 else 0])


class PastTheSpace(Fine):
    """A Discrete value that no one-hot holds."""

    observation_space = spaces.Discrete(3)

    def observation(self):
        return self.t


class Half(Fine):
    observation_space = spaces.Discrete(9)

    def observation(self):
        return self.t + 0.5


class OtherKeys(Fine):
    observation_space = spaces.Dict(a=spaces.Discrete(9), b=spaces.Discrete(9))

    def observation(self):
        return {"a": self.t} if self.t == 3 else {"a": self.t, "b": 0}


class NoReward(Fine):
    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, None, *rest


class TwoRewards(Fine):
    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, np.ones(2), *rest


class NoFlag(Fine):
    def step(self, action):
        observation, reward, _, truncated, infos = super().step(action)
        return observation, reward, None, truncated, infos


class OldStep(Fine):
    def step(self, action):
        observation, reward, terminated, _, infos = super().step(action)
        return observation, reward, terminated, infos


class OldReset(Fine):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


class OldSeed(Fine):
    def reset(self):
        return super().reset()


class Raises(Fine):
    def step(self, action):
        if self.t == 2:
            raise RuntimeError("two\nlines")
        return super().step(action)


class RaisesAtReset(Fine):
    def reset(self, *, seed=None, options=None):
        raise KeyError("seed")


class CannotBeMade(Fine):
    def __init__(self):
        raise OSError("libgame.so: no such file")


class Leaves(Fine):
    def step(self, action):
        sys.exit(0)


class Dies(Fine):
    def step(self, action):
        if self.t == 2:
            os._exit(3)
        return super().step(action)


class DiesWithZero(Fine):
    def step(self, action):
        os._exit(0)


class DiesWhenMade(Fine):
    def __init__(self):
        os._exit(3)


class Crashes(Fine):
    def step(self, action):
        os.kill(os.getpid(), signal.SIGSEGV)


class Hangs(Fine):
    def step(self, action):
        if self.t == 2:
            time.sleep(10_000)
        return super().step(action)


class Spins(Fine):
    def reset(self, *, seed=None, options=None):
        while True:
            pass


# --- odd: a run gives the right result ---


class Reuses(Fine):
    """One buffer for all observations."""

    def __init__(self):
        self.buffer = np.zeros(2, np.float32)

    def observation(self):
        self.buffer[:] = self.t, -self.t
        return self.buffer


class Shares(Fine):
    """One buffer for all environments."""

    buffer = np.zeros(2, np.float32)

    def reset(self, *, seed=None, options=None):
        self.odd = seed // 2 % 2  # half of them end a step earlier, so that they are not in step
        return super().reset(seed=seed)

    def observation(self):
        self.buffer[:] = self.t, -self.t
        return self.buffer

    def step(self, action):
        observation, reward, _, truncated, infos = super().step(action)
        return observation, reward, self.t == 4 - self.odd, truncated, infos


class ReadOnly(Fine):
    def observation(self):
        array = super().observation()
        array.flags.writeable = False
        return array


class NegativeStrides(Fine):
    def observation(self):
        return np.array([-self.t, self.t], np.float32)[::-1]


class Double(Fine):
    def observation(self):
        return np.array([self.t, -self.t], np.float64)


class PlainList(Fine):
    def observation(self):
        return [self.t, -self.t]


class IntegerReward(Fine):
    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, 1, *rest


class BooleanReward(Fine):
    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, True, *rest


class ArrayReward(Fine):
    def step(self, action):
        observation, _, terminated, truncated, infos = super().step(action)
        return observation, np.ones(1), np.bool_(terminated), np.array([truncated]), infos


class BothFlags(Fine):
    def step(self, action):
        observation, reward, terminated, _, infos = super().step(action)
        return observation, reward, terminated, terminated, infos


class OneStep(Fine):
    def step(self, action):
        observation, reward, _, _, infos = super().step(action)
        return observation, reward, True, False, infos


class Endless(Fine):
    def step(self, action):
        observation, reward, _, _, infos = super().step(action)
        return observation, reward, False, False, infos


class OddInfos(Fine):
    """Infos whose shape changes, that cannot be compared and that no process can send."""

    def step(self, action):
        observation, reward, terminated, truncated, _ = super().step(action)
        infos = {"ragged": np.zeros(self.t), "lambda": lambda: None, "episode": {"r": self.t}, "success": 1.0}
        return observation, reward, terminated, truncated, infos


class RaisesAtClose(Fine):
    def close(self):
        raise RuntimeError("too late")


for _name, _class in list(globals().items()):
    if isinstance(_class, type) and issubclass(_class, Fine):
        gymnasium.register(f"{_name}-v0", entry_point=f"{__name__}:{_name}")
