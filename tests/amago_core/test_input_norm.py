"""Input statistics come from the raw input, in training only (A.3, pitfall 11)."""

import pytest
import torch

from amago_core.nets.encoders import InputNorm


def test_one_update_by_hand() -> None:
    """The first rate is 1 / (2 - r): with r = 0.5 the mean of (1, 3) gives 4/3, the mean square 5 gives 11/3."""
    norm = InputNorm(1, rate=0.5)
    out = norm(torch.tensor([[1.0], [3.0]]))
    assert norm.mean.item() == pytest.approx(4 / 3)
    assert norm.square.item() == pytest.approx(1 / 3 + 10 / 3)
    sigma = (11 / 3 - 16 / 9) ** 0.5
    assert out.flatten().tolist() == pytest.approx([(1 - 4 / 3) / sigma, (3 - 4 / 3) / sigma])


def test_a_constant_feature_settles_at_its_raw_mean_and_is_only_centred() -> None:
    """The fault of the paper-time code settles at 2.5 instead of 5."""
    norm = InputNorm(2, rate=0.05)
    x = torch.stack([torch.full((50,), 5.0), torch.linspace(-3, 3, 50)], dim=1)
    for _ in range(400):
        norm(x)
    assert norm.mean[0].item() == pytest.approx(5, rel=1e-4)
    norm.eval()
    assert norm(torch.tensor([[5.5, 0.0]]))[0, 0].item() == pytest.approx(0.5, abs=1e-3)
    assert norm(x)[:, 1].square().mean().item() == pytest.approx(1, rel=1e-2)


def test_statistics_are_frozen_in_evaluation() -> None:
    norm = InputNorm(2).eval()
    norm(torch.full((3, 2), 9.0))
    assert norm.mean.tolist() == [0, 0] and norm.count.item() == 1


def test_outputs_are_clipped_and_carry_no_gradient_into_the_statistics() -> None:
    norm = InputNorm(1).eval()
    assert norm(torch.tensor([[1e9], [-1e9]])).flatten().tolist() == [1e4, -1e4]
    assert not list(norm.parameters())


@pytest.mark.parametrize("bad", [float("nan"), 1e21])  # the square of the last is infinite
def test_a_bad_batch_leaves_no_trace(bad: float) -> None:
    norm = InputNorm(2, rate=0.5)
    norm(torch.tensor([[bad, 3.0]]))
    assert norm.mean.tolist() == [0, pytest.approx(2)]
    assert norm.square[0] == 1
