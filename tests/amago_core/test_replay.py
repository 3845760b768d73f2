"""The trajectory store: what is kept, what is drawn, how often, and what happens without room."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from amago_core.replay import Replay
from amago_core.sampler import Sampler
from amago_core.sequences import Batch, Timesteps, timestep_layout
from amago_core.spaces import ActionCodec, ObservationCodec

LAYOUT = timestep_layout(ObservationCodec(spaces.Box(-1, 1, (1,), np.float32)), ActionCodec(spaces.Discrete(300)))
WHOLE = 1000


def make(folder: Path, tokens: int = 1000, trajectories: int = 100) -> Replay:
    return Replay(folder, LAYOUT, tokens, trajectories)


def rollout(number: int, transitions: int) -> Timesteps:
    """Token t of rollout n says 1000 n + t in its observation."""
    t = np.arange(transitions + 1)
    return {
        "observation": (1000 * number + t)[:, None].astype(np.float32),
        "action": (t - 1).astype(LAYOUT["action"].dtype),
        "reward": t.astype(np.float32),
        "terminal": t == transitions,
        "reset": t == 0,
    }


def draw(replay: Replay, seed: int = 0, sequences: int = 50, tokens: int = 10**6, context: int = WHOLE) -> Batch:
    return Sampler(replay, sequences, tokens, context).sample(np.random.default_rng(seed))


def numbers(batch: Batch) -> list[int]:
    """Which rollout each sequence comes from."""
    return (batch["observation"][batch.packing.starts, 0] // 1000).int().tolist()


def test_a_whole_rollout_comes_back_as_it_was(tmp_path: Path) -> None:
    replay = make(tmp_path)
    replay.add(rollout(3, 299))
    batch = draw(replay, sequences=2)
    expected = rollout(3, 299)
    assert batch.packing.lengths.tolist() == [300, 300]
    for name, value in expected.items():
        np.testing.assert_array_equal(batch[name][300:].numpy(), value)
    assert batch.position.tolist() == [*range(300), *range(300)]


def test_rollouts_of_one_step_are_kept_and_drawn(tmp_path: Path) -> None:
    replay = make(tmp_path)
    replay.add(rollout(0, 1))
    batch = draw(replay, sequences=3)
    assert batch.packing.lengths.tolist() == [2, 2, 2] and len(batch.packing.current) == 3
    assert batch["terminal"].tolist() == [False, True] * 3


def test_every_raw_start_is_as_likely(tmp_path: Path) -> None:
    """Five transitions, slices of at most four: eight raw starts from -3 to 4, of which two give a full slice."""
    replay = make(tmp_path)
    replay.add(rollout(0, 5))
    batch = draw(replay, sequences=8000, context=4)
    places = list(zip(batch.position[batch.packing.starts].tolist(), batch.packing.lengths.tolist(), strict=True))
    expected = {(0, 2), (0, 3), (0, 4), (0, 5), (1, 5), (2, 4), (3, 3), (4, 2)}  # first timestep, timesteps
    assert set(places) == expected
    for place in expected:
        assert places.count(place) == pytest.approx(1000, abs=150)  # five standard deviations
    assert torch.equal(batch["observation"][:, 0], batch.position.float())  # a slice keeps its timesteps


@settings(max_examples=60)
@given(
    lengths=st.lists(st.integers(1, 11), min_size=1, max_size=40),
    tokens=st.integers(12, 40),
    trajectories=st.integers(1, 8),
)
def test_the_ring_keeps_the_newest_rollouts_intact(
    tmp_path: Path, lengths: list[int], tokens: int, trajectories: int
) -> None:
    replay = make(tmp_path, tokens, trajectories)
    for number, transitions in enumerate(lengths):
        replay.add(rollout(number, transitions))
        assert 1 <= len(replay) <= trajectories
        kept = range(number + 1 - len(replay), number + 1)
        batch = draw(replay, sequences=20)
        found = numbers(batch)
        assert set(found) <= set(kept), "a rollout older than the newest ones was drawn"
        expected = np.concatenate([1000 * n + np.arange(lengths[n] + 1) for n in found])
        np.testing.assert_array_equal(batch["observation"][:, 0].numpy(), expected)
        assert sum(lengths[n] + 1 for n in kept) <= tokens


def test_the_oldest_makes_way_first_and_only_where_it_must(tmp_path: Path) -> None:
    replay = make(tmp_path, tokens=10)
    for number, transitions in enumerate([2, 2, 2]):  # tokens 0-2, 3-5, 6-8
        replay.add(rollout(number, transitions))
    assert set(numbers(draw(replay))) == {0, 1, 2}
    replay.add(rollout(3, 2))  # does not fit behind token 8: takes the place of rollout 0
    assert set(numbers(draw(replay))) == {1, 2, 3}
    replay.add(rollout(4, 4))  # takes the places of 1 and 2
    assert set(numbers(draw(replay))) == {3, 4}


def test_a_batch_stays_in_its_token_budget_unless_one_slice_is_larger(tmp_path: Path) -> None:
    replay = make(tmp_path)
    for number, transitions in enumerate([1, 4, 9, 29]):
        replay.add(rollout(number, transitions))
    for seed in range(200):
        batch = draw(replay, seed, sequences=4, tokens=20)
        assert 1 <= batch.packing.sequences <= 4
        assert batch.packing.tokens <= 20 or batch.packing.sequences == 1


def test_the_slice_that_crosses_the_budget_opens_the_next_batch(tmp_path: Path) -> None:
    """Were it dropped, long rollouts would be drawn less often than their share of one half."""
    replay, rng = make(tmp_path), np.random.default_rng(0)
    replay.add(rollout(0, 1))
    replay.add(rollout(1, 10))
    sampler = Sampler(replay, 4, 12, WHOLE)
    drawn = [numbers(sampler.sample(rng)) for _ in range(3000)]
    assert np.mean(np.concatenate(drawn)) == pytest.approx(0.5, abs=0.02)


def test_a_waiting_slice_outlives_other_rollouts_but_not_its_own(tmp_path: Path) -> None:
    replay, rng = make(tmp_path, trajectories=2), np.random.default_rng(0)
    sampler = Sampler(replay, 4, 12, WHOLE)
    replay.add(rollout(0, 1))
    replay.add(rollout(1, 10))

    def until_the_long_one_waits() -> None:
        while numbers(sampler.sample(rng)) != [0]:
            pass  # [0] alone was closed by the slice of 11 tokens that waits now

    until_the_long_one_waits()
    replay.add(rollout(2, 1))  # evicts rollout 0
    assert numbers(sampler.sample(rng))[0] == 1
    for number in (3, 4):  # evicts rollout 1
        replay.add(rollout(number, 10))
    for _ in range(20):
        assert set(numbers(sampler.sample(rng))) <= {3, 4}


@pytest.mark.parametrize(
    ("by_transition", "context", "share"), [(False, WHOLE, 0.9), (True, WHOLE, 0.9), (False, 1, 0.5), (True, 1, 0.9)]
)
def test_the_rule_of_the_draw(tmp_path: Path, by_transition: bool, context: int, share: float) -> None:
    """The transitions of two rollouts, of 1 and of 9. Uniform over rollouts is uneven only where the longer is cut."""
    replay = make(tmp_path)
    replay.add(rollout(0, 1))
    replay.add(rollout(1, 9))
    batch = Sampler(replay, 4000, 10**6, context, by_transition).sample(np.random.default_rng(0))
    of_the_longer, transitions = np.array(numbers(batch)) == 1, batch.packing.lengths - 1
    assert transitions[of_the_longer].sum() / transitions.sum() == pytest.approx(share, abs=0.02)


def test_the_draw_depends_on_its_generator_alone(tmp_path: Path) -> None:
    replay = make(tmp_path)
    for number in range(9):
        replay.add(rollout(number, 5 + number))
    assert numbers(draw(replay, seed=1)) == numbers(draw(replay, seed=1)) != numbers(draw(replay, seed=2))


def test_the_files_have_their_full_size_on_the_disk_from_the_start(tmp_path: Path) -> None:
    make(tmp_path, tokens=100_000)
    file = (tmp_path / "observation").stat()
    assert file.st_size == 400_000 <= file.st_blocks * 512


def test_a_full_disk_is_an_error_at_creation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match=r"no room for 4 MB of replay \(No space left on device\).*observation"):
        make(tmp_path, tokens=1_000_000)


def test_what_cannot_be_stored_or_drawn_is_refused(tmp_path: Path) -> None:
    replay = make(tmp_path, tokens=10)
    with pytest.raises(ValueError, match="replay is empty"):
        draw(replay)
    with pytest.raises(ValueError, match="11 tokens does not fit a replay of 10: raise replay_tokens"):
        replay.add(rollout(0, 10))
    with pytest.raises(ValueError, match="1 tokens"):
        replay.add(rollout(0, 0))
