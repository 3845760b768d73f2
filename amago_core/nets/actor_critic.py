"""Actor and critics: one policy and one value per discount (agent.md 4).

`DiscreteActorCritic` and `ContinuousActorCritic` offer `bootstrap` and `evaluate_actions` to the losses, and `policy`
and `act` for acting. Letters: M transitions, C critics, G discounts, A actions.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from amago_core.config import Config
from amago_core.nets.layers import EnsembleLinear, Float32EnsembleLinear, Float32Linear, activation, mlp
from amago_core.spaces import UnsupportedSpace

Array: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True)
class ActorCriticOutput:
    """What the losses need for M transitions."""

    q_action: Tensor  # Q(s, a) of the replayed action [M, C, G]; gradient to critics and state
    q_policy: Tensor  # Q(s, a ~ policy) [M, C, G]; gradient to the policy alone
    log_prob: Tensor  # log pi(a | s) of the replayed action [M, G]; gradient to the policy


class Critics(nn.Module):
    """C multilayer perceptrons side by side, with at least one hidden layer."""

    def __init__(self, config: Config, inputs: int, outputs: int) -> None:
        super().__init__()
        hidden = config.actor_critic_hidden
        self.first = EnsembleLinear(config.critics, inputs, hidden[0])
        rest: list[nn.Module] = []
        for fan_in, fan_out in pairwise(hidden):
            rest += [activation(config.actor_critic_activation), EnsembleLinear(config.critics, fan_in, fan_out)]
        # Values may be large and differ little between actions: the difference would not survive bfloat16's 8 bits.
        rest += [activation(config.actor_critic_activation), Float32EnsembleLinear(config.critics, hidden[-1], outputs)]
        self.rest = nn.Sequential(*rest)  # [C, M, hidden] -> [C, M, outputs]

    def forward(self, x: Tensor) -> Tensor:
        """x [M, inputs], the same for all members -> [C, M, outputs]."""
        q: Tensor = self.rest(self.first(x.expand(len(self.first.weight), -1, -1)))
        return q


class ActorCritic(nn.Module):
    """Online and target networks of the actor and the critics. There is no target copy of the encoder (agent.md 5)."""

    actor: nn.Module
    critics: Critics

    def _copy_targets(self) -> None:
        self.target_actor = copy.deepcopy(self.actor).requires_grad_(False)
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False)

    def online_and_target(self) -> tuple[list[Tensor], list[Tensor]]:
        """Parameters of the online networks and, in the same order, of their targets."""
        online: list[Tensor] = [*self.actor.parameters(), *self.critics.parameters()]
        target: list[Tensor] = [*self.target_actor.parameters(), *self.target_critics.parameters()]
        return online, target

    def bootstrap(self, state: Tensor) -> Tensor:
        """Target critics at the target policy's action: detached states [M, D] -> raw values [M, C, G]."""
        raise NotImplementedError

    def evaluate_actions(self, state: Tensor, action: Tensor) -> ActorCriticOutput:
        """Online critics and policy at states [M, D] and replayed actions [M] or [M, A]."""
        raise NotImplementedError

    def policy(self, state: Tensor) -> Tensor:
        """Parameters of the acting policy (the last discount) at states [B, D]."""
        raise NotImplementedError

    def act(self, policy: Tensor, rng: np.random.Generator, sample: bool) -> npt.NDArray[np.generic]:
        """Stored actions [B] or [B, A], sampled or the policy's mode."""
        raise NotImplementedError


PAPER_ACTIONS = 144  # the most in any task of the paper (Battleship on a 12 x 12 board)
LARGEST_TABLE = 4 << 30  # bytes; learning holds several tables of this size at once


def probability_floor(actions: int) -> float:
    """The smallest probability after the clip, before it is normalised again: 0.001, as in the paper.

    With many actions the floors add up: with 1,024 the greedy action could reach at most 0.49, and with 4,096 even a
    uniform policy is below the floor and has no gradient. So beyond the paper's sizes the floor keeps 0.9 reachable.
    """
    return 0.001 if actions <= PAPER_ACTIONS else 0.1 / (actions - 1)


def clipped_softmax(logits: Tensor) -> Tensor:
    """Logits [M, A, ...] -> probabilities clipped to [`probability_floor`, 0.99] and normalised again.

    The gradient passes through the divisor, but not through clipped entries. The clip bounds the entropy from below.
    """
    clipped = logits.softmax(dim=1).clamp(probability_floor(logits.shape[1]), 0.99)
    return clipped / clipped.sum(dim=1, keepdim=True)


def check_table(config: Config, horizon: int, discounts: int, actions: int) -> None:
    """Raises UnsupportedSpace if the critics' table of a batch, [C, M, A, G] in float32, would not fit in memory."""
    transitions = min(config.batch_tokens, config.batch_sequences * min(config.context or horizon, horizon))
    size = 4 * config.critics * transitions * actions * discounts
    if size > LARGEST_TABLE:
        raise UnsupportedSpace(
            f"{actions:,} actions: the values of a batch ({config.critics} critics x {transitions:,} transitions x "
            f"{actions:,} actions x {discounts} discounts) would take {size / 2**30:.0f} GiB, the most is "
            f"{LARGEST_TABLE >> 30}; use fewer discounts, a lower batch_tokens, or fewer actions"
        )


class DiscreteActorCritic(ActorCritic):
    """Critics output a table over actions, so the expectation under the policy is exact and differentiable.

    One pass of the critics serves both losses: the table does not depend on the action, so the actor reads its
    detached copy (agent.md 5.4).
    """

    def __init__(self, config: Config, discounts: int, actions: int) -> None:
        super().__init__()
        self.discounts, self.actions = discounts, actions
        sizes = (config.width, *config.actor_critic_hidden, discounts * actions)
        self.actor = mlp(sizes, config.actor_critic_activation, last=Float32Linear)
        self.critics = Critics(config, config.width, discounts * actions)
        self._copy_targets()

    # Actions come before discounts: sums over actions then add contiguous rows, which is several times faster.

    def _table(self, critics: Critics, state: Tensor) -> Tensor:
        return critics(state).view(-1, len(state), self.actions, self.discounts)  # [C, M, A G] -> [C, M, A, G]

    def _probabilities(self, actor: nn.Module, state: Tensor) -> Tensor:
        return clipped_softmax(actor(state).float().view(-1, self.actions, self.discounts))  # [M, A, G]

    def bootstrap(self, state: Tensor) -> Tensor:
        probabilities = self._probabilities(self.target_actor, state)
        return (self._table(self.target_critics, state) * probabilities).sum(2).transpose(0, 1)

    def evaluate_actions(self, state: Tensor, action: Tensor) -> ActorCriticOutput:
        table = self._table(self.critics, state)  # [C, M, A, G]
        probabilities = self._probabilities(self.actor, state)
        rows = torch.arange(len(state), device=state.device)
        return ActorCriticOutput(
            q_action=table[:, rows, action.long()].transpose(0, 1),
            q_policy=(table.detach() * probabilities).sum(2).transpose(0, 1),
            log_prob=probabilities[rows, action.long()].log(),
        )

    def policy(self, state: Tensor) -> Tensor:
        return clipped_softmax(self.actor(state).view(-1, self.actions, self.discounts)[..., -1])

    def act(self, policy: Tensor, rng: np.random.Generator, sample: bool) -> npt.NDArray[np.generic]:
        probabilities: Array = policy.cpu().numpy()
        if not sample:
            return probabilities.argmax(-1)
        cumulative = probabilities.cumsum(-1)
        drawn = rng.random((len(cumulative), 1)) * cumulative[:, -1:]
        return (drawn >= cumulative[:, :-1]).sum(-1)


class ContinuousActorCritic(ActorCritic):
    """Tanh-squashed Gaussian policies; critics read (state, discount, action) and output one number.

    Args:
        generator: draws the action samples in the losses.
    """

    feature: Tensor

    def __init__(self, config: Config, discounts: tuple[float, ...], actions: int, generator: torch.Generator) -> None:
        super().__init__()
        self.discounts, self.actions, self.generator = len(discounts), actions, generator
        sizes = (config.width, *config.actor_critic_hidden, len(discounts) * 2 * actions)
        self.actor = mlp(sizes, config.actor_critic_activation, last=Float32Linear)
        self.critics = Critics(config, config.width + 1 + actions, 1)
        self.register_buffer("feature", 10 * torch.tensor(discounts).clamp(min=1e-3).log().unsqueeze(1))  # [G, 1]
        self._copy_targets()

    def _gaussian(self, actor: nn.Module, state: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation before the tanh, each [M, G, A]."""
        mean, raw = actor(state).float().view(-1, self.discounts, 2 * self.actions).chunk(2, dim=-1)
        return mean, -5.0 + 3.5 * (raw.tanh() + 1.0)

    def _sample(self, mean: Tensor, log_std: Tensor) -> Tensor:
        noise = torch.empty_like(mean).normal_(generator=self.generator)
        return (mean + log_std.exp() * noise).tanh()

    def _q(self, critics: Critics, state: Tensor, action: Tensor) -> Tensor:
        """state [M, D], action [M, 1 or G, A] -> [M, C, G].

        The first layer is linear in (state, discount, action), so the state's part is computed once per
        transition and not once per discount. The clamp makes pushing actions to the border pointless.
        """
        first = critics.first
        width = state.shape[-1]
        of_state, of_rest = first.weight[:, :width], first.weight[:, width:]  # [C, D, W], [C, 1 + A, W]
        gamma = self.feature.expand(len(action), -1, -1)  # [M, G, 1]
        rest = torch.cat([gamma, action.clamp(-0.999, 0.999).expand(-1, self.discounts, -1)], dim=-1)  # [M, G, 1 + A]
        with torch.autocast(state.device.type, enabled=False):  # the action's small effect passes through every layer
            h = torch.einsum("md,cdw->cmw", state, of_state).unsqueeze(2) + torch.einsum("mgr,crw->cmgw", rest, of_rest)
            h = (h + first.bias.unsqueeze(2)).flatten(1, 2)  # [C, M, G, W] -> [C, M G, W]
            q: Tensor = critics.rest(h).view(-1, len(state), self.discounts)  # [C, M G, 1] -> [C, M, G]
        return q.transpose(0, 1)

    def bootstrap(self, state: Tensor) -> Tensor:
        return self._q(self.target_critics, state, self._sample(*self._gaussian(self.target_actor, state)))

    def evaluate_actions(self, state: Tensor, action: Tensor) -> ActorCriticOutput:
        mean, log_std = self._gaussian(self.actor, state)
        sample = self._sample(mean, log_std)
        taken = self._q(self.critics, state, action.unsqueeze(1))
        frozen = {name: p.detach() for name, p in self.critics.named_parameters()}
        policy = self._frozen_q(frozen, state.detach(), sample)
        return ActorCriticOutput(q_action=taken, q_policy=policy, log_prob=self._log_prob(mean, log_std, action))

    def _frozen_q(self, parameters: dict[str, Tensor], state: Tensor, action: Tensor) -> Tensor:
        """The critics as constants: the gradient reaches the action and nothing else (agent.md 5.4)."""
        constants = {f"critics.{name}": p for name, p in parameters.items()}
        q: Tensor = torch.func.functional_call(self, constants, (state, action))
        return q

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        """Raw values of the online critics [M, C, G]."""
        return self._q(self.critics, state, action)

    def _log_prob(self, mean: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
        """log pi(a) [M, G] of replayed actions [M, A], clamped (agent.md 4.3)."""
        action = action.clamp(-0.99, 0.99).unsqueeze(1)
        z = (action.atanh() - mean) / log_std.exp()
        gaussian = -0.5 * z.square() - log_std - 0.5 * math.log(2 * math.pi)
        return (gaussian - (1 - action.square()).log()).sum(-1).clamp(-1e3, 1e3)

    def policy(self, state: Tensor) -> Tensor:
        return torch.stack([x[:, -1] for x in self._gaussian(self.actor, state)])  # [2, B, A]

    def act(self, policy: Tensor, rng: np.random.Generator, sample: bool) -> npt.NDArray[np.generic]:
        mean, log_std = policy.cpu().numpy()
        noise = rng.standard_normal(mean.shape, np.float32) if sample else 0.0
        # The mode is the squashed mean, which stays inside the range.
        return np.tanh(mean + np.exp(log_std) * noise).astype(np.float32)
