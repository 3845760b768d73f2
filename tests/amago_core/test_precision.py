"""What bfloat16 may round and what it may not: small differences between actions decide what is learnt.

With w and b of PopArt moving, the raw output of a critic wanders far from 0 while the actions differ by little: a
POPGym return of 1 stands at a raw value near 10, where neighbouring bfloat16 numbers are 0.06 apart.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.utils.flop_counter import FlopCounterMode

from amago_core.acting import Actor
from amago_core.agent import Agent
from amago_core.config import Config, Rollout
from amago_core.learner import Learner
from amago_core.nets.layers import ExactProduct, Float32EnsembleLinear, Float32Linear
from amago_core.precision import float32_products
from amago_core.sequences import Batch
from tests.amago_core.decisions import bfloat16_beside_float32

DISCRETE, BOX = spaces.Discrete(4), spaces.Box(-1, 1, (2,), np.float32)
BOTH = pytest.mark.parametrize("space", [DISCRETE, BOX], ids=["discrete", "continuous"])


@BOTH
@pytest.mark.parametrize("raw", [0.0, 10.0, 50.0])
def test_a_large_value_hides_no_small_advantage(raw: float, space: spaces.Space) -> None:
    """At most 1 % of the filter's decisions differ from float32, and the actor's gradient points the same way."""
    found = bfloat16_beside_float32(space, raw)
    assert 0.2 < found.accepted < 0.8, "the filter must both accept and refuse for this to mean something"
    assert found.flips <= 0.01
    assert found.cosine >= 0.99


def test_two_goals_that_differ_by_a_thousandth_are_told_apart() -> None:
    goals = spaces.Dict({"goals": spaces.Box(0, 1, (1, 1), np.float32), "x": spaces.Box(0, 1, (1,), np.float32)})
    agent = Agent(Config(layers=1), goals, DISCRETE, Rollout(5), np.random.SeedSequence(0))
    assert agent.encoder.goal_encoder is not None
    with torch.autocast("cpu", torch.bfloat16):
        one, other = agent.encoder.goal_encoder(torch.tensor([[0.500], [0.501]]))
    assert not torch.equal(one, other)


def test_only_gradients_that_are_asked_for_are_worked_out() -> None:
    """The first layer of the encoder has the widest input of all, and observations need no gradient."""
    x, weight, bias = torch.randn(5, 3, dtype=torch.float64), torch.randn(3, 2), torch.randn(2)
    inputs = [part.double().requires_grad_() for part in (x, weight, bias)]
    assert torch.autograd.gradcheck(ExactProduct.apply, inputs)
    for needed in ((False, True, True), (True, False, False)):
        some = [part.detach().requires_grad_(need) for part, need in zip(inputs, needed, strict=True)]
        with FlopCounterMode(display=False) as counted:
            ExactProduct.apply(*some).sum().backward()
        assert [part.grad is not None for part in some] == list(needed)
        assert counted.get_total_flops() == 2 * (2 * 5 * 3 * 2)  # one product forward, one backward


def float32_precision() -> tuple[str, str]:
    """Of matrix products and of cuDNN's recurrent networks; PyTorch keeps both without a GPU too."""
    matmul: Any = torch.backends.cuda.matmul
    rnn: Any = torch.backends.cudnn.rnn
    return matmul.fp32_precision, rnn.fp32_precision


@pytest.fixture
def tf32_everywhere() -> Iterator[None]:
    """A process that asked PyTorch for TF32, which concerns every product that is not told otherwise."""
    matmul: Any = torch.backends.cuda.matmul
    rnn: Any = torch.backends.cudnn.rnn
    before = float32_precision()
    matmul.fp32_precision = rnn.fp32_precision = "tf32"
    yield
    matmul.fp32_precision, rnn.fp32_precision = before


def test_the_precision_of_the_process_is_set_again_whatever_happens(tf32_everywhere: None) -> None:
    with pytest.raises(KeyError), float32_products("ieee"):
        assert float32_precision() == ("ieee", "ieee")
        with float32_products("tf32"):
            assert float32_precision() == ("tf32", "ieee")
        assert float32_precision() == ("ieee", "ieee")
        raise KeyError
    assert float32_precision() == ("tf32", "tf32")


@BOTH
@pytest.mark.parametrize(("dtype", "backward"), [("float32", "ieee"), ("bfloat16", "tf32")])
def test_what_decides_is_never_tf32_and_its_gradient_is_only_with_bfloat16(
    dtype: str, backward: str, space: spaces.Space, tf32_everywhere: None, make_agent: Callable[..., Agent],
    make_batch: Callable[..., Batch],
) -> None:  # fmt: skip
    agent = make_agent(space, dtype=dtype)
    seen: dict[str, set[tuple[str, str]]] = {"forward": set(), "backward": set()}
    decisive = [m for m in agent.modules() if isinstance(m, Float32Linear | Float32EnsembleLinear)]
    assert len(decisive) == 5  # first of the encoder; last of actor and critics, and of their targets
    for module in decisive:
        module.register_forward_hook(lambda *_: seen["forward"].add(float32_precision()))
    last = agent.actor_critic.critics.rest[-1].weight
    last.register_hook(lambda gradient: seen["backward"].add(float32_precision()))
    Learner(agent).update(make_batch(agent, [8, 8]))
    assert seen == {"forward": {("ieee", "ieee")}, "backward": {(backward, "ieee")}}
    assert float32_precision() == ("tf32", "tf32")


def test_acting_is_never_tf32(tf32_everywhere: None, make_agent: Callable[..., Agent]) -> None:
    agent, seen = make_agent(sequence_model="gru", dtype="bfloat16"), []
    agent.sequence_model.gru.register_forward_hook(lambda *_: seen.append(float32_precision()))
    first = np.ones(2, bool)
    observation = {"observation": np.zeros((2, 3), np.float32)}
    Actor(agent, 2).step(observation, np.zeros(2, np.float32), first, ~first, np.random.default_rng(0), sample=True)
    assert seen == [("ieee", "ieee")]
