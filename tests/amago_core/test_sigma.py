"""sigma-reparametrisation (agent.md 3.2): the effective weight has the spectral norm |gamma|."""

import pytest
import torch

from amago_core.nets.layers import SigmaLinear


def spectral_norm(layer: SigmaLinear) -> float:
    """Of the effective weight, read off by feeding unit vectors."""
    with torch.no_grad():
        weight = layer(torch.eye(layer.weight.shape[1])).T
    return float(torch.linalg.matrix_norm(weight, ord=2))


def fresh() -> SigmaLinear:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return SigmaLinear(6, 10, bias=False)


def test_the_norm_is_gamma_from_the_first_rollout_on() -> None:
    assert spectral_norm(fresh().eval()) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("gamma", [2.5, -0.5])
def test_the_norm_tends_to_gamma_after_the_weights_have_moved(gamma: float) -> None:
    layer = fresh()
    with torch.no_grad():
        layer.gamma.fill_(gamma)
        layer.weight.copy_(torch.randn(10, 6, generator=torch.Generator().manual_seed(2)))
    assert abs(spectral_norm(layer.eval()) - abs(gamma)) > 0.05  # u and v are those of the old weights
    layer.train()
    for _ in range(200):
        layer(torch.ones(1, 6))
    assert spectral_norm(layer.eval()) == pytest.approx(abs(gamma), rel=1e-4)


def test_evaluation_leaves_u_and_v_and_training_moves_them() -> None:
    layer = fresh()
    with torch.no_grad():
        layer.weight.copy_(torch.randn(10, 6, generator=torch.Generator().manual_seed(2)))
    before = layer.u.clone(), layer.v.clone()
    layer.eval()(torch.ones(1, 6))
    assert torch.equal(layer.u, before[0]) and torch.equal(layer.v, before[1])
    layer.train()(torch.ones(1, 6))
    assert not torch.equal(layer.u, before[0]) and not torch.equal(layer.v, before[1])


def test_u_and_v_are_saved() -> None:
    assert {"u", "v"} <= fresh().state_dict().keys()


@pytest.mark.parametrize("training", [False, True])
def test_the_gradient_flows_through_sigma_and_not_through_u_and_v(training: bool) -> None:
    """d/dW of (gamma / u'Wv) W x against finite differences. In training u and v follow a changed weight, but sigma
    is stationary in them, so the differences are the same."""
    layer = fresh().double().train(training)
    x = torch.randn(3, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def f(weight: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, {"weight": weight, "gamma": gamma}, (x,))

    assert torch.autograd.gradcheck(f, (layer.weight, layer.gamma))


def test_folded_weights_are_noticed_to_be_stale() -> None:
    """Acting folds the weights once; a changed weight, gamma or loaded state must be seen."""
    layer, x = fresh().eval(), torch.ones(1, 6)
    with torch.inference_mode():
        first = layer(x)
        assert torch.equal(layer(x), first)
    with torch.no_grad():
        layer.gamma.mul_(2)
    with torch.inference_mode():
        torch.testing.assert_close(layer(x), 2 * first)
    state = {k: v.clone() for k, v in layer.state_dict().items()}
    state["gamma"].fill_(3)
    layer.load_state_dict(state)
    with torch.inference_mode():
        torch.testing.assert_close(layer(x), 3 * first)


def test_sigma_is_the_same_under_half_precision_learning() -> None:
    layer = fresh()
    u = layer.u.clone()
    with torch.autocast("cpu", torch.bfloat16):
        layer(torch.ones(1, 6))
    torch.testing.assert_close(layer.u, u, atol=1e-5, rtol=1e-5)  # converged before, so one iteration keeps it
