"""What reaches the embedding of a timestep (agent.md 1.1, 2), and what must not."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from amago_core.agent import Agent
from amago_core.config import Config, Rollout
from amago_core.nets.layers import Float32Linear
from amago_core.sequences import Batch


def test_the_encoder_sees_every_input(make_agent: Callable[..., Agent], make_batch: Callable[..., Batch]) -> None:
    """Observation, reset flag, reward, time and action each change the embedding; what is not an input does not."""
    agent = make_agent().eval()
    batch = make_batch(agent, [3])
    before = agent.encoder(batch)

    def changed(position: torch.Tensor = batch.position, **fields: torch.Tensor) -> bool:
        other = Batch(batch.packing, position, {**batch.fields, **fields})
        return not torch.equal(agent.encoder(other), before)

    assert changed(observation=batch["observation"] + 1)
    assert changed(reward=batch["reward"] + 1)
    assert changed(position=batch.position + 1)
    assert changed(action=(batch["action"] + 1) % 4)
    assert changed(reset=~batch["reset"])
    assert not changed(terminal=~batch["terminal"])


def test_a_timestep_sees_no_other(make_agent: Callable[..., Agent], make_batch: Callable[..., Batch]) -> None:
    """Least of all the next one, whose action is the one to be chosen and whose reward is its consequence."""
    agent = make_agent().eval()
    one, other = (make_batch(agent, [5], seed) for seed in (0, 1))
    mixed = {name: torch.cat([field[:2], other[name][2:]]) for name, field in one.fields.items()}
    mixed["action"][2] = (one["action"][2] + 1) % 4  # two draws of an action may be equal
    before, after = (agent.encoder(batch) for batch in (one, replace(one, fields=mixed)))
    torch.testing.assert_close(after[:2], before[:2])
    assert (after[2:] != before[2:]).any(1).all()


def test_the_time_is_hidden_where_the_limit_is_artificial(make_batch: Callable[..., Batch]) -> None:
    box = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    rollout = Rollout(20, finite=False)
    tiny = Config(encoder_hidden=(8,), positions="rotary")
    agent = Agent(tiny, box, spaces.Discrete(4), rollout, np.random.SeedSequence(0)).eval()
    batch = make_batch(agent, [3])
    later = replace(batch, position=batch.position + 7)
    assert torch.equal(agent.encoder(batch), agent.encoder(later))
    torch.testing.assert_close(agent.states(batch), agent.states(later), rtol=1e-4, atol=1e-5)
    for shows in ("learned", "sinusoidal"):
        with pytest.raises(ValueError, match=f"positions={shows} shows the agent the time"):
            Agent(tiny.replace({"positions": shows}), box, spaces.Discrete(4), rollout, np.random.SeedSequence(0))


def test_goals_are_seen(make_batch: Callable[..., Batch]) -> None:
    """The embedding of the goals is not a constant."""
    plain, goals = spaces.Box(-1, 1, (1,), np.float32), spaces.Box(-1, 1, (1, 2), np.float32)
    space = spaces.Dict({"goals": goals, "plain": plain})
    agent = Agent(Config(encoder_hidden=(8,)), space, spaces.Discrete(4), Rollout(20), np.random.SeedSequence(0)).eval()
    batch = make_batch(agent, [3])
    fields = {**batch.fields, "observation/plain": torch.zeros(3, 1)}
    shown = [replace(batch, fields={**fields, "goals": torch.full((3, 1, 2), value)}) for value in (0.0, 1.0)]
    difference = agent.encoder(shown[0]) - agent.encoder(shown[1])
    assert difference.abs().amin(1).max() > 1e-4


def test_half_precision_does_not_round_the_inputs(make_agent: Callable[..., Agent], make_batch: Callable) -> None:
    """1.5 and 1.501 are one number in bfloat16; a learner that cannot tell them apart sees no velocities."""
    agent = make_agent(input_norm=False).eval()
    batch = make_batch(agent, [2])
    caught: list[torch.Tensor] = []
    agent.encoder.map[0][0].register_forward_hook(lambda *call: caught.append(call[2]))
    with torch.autocast("cpu", torch.bfloat16):
        for value in (1.5, 1.501):
            batch["observation"][:] = value
            agent.encoder(batch)
    assert caught[0].dtype == torch.float32 and not torch.equal(*caught)


def test_an_encoder_without_hidden_layers_is_one_float32_map(make_agent: Callable[..., Agent]) -> None:
    assert [type(layer) for layer in make_agent(encoder_hidden=()).encoder.map[0]] == [Float32Linear]
