"""PopArt (agent.md 5.2), and what must never give a NaN."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from amago_core.nets.popart import PopArt


@given(scale=st.floats(0.01, 100), shift=st.floats(-1000, 1000), rate=st.floats(1e-4, 0.5), seed=st.integers(0, 2**31))
def test_an_update_preserves_every_value(scale: float, shift: float, rate: float, seed: int) -> None:
    """V(x) = sigma (w x + b) + mu is the same function before and after."""
    generator = torch.Generator().manual_seed(seed)
    popart = PopArt(3, rate).double()
    x = torch.linspace(-10, 10, 7, dtype=torch.float64).unsqueeze(1).expand(-1, 3)
    for _ in range(3):
        before = popart.value(x)
        popart.update(shift + scale * torch.randn(20, 3, generator=generator, dtype=torch.float64))
        torch.testing.assert_close(popart.value(x), before, rtol=1e-4, atol=1e-4 * float(before.abs().max()))


def test_the_first_step_by_hand() -> None:
    """beta_1 = b / (1 - (1 - b)^2) = 1 / (2 - b). Targets 2 and 4: mean 3, mean square 10."""
    popart = PopArt(1, rate=0.5)
    popart.update(torch.tensor([[2.0], [4.0]]))
    beta = 1 / 1.5
    assert popart.moments.mean.item() == pytest.approx(3 * beta)
    assert popart.moments.variance.item() == pytest.approx(100 * (1 - beta) + 10 * beta - (3 * beta) ** 2)
    sigma = (40 - 4) ** 0.5  # 100/3 + 20/3 - 2 ** 2
    assert popart.sigma.item() == pytest.approx(sigma)
    assert popart.w.item() == pytest.approx(10 / sigma)
    assert popart.b.item() == pytest.approx((0 + 0 - 2) / sigma)


def test_the_first_rate_of_the_paper_is_a_half() -> None:
    popart = PopArt(1, rate=5e-4)
    popart.update(torch.tensor([[8.0]]))
    assert popart.moments.mean.item() == pytest.approx(4, rel=1e-3)


def test_values_and_returns_are_inverse() -> None:
    popart = PopArt(2, 0.1)
    popart.update(torch.tensor([[1.0, 50.0], [3.0, -20.0]]))
    y = torch.tensor([[5.0, 7.0]])
    torch.testing.assert_close((popart.sigma * popart.standardise(y) + popart.moments.mean).float(), y)


def test_each_discount_has_statistics_of_its_own() -> None:
    popart = PopArt(2, 0.5)
    popart.update(torch.tensor([[0.0, 1000.0]]))
    assert popart.moments.mean[0] == 0 and popart.moments.mean[1] > 100
    assert popart.w[0] != popart.w[1]


def test_equal_large_targets_give_no_nan() -> None:
    """The variance of constant returns is 0, or rounds below it; sigma has a floor."""
    popart = PopArt(1, 1.0)
    for value in (4097.3, 4097.3, 0.1):
        popart.update(torch.full((5, 1), value))
        assert popart.sigma.item() == pytest.approx(1e-4)
        for x in (popart.w, popart.b, popart.value(torch.ones(1)), popart.standardise(torch.ones(1))):
            assert x.isfinite().all()


def test_a_large_mean_leaves_the_spread() -> None:
    """With moving averages of y and y^2 in float32 the variance at 3,000 is noise. After 40,000 updates at the paper's
    rate the start (mean 0, variance 100) counts for 1e-12."""
    means, generator = torch.tensor([0.0, 300.0, 3_000.0, 1e5]), torch.Generator().manual_seed(0)
    popart = PopArt(4, 5e-4)
    for batch in (means + torch.randn(40_000, 16, 4, generator=generator)).unbind():
        popart.update(batch)
    torch.testing.assert_close(popart.moments.mean, means.double(), rtol=0, atol=0.05)
    torch.testing.assert_close(popart.sigma, torch.ones(4).double(), rtol=0.05, atol=0)
    values = popart.value(torch.full((4,), 0.5))  # of an output that was worth 10 * 0.5 at the start
    torch.testing.assert_close(values, torch.full((4,), 5.0), rtol=0, atol=0.05)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e21])  # the square of the last is infinite
def test_a_bad_batch_leaves_no_trace(bad: float) -> None:
    popart = PopArt(2, 0.5)
    popart.update(torch.tensor([[bad, 3.0]]))
    assert popart.moments.mean.tolist() == [0, pytest.approx(2)]
    assert popart.moments.variance[0] == 100
    assert popart.w.isfinite().all() and popart.b.isfinite().all()
