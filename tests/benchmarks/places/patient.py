"""A small AMAGO that waits at a checkpoint as long as a file says so: `--agent patient:Patient`.

So a test can do to its run what it likes, however fast or slow the machine is.
"""

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from benchmarks.agents.amago import Amago
from benchmarks.agents.protocol import AgentSpec, Progress
from benchmarks.gate.harness_env import HarnessEnv

SMALL = {
    "encoder_hidden": "8", "encoder_width": "8", "width": "8", "layers": "1", "actor_critic_hidden": "8",
    "updates_per_iteration": "1", "replay_tokens": "20000", "dtype": "float32",
}  # fmt: skip
WAITS_AT = 20  # safe points


class Patient(Amago):
    def __init__(self, spec: AgentSpec) -> None:
        super().__init__(replace(spec, settings=SMALL))
        self._hold = spec.folder.parent.with_suffix(".hold")  # beside the run's folder

    def learn(self, envs: HarnessEnv, seeds: np.random.SeedSequence) -> Iterator[Progress]:
        for count, progress in enumerate(super().learn(envs, seeds)):
            yield replace(progress, checkpoint=count == WAITS_AT)
            while count == WAITS_AT and self._hold.exists():
                time.sleep(0.1)
                yield progress
