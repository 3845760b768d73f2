"""Policies and critics against torch.distributions and by hand (agent.md 4)."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.distributions import Categorical, Normal, TanhTransform, TransformedDistribution

from amago_core.agent import Agent
from amago_core.config import Config, Rollout
from amago_core.nets.actor_critic import ContinuousActorCritic, DiscreteActorCritic, clipped_softmax
from amago_core.nets.layers import EnsembleLinear
from amago_core.spaces import UnsupportedSpace

BOX = spaces.Box(-1, 1, (2,), np.float32)


@pytest.fixture
def discrete(make_agent: Callable[..., Agent]) -> DiscreteActorCritic:
    actor_critic = make_agent().actor_critic
    assert isinstance(actor_critic, DiscreteActorCritic)
    return actor_critic


@pytest.fixture
def continuous(make_agent: Callable[..., Agent]) -> ContinuousActorCritic:
    actor_critic = make_agent(BOX).actor_critic
    assert isinstance(actor_critic, ContinuousActorCritic)
    return actor_critic


def states(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, 16, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("scale", [1.0, 4.0, 12.0])
def test_clip_and_gradient_are_those_of_the_paper_code(scale: float) -> None:
    """There the divisor is detached, but Categorical divides once more with gradient (agent.md 4.2)."""
    logits = scale * torch.randn(50, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights = torch.randn(50, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def theirs(x: torch.Tensor) -> torch.Tensor:
        clipped = x.softmax(-1).clamp(0.001, 0.99)
        return Categorical(probs=clipped / clipped.sum(-1, keepdim=True).detach()).probs

    results = []
    for policy in (clipped_softmax, theirs):
        x = logits.clone().requires_grad_()
        probabilities = policy(x)
        results.append((probabilities, *torch.autograd.grad((weights * probabilities).sum(), x)))
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize(("actions", "largest"), [(2, 0.999), (4, 0.997), (144, 0.874)])
def test_the_largest_probability_and_no_gradient_when_saturated(actions: int, largest: float) -> None:
    logits = torch.zeros(1, actions)
    logits[0, 0] = 30.0
    logits.requires_grad_()
    probabilities = clipped_softmax(logits)[0]
    assert probabilities[0].item() == pytest.approx(largest, abs=5e-4)
    (gradient,) = torch.autograd.grad(probabilities[0].log(), logits)
    assert not gradient.any()  # a clipped entry passes no gradient


@pytest.mark.parametrize("actions", [145, 1_024, 4_096])
def test_among_many_actions_one_can_still_be_preferred(actions: int) -> None:
    logits = torch.zeros(1, actions)
    logits[0, 0] = 30.0
    assert clipped_softmax(logits)[0, 0] > 0.9
    uniform = torch.zeros(1, actions, requires_grad=True)
    (gradient,) = torch.autograd.grad(clipped_softmax(uniform)[0, 0].log(), uniform)
    assert gradient[0, 0] > 0.5


def test_values_that_would_not_fit_are_refused_with_their_size() -> None:
    config = Config(discounts=(0.9,) * 17, batch_sequences=24)
    with pytest.raises(UnsupportedSpace, match=r"^10,000 actions: .*\(4 critics x 24,000 .* x 18 discounts\).* 64 GiB"):
        Agent(config, BOX, spaces.Discrete(10_000), Rollout(1_000), np.random.SeedSequence(0))
    small = config.replace({"batch_tokens": 1_000, "actor_critic_hidden": (8,)})
    Agent(small, BOX, spaces.Discrete(10_000), Rollout(1_000), np.random.SeedSequence(0))


def test_actions_are_drawn_with_the_probabilities_of_the_policy(discrete: DiscreteActorCritic) -> None:
    p, n = np.array([0.5, 0.125, 0.25, 0.125], np.float32), 40_000
    drawn = discrete.act(torch.from_numpy(p).expand(n, -1), np.random.default_rng(0), sample=True)
    frequencies = np.bincount(drawn, minlength=4) / n
    # Four standard errors of the largest entry are 0.01.
    np.testing.assert_allclose(frequencies, p, atol=0.01)


def test_the_mode_of_a_discrete_policy(discrete: DiscreteActorCritic) -> None:
    policy = torch.tensor([[0.1, 0.6, 0.2, 0.1], [0.7, 0.1, 0.1, 0.1]])
    assert discrete.act(policy, np.random.default_rng(0), sample=False).tolist() == [1, 0]


def test_acting_uses_the_policy_of_the_last_discount(
    discrete: DiscreteActorCritic, continuous: ContinuousActorCritic
) -> None:
    state = states(5)
    logits = discrete.actor(state).view(5, 4, 3)  # two discounts and gamma, last
    torch.testing.assert_close(discrete.policy(state), clipped_softmax(logits[..., 2]))
    mean, log_std = continuous.actor(state).view(5, 3, 4)[:, 2].chunk(2, dim=-1)
    torch.testing.assert_close(continuous.policy(state)[0], mean)
    torch.testing.assert_close(continuous.policy(state)[1], -5 + 3.5 * (log_std.tanh() + 1))


def test_the_expectation_over_actions_is_exact(discrete: DiscreteActorCritic) -> None:
    """Q(s, policy) is the probability-weighted sum of Q(s, a) over all a, for every critic and discount."""
    state = states(5)
    values = [discrete.evaluate_actions(state, torch.full((5,), a)).q_action for a in range(4)]
    each = torch.stack(values, dim=-1)  # [M, C, G, A]
    probabilities = clipped_softmax(discrete.actor(state).view(5, 4, 3)).transpose(1, 2).unsqueeze(1)  # [M, 1, G, A]
    evaluation = discrete.evaluate_actions(state, torch.tensor([0, 1, 2, 3, 0]))
    torch.testing.assert_close(evaluation.q_policy, (each * probabilities).sum(-1))
    torch.testing.assert_close(evaluation.log_prob[1], probabilities[1, 0, :, 1].log())
    torch.testing.assert_close(discrete.bootstrap(state), evaluation.q_policy)  # targets start as copies


def test_log_probabilities_agree_with_torch_inside_the_clamp(continuous: ContinuousActorCritic) -> None:
    generator = torch.Generator().manual_seed(0)
    mean, log_std = torch.randn(6, 3, 2, generator=generator), torch.randn(6, 3, 2, generator=generator) / 2
    action = torch.rand(6, 2, generator=generator) * 1.9 - 0.95
    squashed = TransformedDistribution(Normal(mean, log_std.exp()), TanhTransform())
    expected = squashed.log_prob(action.unsqueeze(1)).sum(-1)
    torch.testing.assert_close(continuous._log_prob(mean, log_std, action), expected, rtol=1e-4, atol=1e-4)


def test_log_probabilities_at_and_past_the_border_are_those_at_the_clamp(continuous: ContinuousActorCritic) -> None:
    mean, log_std = torch.zeros(1, 1, 2), torch.full((1, 1, 2), -5.0)
    at_border, at_clamp = (continuous._log_prob(mean, log_std, torch.full((1, 2), a)) for a in (1.0, 0.99))
    assert torch.equal(at_border, at_clamp)
    assert at_border.item() == -1000  # 2 * -0.5 (atanh(0.99) e^5)^2 is far below the floor


def test_the_mode_is_squashed_and_samples_lie_around_it(continuous: ContinuousActorCritic) -> None:
    """The mode of a mean of 3 is tanh(3), inside the range."""
    n = 20_000
    policy = torch.tensor([[3.0, -0.5], [0.0, -1.0]]).unsqueeze(1).expand(2, n, 2)  # mean and log std
    mode = continuous.act(policy, np.random.default_rng(0), sample=False)
    np.testing.assert_allclose(mode[0], np.tanh([3.0, -0.5]), rtol=1e-6)
    sample = continuous.act(policy, np.random.default_rng(0), sample=True)
    assert sample.dtype == np.float32 and np.abs(sample).max() <= 1
    before = np.arctanh(sample[:, 1].astype(np.float64))
    assert before.mean() == pytest.approx(-0.5, abs=0.02)
    assert before.std() == pytest.approx(np.exp(-1), abs=0.01)


def test_the_standard_deviation_stays_in_its_range(continuous: ContinuousActorCritic) -> None:
    _, log_std = continuous._gaussian(continuous.actor, 1e4 * states(50))
    assert log_std.min() >= -5 and log_std.max() <= 2
    assert log_std.min() < -4.9 and log_std.max() > 1.9


def test_the_split_first_layer_is_the_layer_on_the_joined_input(continuous: ContinuousActorCritic) -> None:
    """Q(s, a) is a plain MLP of (state, 10 ln gamma, action clamped to 0.999), member by member."""
    state, action = states(5), torch.tensor([[0.5, -1.0]]).expand(5, -1)
    expected = torch.empty(5, 4, 3)
    for i, gamma in enumerate((0.5, 0.9, 0.97)):
        joined = torch.cat([state, torch.full((5, 1), 10 * np.log(gamma)), action.clamp(-0.999, 0.999)], dim=1)
        for c in range(4):
            expected[:, c, i] = member(continuous.critics, c, joined.float()).squeeze(-1)
    torch.testing.assert_close(continuous(state, action.unsqueeze(1)), expected, rtol=1e-4, atol=1e-5)


def test_the_ensemble_is_its_members_one_by_one(discrete: DiscreteActorCritic) -> None:
    state = states(5)
    expected = torch.stack([member(discrete.critics, c, state) for c in range(4)])
    torch.testing.assert_close(discrete.critics(state), expected, rtol=1e-4, atol=1e-5)


def member(critics: torch.nn.Module, c: int, x: torch.Tensor) -> torch.Tensor:
    for i, layer in enumerate((critics.first, *critics.rest[1::2])):
        x = torch.nn.functional.leaky_relu(x) if i else x
        x = x @ layer.weight[c] + layer.bias[c]
    return x


def test_nothing_is_gained_by_pushing_actions_to_the_border(continuous: ContinuousActorCritic) -> None:
    action = torch.tensor([[[0.9995, 0.5]]], requires_grad=True)
    (gradient,) = torch.autograd.grad(continuous(states(1), action).sum(), action)
    assert gradient[0, 0, 0] == 0 and gradient[0, 0, 1] != 0


def test_critics_start_uniform_and_wide() -> None:
    """agent.md 4.4: weights in +-sqrt(3 / in), a factor sqrt(3) wider than nn.Linear's."""
    layer = EnsembleLinear(4, 300, 50)
    assert layer.weight.abs().max().item() == pytest.approx(0.1, rel=1e-3)
    assert layer.weight.std().item() == pytest.approx(0.1 / 3**0.5, rel=0.02)
    assert layer.bias.abs().max().item() == pytest.approx(300**-0.5, rel=0.1)  # of 200 draws


def test_target_networks_are_not_trained(discrete: DiscreteActorCritic, continuous: ContinuousActorCritic) -> None:
    for heads in (discrete, continuous):
        online, target = heads.online_and_target()
        assert all(torch.equal(a, b) for a, b in zip(online, target, strict=True))
        assert all(p.requires_grad for p in online) and not any(p.requires_grad for p in target)
