"""What bfloat16 may round and what it may not: small differences between actions decide what is learnt.

With w and b of PopArt moving, the raw output of a critic wanders far from 0 while the actions differ by little: a
POPGym return of 1 stands at a raw value near 10, where neighbouring bfloat16 numbers are 0.06 apart.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.utils.flop_counter import FlopCounterMode

from amago_core.agent import Agent
from amago_core.config import Config, Rollout
from amago_core.learner import Learner
from amago_core.nets.layers import ExactProduct
from amago_core.sequences import Batch

DISCRETE, BOX = spaces.Discrete(4), spaces.Box(-1, 1, (2,), np.float32)
BOTH = pytest.mark.parametrize("space", [DISCRETE, BOX], ids=["discrete", "continuous"])
WIDTHS = {"encoder_hidden": (64,), "encoder_width": 64, "width": 64, "actor_critic_hidden": (64, 64)}
SIZES = {**WIDTHS, "input_norm": False}
SPREAD = 0.024  # of a critic's values over the actions at one state, about one standard deviation


@torch.no_grad()
def raise_values(agent: Agent, batch: Batch, raw: float) -> None:
    """Critics that say about `raw` everywhere, half of it in the weights, with actions `SPREAD` apart."""
    last = agent.actor_critic.critics.rest[-1]
    states = agent.states(batch)
    other = batch["action"][torch.randperm(len(batch["action"]), generator=torch.Generator().manual_seed(0))]
    values = [agent.actor_critic.evaluate_actions(states, action).q_action for action in (batch["action"], other)]
    last.weight.mul_(SPREAD / ((values[0] - values[1]).std() / 2**0.5))
    hidden = []
    handle = last.register_forward_pre_hook(lambda _, inputs: hidden.append(inputs[0]))
    agent.actor_critic.evaluate_actions(states, batch["action"])
    handle.remove()
    mean = hidden[0].mean(1)  # [C, hidden], of the last layer's inputs
    last.weight.add_((raw / 2 * mean / mean.square().sum(1, keepdim=True)).unsqueeze(-1))
    last.bias.add_(raw / 2)


def decisions_and_gradient(agent: Agent, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """What the advantage filter accepts, and the actor's gradient, of one forward and backward pass of the learner."""
    accepted = []
    evaluate = agent.actor_critic.evaluate_actions

    def listen(*args: torch.Tensor) -> object:
        found = evaluate(*args)
        advantage = found.q_action.float().mean(1) - found.q_policy.float().mean(1)
        accepted.append(advantage > agent.config.advantage_threshold)
        return found

    agent.actor_critic.evaluate_actions = listen  # type: ignore[method-assign]
    Learner(agent).update(batch)
    gradient = torch.cat([p.grad.flatten() for p in agent.actor_critic.actor.parameters() if p.grad is not None])
    return accepted[0], gradient


@BOTH
@pytest.mark.parametrize("raw", [0.0, 10.0, 50.0])
def test_a_large_value_hides_no_small_advantage(
    raw: float, space: spaces.Space, make_agent: Callable[..., Agent], make_batch: Callable[..., Batch]
) -> None:
    """At most 1 % of the filter's decisions differ from float32, and the actor's gradient points the same way."""
    found = {}
    for dtype in ("float32", "bfloat16"):
        agent = make_agent(space, horizon=41, dtype=dtype, gradient_clip=1e9, **SIZES)
        batch = make_batch(agent, [41] * 50)
        raise_values(agent, batch, raw)
        found[dtype] = decisions_and_gradient(agent, batch)
    (exact, gradient), (half, rounded) = found["float32"], found["bfloat16"]
    flips, cosine = (half != exact).float().mean().item(), torch.cosine_similarity(gradient, rounded, dim=0).item()
    assert 0.2 < exact.float().mean() < 0.8, "the filter must both accept and refuse for this to mean something"
    assert flips <= 0.01
    assert cosine >= 0.99


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
