"""Checkpoints that are whole or not there, and training that goes on bitwise as if it had never stopped."""

import errno
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from amago_core import checkpoint, train
from amago_core.agent import Agent
from amago_core.config import Config, Rollout
from amago_core.replay import Replay, ReplayDamaged
from amago_core.sampler import Sampler
from amago_core.sequences import Timesteps, timestep_layout
from amago_core.spaces import ActionCodec, ObservationCodec
from amago_core.train import Trainer
from tests.amago_core.envs import Clock

# --- folders ---


def put(text: str) -> Callable[[Path], None]:
    def fill(folder: Path) -> None:
        (folder / "agent").mkdir()
        (folder / "agent" / "weights").write_text(text)

    return fill


def test_the_newest_two_are_kept(tmp_path: Path) -> None:
    for number in range(1, 12):
        assert checkpoint.write(tmp_path, put(f"w{number}")) == tmp_path / str(number)
    newest, older = checkpoint.checkpoints(tmp_path)
    assert (newest.name, older.name) == ("11", "10")
    assert (newest / "agent" / "weights").read_text() == "w11"
    checkpoint.verify(newest)
    checkpoint.verify(older)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["agent/weights", "manifest.json"])
@pytest.mark.parametrize("damage", [cut, flip, Path.unlink])
def test_whatever_is_damaged_is_found(name: str, damage: Callable[[Path], None], tmp_path: Path) -> None:
    folder = checkpoint.write(tmp_path, put("0123456789"))
    damage(folder / name)
    with pytest.raises(checkpoint.Damaged, match=Path(name).name):
        checkpoint.verify(folder)


def test_another_format_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "FORMAT", 99)
        folder = checkpoint.write(tmp_path, put("w"))
    with pytest.raises(checkpoint.WrongFormat, match=f"format 99, this version reads {checkpoint.FORMAT}"):
        checkpoint.verify(folder)


def test_a_full_disk_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.write(tmp_path, put("old"))

    def full(self: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")  # as the kernel gives it: without a name

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*state.pt'"):
        checkpoint.write(tmp_path, lambda folder: checkpoint.save_state(folder / "state.pt", {}))
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
    checkpoint.verify(tmp_path / "1")


def test_what_a_killed_writer_left_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / ".7.tmp").mkdir()
    (tmp_path / ".7.tmp" / "weights").write_text("half")
    assert checkpoint.checkpoints(tmp_path) == []
    assert checkpoint.write(tmp_path, put("w")).name == "1"
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_a_file_that_runs_code_is_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "ran"),)

    torch.save({"weights": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(pickle.UnpicklingError):
        checkpoint.load_state(tmp_path / "evil.pt")
    assert not (tmp_path / "ran").exists()


# --- the replay's space ---

LAYOUT = timestep_layout(ObservationCodec(spaces.Box(-1, 1, (1,), np.float32)), ActionCodec(spaces.Discrete(3)))


def rollout(number: int, tokens: int) -> Timesteps:
    t = np.arange(tokens)
    fields = np.full((tokens, 1), number, np.float32), t.astype(np.int8), t.astype(np.float32), t < 0, t < 0
    return dict(zip(LAYOUT, fields, strict=True))


def contents(replay: Replay) -> list[int]:
    batch = Sampler(replay, 200, 10**6, 100).sample(np.random.default_rng(0))
    return sorted(set(batch["observation"][:, 0].int().tolist()))


def test_what_two_checkpoints_count_on_stays(tmp_path: Path) -> None:
    """A replay is continued from each of the newest two, after as many further rollouts as it allows."""
    rng = np.random.default_rng(0)
    replay, kept, number = Replay(tmp_path, LAYOUT, 60, 12, burst=30), [], 0
    for _ in range(25):
        kept = [*kept[-1:], (replay.state_dict(), contents(replay) if len(replay) else [])]
        while True:
            replay.add(rollout(number, int(rng.integers(2, 12))))
            number += 1
            if replay.checkpoint_due:
                break
        for state, expected in kept:
            again = Replay(tmp_path, LAYOUT, 60, 12, burst=30, state=state)
            assert (contents(again) if len(again) else []) == expected


def test_a_request_leaves_room_for_one_more_burst(tmp_path: Path) -> None:
    replay = Replay(tmp_path, LAYOUT, 60, 12, burst=30)
    replay.state_dict()
    for _ in range(60):
        if replay.checkpoint_due:
            replay.state_dict()
        for tokens in (10, 10, 10):
            replay.add(rollout(0, tokens))
    while not replay.checkpoint_due:
        replay.add(rollout(0, 10))
    with pytest.raises(RuntimeError, match="no room left beside what its checkpoints refer to"):
        for _ in range(20):
            replay.add(rollout(0, 10))


def test_which_rollouts_are_kept_does_not_depend_on_checkpoints(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    plain, safe = Replay(tmp_path / "a", LAYOUT, 60, 12), Replay(tmp_path / "b", LAYOUT, 60, 12, burst=30)
    for number in range(150):
        one = rollout(number, int(rng.integers(2, 20)))
        if safe.checkpoint_due or number % 7 == 0:
            safe.state_dict()
        plain.add(one)
        safe.add(one)
        assert contents(plain) == contents(safe)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda folder: (folder / "reward").unlink(), "the replay file .*reward is missing"),
        (lambda folder: cut(folder / "action"), "the replay file .*action has 119 bytes instead of 120"),
        (lambda folder: (folder / "observation").write_bytes(b"\0" * 480), "have changed since the checkpoint"),
    ],
)
def test_a_missing_cut_or_changed_file_is_named(damage: Callable, says: str, tmp_path: Path) -> None:
    replay = Replay(tmp_path, LAYOUT, 60, 12, burst=10)
    replay.add(rollout(1, 10))
    state = replay.state_dict()
    damage(tmp_path)
    with pytest.raises(ReplayDamaged, match=says):
        Replay(tmp_path, LAYOUT, 60, 12, burst=10, state=state)


# --- training goes on ---


CONFIG = Config(
    encoder_hidden=(8,), encoder_width=8, width=8, layers=2, heads=2, actor_critic_hidden=(8,), discounts=(0.9,),
    dropout=0.1, steps_per_iteration=4, updates_per_iteration=3, batch_sequences=4, batch_tokens=18, warmup_updates=30,
    replay_tokens=60, replay_trajectories=12, anneal_steps=100,
)  # fmt: skip
SPACES = {"discrete": spaces.Discrete(3), "continuous": spaces.Box(-2, 2, (2,), np.float32)}


def start(space: str, model: str, folder: Path, seed: int = 0, state: Any = None, envs: Clock | None = None) -> Trainer:
    envs = envs or Clock(3, SPACES[space])
    agent = Agent(
        CONFIG.replace({"sequence_model": model}), envs.single_observation_space, envs.single_action_space,
        Rollout(9), np.random.SeedSequence(seed),
    )  # fmt: skip
    return Trainer(agent, envs, np.random.SeedSequence(0), folder, state)


def reports(trainer: Trainer, count: int) -> Iterator[tuple]:
    """Every number that a trainer reports, times left out, and all the weights at the end."""
    for p in islice(trainer.run(), count):
        yield p.updates, p.tokens, dict(p.metrics)
    yield tuple(v.numpy().tobytes() for v in trainer.agent.state_dict().values())


@pytest.mark.parametrize("stop", [1, 3, 18])
@pytest.mark.parametrize("model", ["transformer", "gru", "memoryless"])
@pytest.mark.parametrize("space", SPACES)
def test_it_goes_on_bitwise_as_if_never_stopped(space: str, model: str, stop: int, tmp_path: Path) -> None:
    """Stopped after `stop` reports, in the middle of an iteration and with slots at different timesteps; the state
    goes through a file. Weights, losses, the draws of the replay and the exploration are all in what is compared."""
    straight = list(reports(start(space, model, tmp_path / "straight"), stop + 15))

    first = start(space, model, tmp_path / "stopped")
    points = first.run()
    before = [(p.updates, p.tokens, dict(p.metrics)) for p in islice(points, stop)]
    checkpoint.save_state(tmp_path / "state.pt", first.state_dict())
    envs = Clock(3, SPACES[space])
    envs.state = first.collector.envs.state.copy()
    list(islice(points, 7))  # what was done after the checkpoint, and is lost
    del first, points

    state = checkpoint.load_state(tmp_path / "state.pt")
    second = start(space, model, tmp_path / "stopped", seed=99, state=state, envs=envs)
    assert before + list(reports(second, 15)) == straight


def test_it_goes_on_in_the_middle_of_collecting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "CHUNK", 1)
    for stop in (9, 10, 11):  # of iterations of 4 chunks and 3 updates
        test_it_goes_on_bitwise_as_if_never_stopped("discrete", "gru", stop, tmp_path / str(stop))


def test_a_restored_generator_is_where_it_was(tmp_path: Path) -> None:
    """Right before the first update of both: nothing that was built on the way has drawn."""
    first = start("continuous", "transformer", tmp_path)
    list(islice(first.run(), 6))
    checkpoint.save_state(tmp_path / "state.pt", first.state_dict())
    second = start("continuous", "transformer", tmp_path, 1, checkpoint.load_state(tmp_path / "state.pt"))
    for get in (
        lambda t: t._rng.bit_generator.state,
        lambda t: t.collector._rng.bit_generator.state,
        lambda t: t.collector.exploration.rng.bit_generator.state,
        lambda t: t.agent.generator.get_state().tolist(),
    ):
        assert get(first) == get(second)


def test_a_state_of_another_device_resumes_with_a_reseeded_generator(tmp_path: Path) -> None:
    """The state says what one of a GPU does: its generator has 16 bytes, which no generator of a CPU takes."""
    first = start("continuous", "transformer", tmp_path)
    list(islice(first.run(), 6))
    state = first.state_dict()
    state["learner"]["generator"] = {"device": "cuda", "state": torch.zeros(16, dtype=torch.uint8)}
    checkpoint.save_state(tmp_path / "state.pt", state)

    def moved(seed: int = 0) -> Trainer:
        return start("continuous", "transformer", tmp_path, seed, checkpoint.load_state(tmp_path / "state.pt"))

    second = moved()
    untouched = start("continuous", "transformer", tmp_path / "new").agent.generator.initial_seed()
    seeds = {first.agent.generator.initial_seed(), untouched, second.agent.generator.initial_seed()}
    assert len(seeds) == 2, "the first stream again: its draws would be repeated"
    assert moved().agent.generator.initial_seed() == second.agent.generator.initial_seed()
    assert moved(seed=1).agent.generator.initial_seed() not in seeds
    moments = second.learner.optimiser.state_dict()["state"][0]["exp_avg"]
    assert torch.equal(moments, first.learner.optimiser.state_dict()["state"][0]["exp_avg"])
    assert second.learner.updates == first.learner.updates > 0
    assert len(list(islice(second.run(), 8))) == 8


def test_a_trainer_whose_requests_are_heard_never_runs_out(tmp_path: Path) -> None:
    trainer = start("discrete", "memoryless", tmp_path)
    trainer.state_dict()
    asked = 0
    for progress in islice(trainer.run(), 500):
        if progress.checkpoint:
            trainer.state_dict()
            asked += 1
    assert 2 <= asked < 170


def test_a_moved_folder_is_continued(tmp_path: Path) -> None:
    first = start("discrete", "gru", tmp_path / "here")
    list(islice(first.run(), 6))
    state = first.state_dict()
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    assert len(start("discrete", "gru", tmp_path / "there", state=state).replay) == len(first.replay)
