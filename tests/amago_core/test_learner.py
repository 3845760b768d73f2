"""The gradient step: warm-up, clip, targets, what is skipped, and going on as if never stopped ."""

import io
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from amago_core import learner as module
from amago_core.agent import Agent
from amago_core.learner import Diverged, Learner
from amago_core.sequences import Batch

BOX = spaces.Box(-1, 1, (2,), np.float32)


def weights(agent: Agent) -> torch.Tensor:
    return torch.cat([v.detach().double().flatten() for v in agent.state_dict().values()])


def test_targets_follow_at_their_rate(make_agent: Callable[..., Agent], make_batch: Callable[..., Batch]) -> None:
    agent = make_agent(tau=0.25, lr=1e-2)
    online, target = agent.actor_critic.online_and_target()
    before = [t.clone() for t in target]
    Learner(agent).update(make_batch(agent, [4, 6]))
    assert not torch.equal(online[0], before[0])
    for new, old, now in zip(online, before, target, strict=True):
        torch.testing.assert_close(now, old + 0.25 * (new.detach() - old))


def test_the_learning_rate_warms_up_linearly_in_updates(
    make_agent: Callable[..., Agent], make_batch: Callable[..., Batch]
) -> None:
    agent = make_agent(warmup_updates=4, lr=0.1)
    learner, seen = Learner(agent), []
    for _ in range(6):
        learner.update(make_batch(agent, [4]))
        seen.append(learner.optimiser.param_groups[0]["lr"])
    assert seen == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1])


def test_the_first_adamw_step_by_hand(make_agent: Callable[..., Agent], make_batch: Callable[..., Batch]) -> None:
    """AdamW's first step moves each entry by lr * sign(gradient) after a decay of lr * weight_decay."""
    agent = make_agent(lr=1e-2, weight_decay=0.5)
    bias = agent.actor_critic.critics.first.bias
    before = bias.detach().clone()
    Learner(agent).update(make_batch(agent, [4, 6]))
    large = bias.grad.abs() > 1e-5
    assert large.any()
    expected = before * (1 - 1e-2 * 0.5) - 1e-2 * bias.grad.sign()
    torch.testing.assert_close(bias.detach()[large], expected[large], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("clip", [1e-3, 1e6])
def test_the_norm_of_the_summed_gradient_is_clipped(
    clip: float, make_agent: Callable[..., Agent], make_batch: Callable[..., Batch]
) -> None:
    agent = make_agent(gradient_clip=clip)
    learner = Learner(agent)
    learner.update(make_batch(agent, [4, 6]))
    norm = torch.stack([p.grad.norm() for p in learner.parameters if p.grad is not None]).norm()
    assert norm.item() == pytest.approx(1e-3, rel=1e-3) if clip < 1 else norm > 1e-2


@pytest.mark.parametrize("space", [spaces.Discrete(4), BOX], ids=["discrete", "continuous"])
@pytest.mark.parametrize("field", ["reward", "observation"])
def test_a_step_that_is_not_finite_is_skipped_counted_and_forgotten(
    field: str, space: spaces.Space, make_agent: Callable[..., Agent], make_batch: Callable[..., Batch]
) -> None:
    agent = make_agent(space)
    learner, batch = Learner(agent), make_batch(agent, [4, 6])
    parameters = [p.detach().clone() for p in agent.parameters()]
    poisoned = batch[field].clone()
    poisoned[2] = float("nan")
    learner.update(replace(batch, fields={**batch.fields, field: poisoned}))
    assert (learner.updates, learner.skipped) == (1, 1)
    assert all(torch.equal(a, b) for a, b in zip(agent.parameters(), parameters, strict=True))
    assert weights(agent).isfinite().all(), "a statistic was poisoned"
    losses = learner.update(batch)
    assert learner.skipped == 1 and losses.total.isfinite()


def test_too_many_skipped_in_a_row_end_training(
    make_agent: Callable[..., Agent], make_batch: Callable[..., Batch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The count goes on after a restart, and starts again at 0 with a step that is taken."""
    monkeypatch.setattr(module, "SKIPPED_IN_A_ROW", 3)
    agent = make_agent()
    good = make_batch(agent, [4, 6])
    bad = replace(good, fields={**good.fields, "reward": torch.full_like(good["reward"], float("nan"))})
    first = Learner(agent)
    for batch in (bad, bad, good, bad, bad):
        first.update(batch)
    second = Learner(agent)
    second.load_state_dict(first.state_dict())
    with pytest.raises(Diverged, match=r"gradients of 3 updates in a row, up to update 6, are not finite; .*lr"):
        second.update(bad)


def test_a_batch_of_one_transition(make_agent: Callable[..., Agent], make_batch: Callable[..., Batch]) -> None:
    agent = make_agent()
    learner = Learner(agent)
    assert learner.update(make_batch(agent, [2])).total.isfinite()
    assert learner.skipped == 0
    assert weights(agent).isfinite().all()


def test_bfloat16_is_what_it_says(make_agent: Callable[..., Agent], make_batch: Callable[..., Batch]) -> None:
    def losses(dtype: str) -> list[float]:
        learner = Learner(make_agent(dtype=dtype))
        found = learner.update(make_batch(learner.agent, [6, 9, 4]))
        return [float(getattr(found, name)) for name in ("critic", "online", "offline")]

    assert losses("bfloat16") == pytest.approx(losses("float32"), rel=0.05)
    assert all(half != whole for half, whole in zip(losses("bfloat16"), losses("float32"), strict=True))


@pytest.mark.parametrize("space", [spaces.Discrete(4), BOX], ids=["discrete", "continuous"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_saved_learner_goes_on_as_if_never_stopped(
    dtype: str, space: spaces.Space, make_agent: Callable[..., Agent], make_batch: Callable[..., Batch]
) -> None:
    settings = {"dropout": 0.1, "warmup_updates": 10, "dtype": dtype}
    learner = Learner(make_agent(space, **settings))
    batches = [make_batch(learner.agent, [4, 6, 2], seed) for seed in range(8)]
    for batch in batches[:4]:
        learner.update(batch)
    file = io.BytesIO()
    torch.save(learner.state_dict(), file)
    for batch in batches[4:]:
        learner.update(batch)

    resumed = Learner(make_agent(space, seed=99, **settings))
    resumed.load_state_dict(torch.load(io.BytesIO(file.getvalue()), weights_only=True))
    assert resumed.updates == 4
    for batch in batches[4:]:
        resumed.update(batch)
    assert torch.equal(weights(resumed.agent), weights(learner.agent))


def test_switched_off_parts_have_no_parameters_to_train(make_agent: Callable[..., Agent]) -> None:
    """Head scaling off: the scalars stay at 1 (agent.md 10.2)."""
    agent = make_agent(head_scaling=False)
    assert not any("head_scale" in k for k, p in agent.named_parameters() if p.requires_grad)
    assert make_agent().parameter_count() - agent.parameter_count() == 2 * 2  # layers x heads
