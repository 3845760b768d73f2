"""From stored rollouts to batches: hooks that show other rollouts, how often each transition comes up, going on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from amago_core.checkpoint import load_state, save_state
from amago_core.replay import Replay
from amago_core.sampler import Sampler
from amago_core.sequences import Field, Timesteps, timestep_layout
from amago_core.spaces import ActionCodec, ObservationCodec

OBSERVATIONS, ACTIONS = ObservationCodec(spaces.Box(-1, 1, (1,), np.float32)), ActionCodec(spaces.Discrete(4))
LAYOUT = timestep_layout(OBSERVATIONS, ACTIONS)


def rollout(number: int, transitions: int) -> Timesteps:
    """Token t of rollout n says 10,000 n + t in its observation."""
    t = np.arange(transitions + 1)
    return {
        "observation": (10_000 * number + t)[:, None].astype(np.float32),
        "action": (t % 4).astype(LAYOUT["action"].dtype),
        "reward": np.zeros(len(t), np.float32),
        "terminal": t == transitions,
        "reset": t == 0,
    }


def filled(folder: Path, lengths: list[int], trajectories: int = 100) -> Replay:
    replay = Replay(folder, LAYOUT, 20_000, trajectories, burst=1)
    for number, transitions in enumerate(lengths):
        replay.add(rollout(number, transitions))
    return replay


class Shorten:
    """A hook with a state: rollouts end early at a point that it draws, with a reward there; each third stays."""

    def __init__(self) -> None:
        self.calls = np.zeros(1, np.int64)

    def decide(self, rollout: Timesteps, rng: np.random.Generator) -> Any:
        self.calls += 1
        if self.calls[0] % 3 == 0:
            return None
        return {"end": int(rng.integers(1, len(rollout["reward"]))), "reward": np.float32([self.calls[0]])}

    def apply(self, rollout: Timesteps, decision: Any) -> Timesteps:
        end = decision["end"]
        cut = {name: field[: end + 1].copy() for name, field in rollout.items()}
        cut["reward"][end], cut["terminal"][end] = decision["reward"][0], True
        return cut

    def state_dict(self) -> Mapping[str, Any]:
        return {"calls": self.calls}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.calls = state["calls"].copy()


def drawn(sampler: Sampler, rng: np.random.Generator, batches: int) -> list[tuple]:
    """Every number of some batches."""
    found = []
    for _ in range(batches):
        batch = sampler.sample(rng)
        fields = {name: field.tolist() for name, field in batch.fields.items()}
        found.append((batch.packing.lengths.tolist(), batch.position.tolist(), fields))
    return found


def test_what_a_hook_makes_of_a_rollout_is_cut_and_counted(tmp_path: Path) -> None:
    sampler = Sampler(filled(tmp_path, [30] * 5), sequences=6, tokens=60, context=10, hook=Shorten())
    rng, rewarded = np.random.default_rng(0), 0
    for _ in range(50):
        batch = sampler.sample(rng)
        assert batch.packing.tokens <= 60 and batch.packing.lengths.max() <= 11
        ends = batch["terminal"].nonzero().flatten().tolist()
        assert set(ends) <= set((batch.packing.ends - 1).tolist()), "a slice goes on behind the new end of its rollout"
        rewarded += int((batch["reward"] > 0).sum())
        torch.testing.assert_close(batch["observation"][:, 0] % 10_000, batch.position.float())
    assert rewarded > 50


def test_a_hook_cannot_touch_what_is_stored(tmp_path: Path) -> None:
    replay = filled(tmp_path, [5])
    sampler = Sampler(replay, 2, 100, 10, hook=Shorten())
    drawn(sampler, np.random.default_rng(0), 20)
    for name, field in rollout(0, 5).items():
        np.testing.assert_array_equal(replay.rollout(0)[name], field)
        with pytest.raises(ValueError, match="read-only"):
            replay.rollout(0)[name][0] = 0


@pytest.mark.parametrize("stop", [1, 2, 5, 11])
def test_a_hook_that_changes_lengths_goes_on_as_if_never_stopped(stop: int, tmp_path: Path) -> None:
    """Stopped between two batches, most often while a slice waits for the next one; the state goes through a file."""
    lengths = [int(n) for n in np.random.default_rng(9).integers(1, 40, size=30)]
    straight = Sampler(filled(tmp_path / "straight", lengths), 6, 30, 12, hook=Shorten())
    expected = drawn(straight, np.random.default_rng(0), stop + 10)

    replay, rng = filled(tmp_path / "stopped", lengths), np.random.default_rng(0)
    first = Sampler(replay, 6, 30, 12, hook=Shorten())
    before = drawn(first, rng, stop)
    save_state(tmp_path / "state.pt", {"replay": replay.state_dict(), "sampler": first.state_dict()})
    drawn(first, np.random.default_rng(1), 3)  # what was done after the checkpoint, and is lost

    state = load_state(tmp_path / "state.pt")
    again = Replay(tmp_path / "stopped", LAYOUT, 20_000, 100, burst=1, state=state["replay"])
    second = Sampler(again, 6, 30, 12, hook=Shorten())
    second.load_state_dict(state["sampler"])
    assert before + drawn(second, rng, 10) == expected


def test_some_slices_do_wait_in_that_test(tmp_path: Path) -> None:
    sampler, rng = Sampler(filled(tmp_path, [30] * 5), 6, 30, 12, hook=Shorten()), np.random.default_rng(0)
    waiting = []
    for _ in range(20):
        sampler.sample(rng)
        waiting.append(sampler.state_dict()["waiting"])
    decisions = [piece[3] for piece in waiting if piece is not None]
    assert any(decision is not None for decision in decisions) and any(decision is None for decision in decisions)


def test_a_waiting_slice_goes_with_its_rollout(tmp_path: Path) -> None:
    replay, rng = filled(tmp_path, [10, 10], trajectories=2), np.random.default_rng(0)
    sampler = Sampler(replay, 4, 12, 20, hook=Shorten())
    while sampler.state_dict()["waiting"] is None:
        sampler.sample(rng)
    for number in (7, 8):
        replay.add(rollout(number, 10))
    shown = torch.cat([sampler.sample(rng)["observation"] for _ in range(5)])
    assert (shown >= 70_000).all()


@pytest.mark.parametrize(
    ("lengths", "context", "by_transition", "draws"),
    [([200], 50, False, 40_000), ([2_500], 512, False, 60_000), ([3, 40, 80, 200, 700], 50, True, 120_000)],
)
def test_every_transition_comes_up_as_often(
    lengths: list[int], context: int, by_transition: bool, draws: int, tmp_path: Path
) -> None:
    """The first and the last as well: within 20 % of the average. Each is drawn about 4,000 times or more."""
    sampler = Sampler(filled(tmp_path, lengths), 200, 10**9, context, by_transition)
    rng, counts = np.random.default_rng(0), np.zeros((len(lengths), max(lengths)))
    for _ in range(draws // 200):
        batch = sampler.sample(rng)
        current = batch.packing.current
        number = batch["observation"][current, 0].long() // 10_000
        np.add.at(counts, (number.numpy(), batch.position[current].numpy()), 1)
    drawn = np.concatenate([row[:length] for row, length in zip(counts, lengths, strict=True)])
    assert drawn.mean() > 4_000
    assert np.abs(drawn / drawn.mean() - 1).max() < 0.2


def test_a_field_is_added_in_one_place(tmp_path: Path) -> None:
    """Store, gather, hook and batch follow the layout."""
    layout = {**LAYOUT, "mood/of day": Field((2, 2), np.dtype(np.int16))}
    replay = Replay(tmp_path, layout, 100, 10)
    mood = np.arange(24, dtype=np.int16).reshape(6, 2, 2)
    replay.add({**rollout(0, 5), "mood/of day": mood})
    assert replay.rollout(0)["mood/of day"].dtype == np.int16
    for hook in (None, Shorten()):
        batch = Sampler(replay, 1, 100, 10, hook=hook).sample(np.random.default_rng(0)).to("cpu")
        np.testing.assert_array_equal(batch["mood/of day"].numpy(), mood[: batch.packing.tokens])


@pytest.mark.parametrize(
    ("space", "names", "nbytes"),
    [
        (spaces.Box(-1, 1, (3,), np.float64), ["observation"], 12),
        (spaces.MultiDiscrete([65] * 63), ["observation"], 63),
        (spaces.MultiDiscrete([3] * 52), ["observation"], 52),
        (spaces.Discrete(300), ["observation"], 2),
        (
            spaces.Dict(
                {
                    "goals": spaces.Box(0, 9, (3, 2), np.float32),
                    "a": spaces.Dict({"b": spaces.Box(-9, 9, (4,), np.int16)}),
                }
            ),
            ["observation/a/b", "goals"],
            32,
        ),
    ],
)
def test_each_leaf_is_stored_in_its_own_type(space: spaces.Space, names: list[str], nbytes: int) -> None:
    fields = ObservationCodec(space).fields
    assert list(fields) == names
    assert sum(field.nbytes for field in fields.values()) == nbytes
