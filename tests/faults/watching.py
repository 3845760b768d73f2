"""An agent that knows what `broken_envs` must show it, and raises where it sees anything else."""

from collections import deque

import numpy as np

from benchmarks.agents.protocol import Progress
from benchmarks.agents.random import Random


class Watcher(Random):
    def learn(self, envs, seeds):
        rng = np.random.default_rng(seeds)
        observation, _ = envs.reset()
        t = np.zeros(envs.num_envs)
        kept = deque(maxlen=10)
        while True:
            self.check(observation, t)
            kept.append((observation, observation.copy()))
            np.testing.assert_array_equal(*kept[0])  # what an agent was given stays as it was
            observation, reward, terminated, truncated, _ = envs.step(rng.integers(3, size=envs.num_envs))
            t += 1
            self.check(observation, t)
            np.testing.assert_array_equal(reward, np.ones(envs.num_envs, np.float32), strict=True)
            if (done := terminated | truncated).any():
                observation, _ = envs.reset(options={"reset_mask": done})
                t[done] = 0
            yield Progress()

    def act(self, step, memory, rng):
        memory = np.where(step.first, 0, 0 if memory is None else memory + 1)
        self.check(step.observation, memory)
        return rng.integers(3, size=len(step.first)), memory

    @staticmethod
    def check(observation, t):
        np.testing.assert_array_equal(observation, np.stack([t, -t], 1).astype(np.float32), strict=True)
        assert observation.flags.c_contiguous and observation.flags.writeable
