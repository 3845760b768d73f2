"""Agents that leave: the process, or the folder."""

import os
import sys
import tempfile

from benchmarks.agents.random import Random


class Exits(Random):
    def learn(self, envs, seeds):
        sys.exit(0)


class Dies(Random):
    def learn(self, envs, seeds):
        os._exit(0)


class Wanders(Random):
    def learn(self, envs, seeds):
        os.chdir(tempfile.mkdtemp())
        yield from super().learn(envs, seeds)
