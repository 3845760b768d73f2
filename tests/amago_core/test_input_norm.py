"""Input statistics come from the raw input, in training only (agent.md 2.2)."""

import pytest
import torch

from amago_core.nets.encoders import InputNorm


def test_two_updates_by_hand() -> None:
    """The first rate is 1, the second 1 / (2 - r): with r = 0.5 the means 2 and 6 give 14/3, the mean squares 5 and 36
    give 77/3."""
    norm = InputNorm(1, rate=0.5)
    assert norm(torch.tensor([[1.0], [3.0]])).flatten().tolist() == pytest.approx([-1, 1])
    out = norm(torch.tensor([[6.0], [6.0]]))
    assert norm.moments.mean.item() == pytest.approx(14 / 3)
    sigma = (77 / 3 - (14 / 3) ** 2) ** 0.5
    assert out.flatten().tolist() == pytest.approx([(6 - 14 / 3) / sigma] * 2)


def test_a_large_mean_leaves_the_spread() -> None:
    """With moving averages of x and x^2 in float32 the variance is -5.66 at 300 and 33^2 at 3,000."""
    means, generator = torch.tensor([0.0, 300.0, 3_000.0, 1e5]), torch.Generator().manual_seed(0)
    norm = InputNorm(4)
    for batch in (means + torch.randn(30_000, 16, 4, generator=generator)).unbind():
        norm.moments.update(batch)
    torch.testing.assert_close(norm.moments.mean, means.double(), rtol=0, atol=0.05)
    torch.testing.assert_close(norm.moments.variance.sqrt(), torch.ones(4).double(), rtol=0.05, atol=0)
    norm.eval()
    torch.testing.assert_close(norm((means + 2).unsqueeze(0)), torch.full((1, 4), 2.0), rtol=0, atol=0.15)


def test_a_constant_feature_settles_at_its_raw_mean_and_is_only_centred() -> None:
    """The fault of the paper-time code settles at 2.5 instead of 5."""
    norm = InputNorm(2, rate=0.05)
    x = torch.stack([torch.full((50,), 5.0), torch.linspace(-3, 3, 50)], dim=1)
    for _ in range(400):
        norm(x)
    assert norm.moments.mean[0].item() == pytest.approx(5, rel=1e-4)
    norm.eval()
    assert norm(torch.tensor([[5.5, 0.0]]))[0, 0].item() == pytest.approx(0.5, abs=1e-3)
    assert norm(x)[:, 1].square().mean().item() == pytest.approx(1, rel=1e-2)


def test_statistics_are_frozen_in_evaluation() -> None:
    norm = InputNorm(2).eval()
    norm(torch.full((3, 2), 9.0))
    assert norm.moments.mean.tolist() == [0, 0] and norm.moments.count.item() == 0


def test_outputs_are_clipped_and_carry_no_gradient_into_the_statistics() -> None:
    norm = InputNorm(1).eval()
    assert norm(torch.tensor([[1e9], [-1e9]])).flatten().tolist() == [1e4, -1e4]
    assert not list(norm.parameters())


@pytest.mark.parametrize("bad", [float("nan"), 1e21])  # the square of the last is infinite
def test_a_bad_batch_leaves_no_trace(bad: float) -> None:
    norm = InputNorm(2, rate=0.5)
    norm(torch.tensor([[bad, 3.0]]))
    assert norm.moments.mean.tolist() == [0, pytest.approx(3)]
    assert norm.moments.variance[0] == 1
