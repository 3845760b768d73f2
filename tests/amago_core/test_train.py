"""The loop: what it counts, when it learns, what it refuses."""

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from amago_core import train
from amago_core.agent import Agent
from amago_core.config import Config, Rollout
from amago_core.progress import Progress
from amago_core.train import Trainer
from tests.amago_core.envs import Corridor

TINY = Config(
    encoder_hidden=(8,), encoder_width=8, width=8, layers=1, heads=1, actor_critic_hidden=(8,), discounts=(),
    steps_per_iteration=5, updates_per_iteration=3, batch_sequences=4, replay_tokens=100,
)  # fmt: skip


def trainer(folder: Path, **settings: Any) -> Trainer:
    """Two slots of a T-Maze of 5 steps."""
    envs = Corridor(2)
    envs.reset(seed=0)
    spaces = envs.single_observation_space, envs.single_action_space
    agent = Agent(TINY.replace(settings), *spaces, Rollout(envs.horizon), np.random.SeedSequence(0))
    return Trainer(agent, envs, np.random.SeedSequence(0), folder)


def run(folder: Path, reports: int, **settings: Any) -> list[Progress]:
    return list(islice(trainer(folder, **settings).run(), reports))


def test_it_reports_after_collecting_and_after_each_update(tmp_path: Path) -> None:
    progress = run(tmp_path, 8)
    assert [p.updates for p in progress] == [0, 1, 2, 3, 3, 4, 5, 6]
    assert [p.tokens for p in progress] == [0, 24, 48, 72, 72, 96, 120, 144]  # 4 rollouts of 6 tokens each
    assert [bool(p.metrics) for p in progress] == [False, True, True, True] * 2
    assert all(np.isfinite(list(p.metrics.values())).all() for p in progress)
    first, last = progress[1].metrics, progress[-1].metrics
    assert 0 < first["lr"] < last["lr"] and first["epsilon_start"] > last["epsilon_start"] and last["gradient_norm"] > 0
    assert progress[-1].collect_s > progress[0].collect_s > 0 and progress[-1].learn_s > 0


def test_long_collecting_is_reported_in_chunks_and_changes_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(tmp_path, 8)
    monkeypatch.setattr(train, "CHUNK", 2)
    chunks = run(tmp_path, 12)
    assert [p.updates for p in chunks] == [0, 0, 0, 1, 2, 3, 3, 3, 3, 4, 5, 6]  # 5 steps are 2, 2 and 1
    assert [p.metrics for p in chunks if p.metrics] == [p.metrics for p in whole if p.metrics]


def test_it_only_collects_in_the_warm_up_iterations(tmp_path: Path) -> None:
    assert [p.updates for p in run(tmp_path, 4, warmup_iterations=2)] == [0, 0, 0, 1]


def test_it_waits_for_the_first_rollout(tmp_path: Path) -> None:
    assert [p.updates for p in run(tmp_path, 4, steps_per_iteration=2)] == [0, 0, 0, 1]


def test_it_reports_updates_that_were_skipped(tmp_path: Path) -> None:
    started = trainer(tmp_path)
    with torch.no_grad():
        next(started.agent.actor_critic.parameters()).fill_(float("nan"))
    started.collector.agent.actor_critic.act = lambda policy, rng, sample: np.zeros(len(policy), np.int64)
    assert [(p.updates, p.skipped) for p in islice(started.run(), 4)] == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_a_shorter_context_trains_on_slices(tmp_path: Path) -> None:
    progress = run(tmp_path, 4, context=2)
    slices = 3 * 4  # of one or two transitions, two or three tokens; whole rollouts have six
    assert 2 * slices <= progress[-1].tokens <= 3 * slices


def test_a_replay_too_small_for_a_rollout_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="replay_tokens 5 cannot hold a rollout of 5 steps"):
        trainer(tmp_path, replay_tokens=5)
    trainer(tmp_path, replay_tokens=6)
