"""What every task of the catalog keeps, whoever wrote its environment: its spaces, its seeds, its own generators."""

import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gymnasium.vector.utils import iterate

from benchmarks.catalog import get_task, tasks
from benchmarks.gate.harness_env import HarnessEnv

REPOSITORY = Path(__file__).resolve().parents[2]
TASKS = [*tasks(), "foreign/gymnasium/CartPole-v1", "foreign/gymnasium/FrozenLake-v1"]
SLOTS = 3


@pytest.fixture(autouse=True)
def in_process(monkeypatch):
    monkeypatch.setenv("AMAGO_BENCH_WORKERS", "0")


def play(task_id, steps):
    """Observations, rewards and flags of some steps with random actions from a stream of its own."""
    task = get_task(task_id)
    raw = task.make(SLOTS)
    env = HarnessEnv(raw, task, np.random.SeedSequence(5), "train")
    env.action_space.seed(9)
    observation, _ = env.reset()
    yield env, observation, ()
    for _ in range(steps):
        observation, *rest, _ = env.step(env.action_space.sample())
        yield env, observation, rest
        if (done := rest[1] | rest[2]).any():
            observation, _ = env.reset(options={"reset_mask": done})
            yield env, observation, ()
    raw.close()


def fingerprint(task_id, steps=100):
    digest = hashlib.sha256()
    for _, observation, rest in play(task_id, steps):
        for array in (observation, *rest):
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("task_id", TASKS)
def test_observations_lie_in_their_space(task_id):
    for env, observation, _ in play(task_id, 100):
        space = env.single_observation_space
        for slot, one in enumerate(iterate(env.observation_space, observation)):
            assert one in space, f"{task_id}, slot {slot}, step {env.t[slot]}: {one!r} is outside {space}"


def test_same_seed_and_actions_are_the_same_world_in_every_process():
    code = f"from test_contract import *; print([fingerprint(task) for task in {TASKS!r}])"
    path = os.pathsep.join([str(REPOSITORY), str(Path(__file__).parent)])
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": str(seed)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in (1, 2, 3)
    }  # fmt: skip
    assert said == {f"{[fingerprint(task) for task in TASKS]}\n"}


@pytest.mark.parametrize("task_id", TASKS)
def test_global_generators_change_nothing(task_id):
    first = fingerprint(task_id)
    random.seed(1)
    np.random.seed(1)
    np.random.default_rng().random(7)
    states = random.getstate(), np.random.get_state()[1].tolist()
    assert fingerprint(task_id) == first
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states  # and none of them was drawn from
