"""What the advantage filter decides where values are large and differ little between actions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from gymnasium import spaces

from amago_core.agent import Agent
from amago_core.learner import Learner
from amago_core.sequences import Batch
from tests.amago_core.tiny import random_batch, tiny_agent

SPREAD = 0.024  # of a critic's values over the actions at one state, about one standard deviation


@dataclass(frozen=True)
class Agreement:
    """Of bfloat16 with float32."""

    accepted: float  # share of transitions that the filter accepts in float32
    flips: float  # share of decisions that differ
    cosine: float  # between the gradients of the actor


def bfloat16_beside_float32(action_space: spaces.Space, raw: float, device: str = "cpu") -> Agreement:
    """One update in each type from the same weights and batch, where the critics say about `raw`."""
    found = {}
    for dtype in ("float32", "bfloat16"):
        agent = tiny_agent(
            action_space, horizon=41, device=device, dtype=dtype, gradient_clip=1e9, input_norm=False,
            encoder_hidden=(64,), encoder_width=64, width=64, actor_critic_hidden=(64, 64),
        )  # fmt: skip
        batch = random_batch(agent, [41] * 50)
        raise_values(agent, batch, raw)
        found[dtype] = decisions_and_gradient(agent, batch)
    (exact, gradient), (half, rounded) = found["float32"], found["bfloat16"]
    return Agreement(
        exact.float().mean().item(),
        (half != exact).float().mean().item(),
        torch.cosine_similarity(gradient, rounded, dim=0).item(),
    )


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
