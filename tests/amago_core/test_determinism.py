"""The same seed gives bitwise the same weights, in one process and in two (on one machine and one thread)."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

from amago_core.agent import Agent
from amago_core.config import Config, Rollout
from amago_core.train import Trainer
from tests.amago_core.envs import Corridor

ROOT = Path(__file__).parents[2]
CONFIG = Config(
    encoder_hidden=(16,), encoder_width=16, width=16, layers=2, heads=2, actor_critic_hidden=(16,), discounts=(0.9,),
    steps_per_iteration=15, updates_per_iteration=5, batch_sequences=6, batch_tokens=20, warmup_updates=5,
    replay_trajectories=12, replay_tokens=60,
)  # fmt: skip
MODELS = ("transformer", "gru", "memoryless")


def fingerprint(model: str, seed: int, folder: Path) -> str:
    """Hash of everything an agent has learned after 30 updates."""
    envs = Corridor(3)
    envs.reset(seed=seed)  # rollouts afterwards follow from here
    config = CONFIG.replace({"sequence_model": model})
    agent = Agent(config, envs.single_observation_space, spaces.Discrete(4), Rollout(5), np.random.SeedSequence(seed))
    progress = Trainer(agent, envs, np.random.SeedSequence(seed), folder).run()
    while next(progress).updates < 30:
        pass
    return hashlib.sha256(b"".join(v.numpy().tobytes() for v in agent.state_dict().values())).hexdigest()


@pytest.mark.parametrize("model", MODELS)
def test_twice_in_one_process_and_another_seed_differs(model: str, tmp_path: Path) -> None:
    first = fingerprint(model, 0, tmp_path)
    np.random.seed(5)
    torch.manual_seed(5)
    assert fingerprint(model, 0, tmp_path) == first
    assert fingerprint(model, 1, tmp_path) != first


def test_in_a_process_of_its_own(tmp_path: Path) -> None:
    """Hashes of strings, memory addresses and the order of imports are others there."""
    command = [sys.executable, __file__, str(tmp_path / "other")]
    output = subprocess.run(command, cwd=ROOT, env=_environment(), capture_output=True, text=True, check=True).stdout
    assert output.split() == [fingerprint(model, 0, tmp_path) for model in MODELS]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "123", "OMP_NUM_THREADS": "1"}


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in MODELS:
        print(fingerprint(name, 0, Path(sys.argv[1])))
