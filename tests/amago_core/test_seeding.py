"""One tree of seeds, and no draw from a global generator."""

import random
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from amago_core.agent import Agent
from amago_core.config import Config, Rollout
from amago_core.seeding import child, integer_seed, listening, torch_generator
from amago_core.train import Trainer
from tests.amago_core.envs import Corridor


def words(sequence: np.random.SeedSequence) -> tuple[int, ...]:
    return tuple(sequence.generate_state(4).tolist())


def test_a_stream_depends_on_its_name_and_not_on_the_order_of_asking() -> None:
    root = np.random.SeedSequence(7)
    first = words(child(root, "train", 3, 7))
    child(root, "something", "else")
    assert words(child(root, "train", 3, 7)) == first
    assert words(child(child(root, "train"), 3, 7)) == first
    assert words(child(7, "train", 3, 7)) == first


def test_numbers_of_numpy_are_numbers() -> None:
    assert words(child(7, "train", np.int64(3))) == words(child(7, "train", 3))


def test_different_names_are_different_streams() -> None:
    names = [(), ("a",), ("b",), ("a", 0), ("a", 1), (0,), (1,), ("a", "b"), ("b", "a"), ("ab",), (0, 1), (1, 0)]
    assert len({words(child(seed, *name)) for name in names for seed in (0, 1)}) == 2 * len(names)


def test_a_number_and_the_word_with_that_checksum_differ() -> None:
    assert words(child(0, "a")) != words(child(0, zlib.crc32(b"a")))


def test_slots_and_rollouts_never_meet() -> None:
    seeds = {words(child(0, "train", slot, number)) for slot in range(40) for number in range(50)}
    assert len(seeds) == 2000


def test_integer_seeds_fit_every_library() -> None:
    assert all(0 <= integer_seed(child(0, n)) < 2**31 for n in range(500))


def test_a_generator_repeats_its_stream() -> None:
    a, b = (torch.rand(3, generator=torch_generator(child(5, "x"))) for _ in range(2))
    assert torch.equal(a, b)


SETTINGS = {
    "transformer": {"dropout": 0.1},
    "gru": {"sequence_model": "gru"},
    "memoryless": {"sequence_model": "memoryless"},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
def test_building_and_training_leave_the_global_generators_alone(settings: dict, tmp_path: Path) -> None:
    """Also the other way round: what the global generators do changes nothing."""
    weights = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
        weights.append(_trained(settings, tmp_path))
        assert torch.equal(torch.get_rng_state(), before[0])
        assert (np.random.get_state()[1] == before[1]).all()
        assert random.getstate() == before[2]
    assert torch.equal(*weights)


def _trained(settings: dict, folder: Path) -> torch.Tensor:
    config = Config(
        encoder_hidden=(8,), encoder_width=8, width=16, layers=1, heads=2, actor_critic_hidden=(8,), discounts=(0.9,),
        steps_per_iteration=10, updates_per_iteration=2, batch_sequences=4, warmup_updates=0, replay_tokens=1000,
    ).replace(settings)  # fmt: skip
    envs = Corridor(3)
    envs.reset(seed=0)
    agent = Agent(
        config, envs.single_observation_space, envs.single_action_space, Rollout(5), np.random.SeedSequence(3)
    )
    progress = Trainer(agent, envs, np.random.SeedSequence(4), folder).run()
    while next(progress).updates < 4:
        pass
    return torch.cat([p.detach().flatten() for p in agent.parameters()])


def test_building_an_agent_does_not_reseed_the_gpus(
    make_agent: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda seed: pytest.fail("reseeded"))
    make_agent()


def test_the_seed_decides_the_weights(make_agent: Callable[..., Agent]) -> None:
    a, b, c = (make_agent(seed=seed).actor_critic.actor[0].weight for seed in (0, 0, 1))
    assert torch.equal(a, b) and not torch.equal(a, c)


def test_what_is_drawn_from_is_heard_with_its_name() -> None:
    with listening() as heard:
        stream = child(child(3, "agent"), "collect", 4)
        assert heard == []  # asking draws nothing
        np.random.default_rng(stream)
        integer_seed(child(3, "weights"))
        np.random.default_rng(stream)
    np.random.default_rng(child(3, "later"))
    first, second, again = heard
    assert (first[0], second[0]) == (("seed 3", "agent", "collect", 4), ("seed 3", "weights"))
    assert first == again
    assert first[1] != second[1]


def test_a_stream_is_a_plain_seed_sequence_to_numpy() -> None:
    stream = child(3, "agent", 4)
    plain = np.random.SeedSequence(3, spawn_key=stream.spawn_key)
    assert np.random.default_rng(stream).integers(99, size=9).tolist() == (
        np.random.default_rng(plain).integers(99, size=9).tolist()
    )
