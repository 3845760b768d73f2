"""The losses against a second implementation, written from the paper's text with two passes and two backwards.

The agent takes one critic pass (discrete) or frozen parameters (continuous) and one backward pass. Here the critics
are switched off for the actor terms, then on for theirs, transition by transition, critic by critic, discount by
discount, all in float64, so the two must agree to rounding.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn import functional as F

from amago_core.agent import Agent
from amago_core.learner import Learner
from amago_core.nets.actor_critic import ActorCriticOutput
from amago_core.sequences import Batch, Packing

DISCRETE, CONTINUOUS = spaces.Discrete(4), spaces.Box(-1, 1, (2,), np.float32)
BOTH = pytest.mark.parametrize("space", [DISCRETE, CONTINUOUS], ids=["discrete", "continuous"])
LENGTHS = [5, 2, 7, 3]


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Everything in float64, the casts to float32 included."""
    torch.set_default_dtype(torch.float64)
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    yield
    torch.set_default_dtype(torch.float32)


def as_double(batch: Batch) -> Batch:
    wide = {name: field.double() if field.is_floating_point() else field for name, field in batch.fields.items()}
    return replace(batch, fields=wide)


def unusual(agent: Agent) -> Agent:
    """Away from the special values of the start: other targets, other PopArt."""
    generator = torch.Generator().manual_seed(7)
    _, targets = agent.actor_critic.online_and_target()
    with torch.no_grad():
        for p in targets:
            p += 0.1 * torch.randn(p.shape, generator=generator)
    popart = agent.popart
    buffers = {popart.moments.mean: 1.5, popart.moments.variance: 28.0, popart.w: 0.7, popart.b: 0.3}
    for buffer, value in buffers.items():
        buffer.copy_(value * torch.linspace(1, 1.5, 3))
    return agent


def gradients(agent: Agent) -> dict[str, Tensor]:
    return {k: torch.zeros_like(p) if p.grad is None else p.grad for k, p in agent.named_parameters()}


class TwoPass:
    """agent.md 5, line by line, for one agent; the draws come from the agent's generator in the agent's order."""

    def __init__(self, agent: Agent, minimum_first: bool = False) -> None:
        self.agent, self.config, self.minimum_first = agent, agent.config, minimum_first
        self.gammas = (0.5, 0.9, 0.97)

    def backward(self, batch: Batch) -> float:
        agent, config = self.agent, self.config
        states = agent.states(batch)
        packing = batch.packing
        steps = [s + t for s, n in zip(packing.starts, packing.lengths, strict=True) for t in range(n - 1)]
        now, after = states[steps], states[[t + 1 for t in steps]]
        action, reward, terminal = (batch[k][[t + 1 for t in steps]] for k in ("action", "reward", "terminal"))

        agent.actor_critic.critics.requires_grad_(False)
        policy = self.sampled(agent.actor_critic.actor, now)  # drawn first
        with torch.no_grad():
            target = self.target(after.detach(), reward, terminal)
            w, b, mean, sigma = self.popart(target)
            taken = self.q(agent.actor_critic.critics, now, self.replayed(action))
            filter_ = (taken.mean(1) - self.q(agent.actor_critic.critics, now, policy).mean(1)) > 1e-3
        if self.minimum_first:
            online = -(w * self.table(now.detach()).amin(1).mul(policy).sum(-1) + b).mean()
        else:
            online = -(w * self.q(agent.actor_critic.critics, now.detach(), policy).amin(1) + b).mean()
        offline = -(filter_ * self.log_prob(now, action)).mean()
        (config.online_weight * online + config.offline_weight * offline).backward(retain_graph=True)

        agent.actor_critic.critics.requires_grad_(True)
        taken = self.q(agent.actor_critic.critics, now, self.replayed(action))  # [M, C, G]
        critic = (w * taken + b - ((target - mean) / sigma).unsqueeze(1)).square().mean()
        (config.critic_weight * critic).backward()
        total = config.online_weight * online + config.offline_weight * offline + config.critic_weight * critic
        return total.item()

    def target(self, after: Tensor, reward: Tensor, terminal: Tensor) -> Tensor:
        popart = self.agent.popart
        networks = self.agent.actor_critic
        old_sigma = popart.moments.variance.sqrt()
        q = self.q(networks.target_critics, after, self.sampled(networks.target_actor, after))
        value = old_sigma * (popart.w * q + popart.b) + popart.moments.mean  # [M, C, G]
        pair = torch.randint(self.config.critics, (len(q), 2, 3), generator=self.agent.generator)
        y = torch.empty(len(q), 3)
        for m in range(len(q)):
            for i, gamma in enumerate(self.gammas):
                choices = [
                    self.config.reward_multiplier * reward[m] + gamma * (0 if terminal[m] else 1) * value[m, c, i]
                    for c in pair[m, :, i]
                ]
                y[m, i] = min(choices)
        return y

    def popart(self, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        p, rate = self.agent.popart, self.config.popart_rate
        beta = rate / (1 - (1 - rate) ** 2)
        old = p.moments.variance.sqrt()
        before = p.moments.variance + p.moments.mean**2
        mean, square = (1 - beta) * p.moments.mean + beta * y.mean(0), (1 - beta) * before + beta * (y**2).mean(0)
        sigma = (square - mean**2).sqrt()
        return p.w * old / sigma, (old * p.b + p.moments.mean - mean) / sigma, mean, sigma

    def outputs(self, actor: torch.nn.Module, state: Tensor) -> Tensor:
        """[M, G, A] or [M, G, 2 A]: the outputs of the actor are [A, G] for discrete and [G, 2 A] for continuous."""
        if self.agent.actions.discrete:
            return actor(state).view(len(state), -1, 3).transpose(1, 2)
        return actor(state).view(len(state), 3, -1)

    def sampled(self, actor: torch.nn.Module, state: Tensor) -> Tensor:
        """What the policy does: probabilities [M, G, A], or one sample."""
        out = self.outputs(actor, state)
        if self.agent.actions.discrete:
            clipped = out.softmax(-1).clamp(0.001, 0.99)
            return clipped / clipped.sum(-1, keepdim=True)
        mean, raw = out.chunk(2, -1)
        noise = torch.empty(mean.shape).normal_(generator=self.agent.generator)
        return (mean + (-5 + 3.5 * (raw.tanh() + 1)).exp() * noise).tanh()

    def replayed(self, action: Tensor) -> Tensor:
        if self.agent.actions.discrete:
            return F.one_hot(action.long(), 4).double().unsqueeze(1).expand(-1, 3, -1)
        return action.unsqueeze(1).expand(-1, 3, -1)

    def log_prob(self, state: Tensor, action: Tensor) -> Tensor:
        out = self.outputs(self.agent.actor_critic.actor, state)
        if self.agent.actions.discrete:
            clipped = out.softmax(-1).clamp(0.001, 0.99)
            probabilities = clipped / clipped.sum(-1, keepdim=True)
            return torch.stack([p[:, a].log() for p, a in zip(probabilities, action.long(), strict=True)])
        mean, raw = out.chunk(2, -1)
        sigma = (-5 + 3.5 * (raw.tanh() + 1)).exp()
        a = action.clamp(-0.99, 0.99).unsqueeze(1)
        density = torch.exp(-0.5 * ((torch.atanh(a) - mean) / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi))
        return (density / (1 - a**2)).log().sum(-1).clamp(-1e3, 1e3)

    def member(self, critics: torch.nn.Module, c: int, x: Tensor) -> Tensor:
        for k, layer in enumerate((critics.first, *critics.rest[1::2])):
            x = F.leaky_relu(x) if k else x
            x = x @ layer.weight[c] + layer.bias[c]
        return x

    def table(self, state: Tensor, critics: torch.nn.Module | None = None) -> Tensor:
        critics = critics or self.agent.actor_critic.critics
        members = [self.member(critics, c, state).view(-1, 4, 3).mT for c in range(self.config.critics)]
        return torch.stack(members, 1)  # [M, C, G, A]

    def q(self, critics: torch.nn.Module, state: Tensor, action: Tensor) -> Tensor:
        if self.agent.actions.discrete:
            return (self.table(state, critics) * action.unsqueeze(1)).sum(-1)
        columns = []
        for i, gamma in enumerate(self.gammas):
            feature = torch.full((len(state), 1), 10 * math.log(gamma))
            x = torch.cat([state, feature, action[:, i].clamp(-0.999, 0.999)], 1)
            columns.append(torch.cat([self.member(critics, c, x) for c in range(self.config.critics)], 1))
        return torch.stack(columns, 2)


@pytest.mark.usefixtures("double")
@BOTH
def test_loss_and_gradients_equal_the_two_pass_reference(
    space: spaces.Space, make_agent: Callable[..., Agent], make_batch: Callable[..., Batch]
) -> None:
    """Routing, detachment, and the minimum after the expectation."""
    ours, theirs = (unusual(make_agent(space)) for _ in range(2))
    batch = as_double(make_batch(ours, LENGTHS))
    losses = ours.losses(batch)
    losses.total.backward()
    expected = TwoPass(theirs).backward(batch)
    assert 0 < losses.accepted < 1, "the filter must both accept and refuse for this test to mean something"
    assert losses.total.item() == pytest.approx(expected, rel=1e-9)
    torch.testing.assert_close(gradients(ours), gradients(theirs), rtol=1e-7, atol=1e-9)


@pytest.mark.usefixtures("double")
def test_a_minimum_per_action_is_another_gradient(
    make_agent: Callable[..., Agent], make_batch: Callable[..., Batch]
) -> None:
    """The minimum of the tables before the expectation is told apart."""
    right, wrong = (unusual(make_agent()) for _ in range(2))
    batch = as_double(make_batch(right, LENGTHS))
    TwoPass(right).backward(batch)
    TwoPass(wrong, minimum_first=True).backward(batch)
    a, b = (agent.actor_critic.actor[-1].weight.grad for agent in (right, wrong))
    assert (a - b).norm() > 0.05 * a.norm()


@BOTH
def test_the_online_term_reaches_policy_and_encoder_and_no_critic(
    space: spaces.Space,
    make_agent: Callable[..., Agent],
    make_batch: Callable[..., Batch],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """agent.md 5.4: through the policy only; without it nothing is left."""
    agent = make_agent(space, critic_weight=0.0, offline_weight=0.0)
    batch = make_batch(agent, LENGTHS)
    agent.losses(batch).total.backward()
    found = gradients(agent)
    assert not any(g.any() for k, g in found.items() if "critics" in k)
    reached = ("actor_critic.actor.0.weight", "encoder.map.0.0.weight", "sequence_model.embed.weight")
    assert all(found[name].any() for name in reached)

    agent.zero_grad()
    name = "_probabilities" if agent.actions.discrete else "_sample"
    attached = getattr(agent.actor_critic, name)
    monkeypatch.setattr(agent.actor_critic, name, lambda *args: attached(*args).detach())
    agent.losses(batch).total.backward()
    assert not any(g.any() for g in gradients(agent).values())


@BOTH
def test_the_critic_term_reaches_critics_and_encoder_and_no_policy(
    space: spaces.Space, make_agent: Callable[..., Agent], make_batch: Callable[..., Batch]
) -> None:
    agent = make_agent(space, online_weight=0.0, offline_weight=0.0)
    agent.losses(make_batch(agent, LENGTHS)).total.backward()
    found = gradients(agent)
    assert not any(g.any() for k, g in found.items() if "critic.actor" in k or "target" in k)
    assert all(found[k].any() for k in ("actor_critic.critics.first.weight", "encoder.map.0.0.weight"))


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("model", ["transformer", "gru"])
def test_a_sequence_adds_the_same_whatever_it_is_batched_with(
    model: str, make_agent: Callable[..., Agent], make_batch: Callable[..., Batch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A packed batch is the transition-weighted mean of its sequences, in any order, with frozen
    statistics and one critic, so that no draw depends on the place in the batch."""
    agent = make_agent(sequence_model=model, critics=1, input_norm=False)
    monkeypatch.setattr(agent.popart, "update", lambda y: None)
    agent.eval()
    batch = as_double(make_batch(agent, LENGTHS))
    pieces = np.split(np.arange(batch.packing.tokens), batch.packing.ends[:-1])

    def measure(chosen: list[int]) -> tuple[float, Tensor]:
        part = select(batch, [pieces[i] for i in chosen])
        agent.zero_grad()
        loss = agent.losses(part).total
        loss.backward()
        return loss.item(), torch.cat([g.flatten() for g in gradients(agent).values()])

    alone = [measure([i]) for i in range(4)]
    weights = [n - 1 for n in LENGTHS]
    for order in ([0, 1, 2, 3], [2, 0, 3, 1], [1, 3]):
        total = sum(weights[i] for i in order)
        loss, gradient = measure(order)
        assert loss == pytest.approx(sum(weights[i] * alone[i][0] for i in order) / total, rel=1e-9)
        torch.testing.assert_close(gradient, sum(weights[i] * alone[i][1] for i in order) / total, rtol=1e-7, atol=1e-9)


def select(batch: Batch, pieces: list[np.ndarray]) -> Batch:
    index = torch.from_numpy(np.concatenate(pieces))
    fields = {name: field[index] for name, field in batch.fields.items()}
    return Batch(Packing([len(p) for p in pieces]), batch.position[index], fields)


def test_the_pair_of_critics_is_drawn_with_replacement_per_transition_and_discount(
    make_agent: Callable[..., Agent],
) -> None:
    """The smaller of two draws out of 0..3 is 0, 1, 2, 3 with probability 7, 5, 3, 1 in 16."""
    n = 50_000
    targets = torch.arange(4.0).view(1, 4, 1).expand(n, 4, 2)
    smaller = make_agent()._reduce_pair(targets)
    frequencies = torch.bincount(smaller[:, 0].long(), minlength=4) / n
    torch.testing.assert_close(frequencies, torch.tensor([7, 5, 3, 1]) / 16, atol=0.01, rtol=0)
    assert smaller.mean() < targets.mean()
    assert abs(np.corrcoef(smaller.T.numpy())[0, 1]) < 0.02  # independent over discounts
    lone = make_agent(critics=1)._reduce_pair(targets[:, 2:3])
    assert (lone == 2).all()


@pytest.mark.parametrize(("terminal", "value"), [(False, 10.0), (True, (1 - 0.9**5) / 0.1)])
def test_values_of_a_constant_reward(
    terminal: bool, value: float, make_agent: Callable[..., Agent], make_batch: Callable[..., Batch]
) -> None:
    """Reward 1, discount 0.9, five steps. An artificial limit gives 1 / (1 - 0.9), a true end the finite sum. One
    critic that is trained alone: the smaller of two that disagree would be biased."""
    agent = make_agent(
        sequence_model="memoryless", discounts=(), gamma=0.9, lr=1e-3, tau=0.2, critics=1,
        reward_multiplier=1.0, popart_rate=0.01, online_weight=0.0, offline_weight=0.0, input_norm=False,
    )  # fmt: skip
    learner, batch = Learner(agent), make_batch(agent, [6] * 32)  # every action at every step
    ends = torch.zeros_like(batch["terminal"])
    ends[torch.from_numpy(batch.packing.ends - 1)] = terminal
    constant = {"reward": torch.ones_like(batch["reward"]), "observation": torch.zeros_like(batch["observation"])}
    batch = replace(batch, fields={**batch.fields, **constant, "terminal": ends})
    for _ in range(600):
        learner.update(batch)
    agent.eval()
    starts = torch.from_numpy(batch.packing.starts)
    with torch.no_grad():
        q = agent.actor_critic.evaluate_actions(agent.states(batch)[starts], batch["action"][starts + 1]).q_action
    assert agent.popart.value(q).mean().item() == pytest.approx(value, rel=0.05)


def test_half_precision_changes_the_loss_a_little_only(
    make_agent: Callable[..., Agent], make_batch: Callable[..., Batch]
) -> None:
    results = []
    for enabled in (False, True):
        agent = make_agent()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            losses = agent.losses(make_batch(agent, LENGTHS))
        assert losses.total.dtype == torch.float32
        results.append(losses)
    assert results[1].critic.item() == pytest.approx(results[0].critic.item(), rel=0.05)
    assert results[1].online.item() == pytest.approx(results[0].online.item(), rel=0.05, abs=0.05)


def test_the_filter_sees_a_small_advantage_in_half_precision(
    make_agent: Callable[..., Agent], make_batch: Callable[..., Batch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Critics that say 1, 1, 1, 1.0078 (the next bfloat16) for the action and 1 for the policy: the advantage 0.00195
    is above the threshold of 0.001, but a mean in bfloat16 is 1."""
    agent = make_agent()
    batch = make_batch(agent, [2])
    taken = torch.tensor([1, 1, 1, 1.0078125]).view(1, 4, 1).expand(1, 4, 3).bfloat16()
    output = ActorCriticOutput(q_action=taken, q_policy=torch.ones(1, 4, 3).bfloat16(), log_prob=torch.zeros(1, 3))
    monkeypatch.setattr(agent.actor_critic, "evaluate_actions", lambda *_: output)
    assert agent.losses(batch).accepted == 1


def test_without_the_online_term_the_pair_is_averaged(make_agent: Callable[..., Agent]) -> None:
    targets = torch.tensor([[[1.0], [3.0]]]).repeat(4000, 1, 1)  # [M, C = 2, G = 1]
    averaged = make_agent(critics=2, online_weight=0.0)._reduce_pair(targets)
    assert set(averaged.flatten().tolist()) == {1.0, 2.0, 3.0}
    assert averaged.mean().item() == pytest.approx(2.0, abs=0.06)  # the minimum has mean 1.5
