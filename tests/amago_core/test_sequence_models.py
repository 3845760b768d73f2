"""The two ways through every sequence model agree: token by token with a cache, and all tokens at once.

Actors at different timesteps, no leak between sequences, past the window, causality, cache against forward.
"""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from amago_core.agent import Agent
from amago_core.nets.attention import BACKENDS
from amago_core.nets.layers import Dropout, SigmaLinear
from amago_core.nets.sequence_model import SequenceModel
from amago_core.nets.transformer import RotaryPositions, Transformer, rotate
from amago_core.sequences import Packing

INPUTS = 12  # encoder_width of the tiny agent
POSITIONS = ("learned", "sinusoidal", "rotary")
MODELS = {
    f"{positions}-{attention}": {"positions": positions, "attention": attention}
    for positions in POSITIONS
    for attention in ("reference", "sdpa", "blocked")
} | {
    f"{positions}-window": {"positions": positions, "context": 3} for positions in POSITIONS
} | {
    "gru": {"sequence_model": "gru"},
    "memoryless": {"sequence_model": "memoryless"},
    "plain": {"sigma_reparam": False, "normformer": False, "head_scaling": False},
}  # fmt: skip


@pytest.fixture(params=MODELS.values(), ids=MODELS.keys())
def model(request: pytest.FixtureRequest, make_agent: Callable[..., Agent]) -> SequenceModel:
    """In evaluation mode, with weights away from their special first values."""
    model = make_agent(horizon=80, **request.param).sequence_model
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
        model.train()(torch.zeros(2, INPUTS), Packing([2]), torch.arange(2))  # a power iteration
    return model.eval()


def stepped(model: SequenceModel, tokens: Tensor, lengths: list[int]) -> Tensor:
    """Slot b plays rollouts of `lengths[b]` steps one after another: tokens [T, B, input] -> states [T, B, D]."""
    cache = model.new_cache(len(lengths))
    with torch.inference_mode():
        return torch.stack(
            [model.step(token, cache, torch.tensor([t % n for n in lengths])) for t, token in enumerate(tokens)]
        )


def windowed(window: int) -> Callable[[Tensor, Tensor, Tensor, Packing], Tensor]:
    """Plain attention in which a query sees `window` keys of its sequence, its own the last of them."""

    def attend(q: Tensor, k: Tensor, v: Tensor, packing: Packing) -> Tensor:
        sequence = torch.arange(packing.sequences).repeat_interleave(torch.from_numpy(packing.lengths))
        age = torch.arange(packing.tokens).unsqueeze(1) - torch.arange(packing.tokens)
        visible = (age >= 0) & (age < window) & (sequence.unsqueeze(1) == sequence)
        scores = torch.einsum("ihd,jhd->hij", q, k) / q.shape[-1] ** 0.5
        return torch.einsum("hij,jhd->ihd", scores.masked_fill(~visible, -torch.inf).softmax(-1), v)

    return attend


def at_once(model: SequenceModel, tokens: Tensor, lengths: list[int]) -> Tensor:
    """The same through one packed batch of all rollouts, the unfinished last ones included.

    Learning knows no window; for rollouts longer than that of `step`, attention with such a window takes its place.
    """
    pieces = [piece for b, n in enumerate(lengths) for piece in tokens[:, b].split(n)]
    packing = Packing([len(piece) for piece in pieces])
    position = torch.cat([torch.arange(len(piece)) for piece in pieces])
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        if isinstance(model, Transformer) and packing.longest > model.window:
            for block in model.blocks:
                patch.setattr(block.attention, "backend", windowed(model.window))
        packed = model(torch.cat(pieces), packing, position)
    return packed.view(len(lengths), len(tokens), -1).transpose(0, 1)


def assert_agree(model: SequenceModel, lengths: list[int], steps: int, seed: int) -> None:
    tokens = torch.randn(steps, len(lengths), INPUTS, generator=torch.Generator().manual_seed(seed))
    difference = (stepped(model, tokens, lengths) - at_once(model, tokens, lengths)).abs().max()
    assert difference < 2e-5


def test_actors_at_different_timesteps_agree_across_resets_and_past_the_window(model: SequenceModel) -> None:
    assert_agree(model, [2, 3, 5, 7], steps=21, seed=0)


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_cue_is_out_of_reach_when_the_window_has_moved_on(positions: str, make_agent: Callable[..., Agent]) -> None:
    """A rollout of three windows of 4 keys, one layer: the first token is seen 3 steps on, and not 4 or 5."""
    model = make_agent(layers=1, context=4, horizon=12, positions=positions).sequence_model.eval()
    tokens = torch.randn(12, 1, INPUTS, generator=torch.Generator().manual_seed(0))
    other_cue = torch.cat([-tokens[:1], tokens[1:]])
    difference = (stepped(model, tokens, [12]) - stepped(model, other_cue, [12])).abs().amax((1, 2))
    assert (difference > 1e-4).tolist() == [True] * 4 + [False] * 8


def test_rollouts_longer_than_the_first_cache_agree(model: SequenceModel) -> None:
    assert_agree(model, [80, 1, 70], steps=81, seed=0)


def test_any_rollouts_agree(model: SequenceModel) -> None:
    @settings(max_examples=10)
    @given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=5), steps=st.integers(1, 30), seed=st.integers(0))
    def check(lengths: list[int], steps: int, seed: int) -> None:
        assert_agree(model, lengths, steps, seed % 2**32)

    check()


def test_the_past_does_not_depend_on_the_future_nor_on_other_sequences(model: SequenceModel) -> None:
    packing, position = Packing([6, 4]), torch.cat([torch.arange(6), torch.arange(4)])
    tokens = torch.randn(10, INPUTS, generator=torch.Generator().manual_seed(0), requires_grad=True)
    states = model(tokens, packing, position)
    (gradient,) = torch.autograd.grad(states[3].square().sum(), tokens)
    moved = gradient.abs().sum(1) > 0
    assert not moved[4:].any(), "a state depends on the future or on another sequence"
    assert moved[3]


def test_memory_reaches_as_far_as_it_should(make_agent: Callable[..., Agent]) -> None:
    """In learning a Transformer and a GRU see the first token, however short the window of the actor."""

    def reach(**settings: object) -> int:
        model = make_agent(layers=1, **settings).sequence_model.eval()
        tokens = torch.randn(9, INPUTS, generator=torch.Generator().manual_seed(0), requires_grad=True)
        state = model(tokens, Packing([9]), torch.arange(9))[8]
        (gradient,) = torch.autograd.grad(state.square().sum(), tokens)
        return 8 - int((gradient.abs().sum(1) > 0).nonzero()[0])

    for attention in ("reference", "sdpa", "blocked"):
        assert reach(context=3, attention=attention) == 8
    assert reach(sequence_model="gru", context=3) == 8
    assert reach(sequence_model="memoryless") == 0


@pytest.mark.parametrize("positions", POSITIONS)
def test_the_residual_stream_is_not_rounded(positions: str, make_agent: Callable[..., Agent]) -> None:
    model = make_agent(positions=positions).sequence_model
    assert isinstance(model, Transformer)
    types = []
    for block in model.blocks:
        block.register_forward_hook(lambda _, inputs, out: types.extend([inputs[0].dtype, out.dtype]))
    with torch.autocast("cpu", torch.bfloat16):
        model(torch.zeros(4, INPUTS), Packing([4]), torch.arange(4))
    assert types == [torch.float32] * 4


@pytest.mark.parametrize("positions", POSITIONS)
def test_queries_keys_and_values_have_the_type_of_the_products(
    positions: str, make_agent: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    types: set[torch.dtype] = set()
    monkeypatch.setitem(BACKENDS, "blocked", lambda q, k, v, _: types.update({q.dtype, k.dtype, v.dtype}) or v)
    model = make_agent(positions=positions, attention="blocked").sequence_model
    with torch.autocast("cpu", torch.bfloat16):
        model(torch.zeros(4, INPUTS), Packing([4]), torch.arange(4))
    assert types == {torch.bfloat16}


def test_late_timesteps_are_rotated_as_exactly_as_early_ones() -> None:
    """An angle of 1,001 in bfloat16 would be 1,000: half precision rounds what was rotated and not the angles."""
    x, position = torch.randn(2, 1, 8, generator=torch.Generator().manual_seed(0)).bfloat16(), torch.tensor([1001, 1])
    with torch.autocast("cpu", torch.bfloat16):
        got = rotate(x, RotaryPositions(8)(x, position)[1])
    angle = position.double().view(2, 1, 1) * 10_000.0 ** -(torch.arange(4).double() / 4)
    exact = torch.complex(*x.double().chunk(2, dim=-1)) * torch.polar(torch.ones_like(angle), angle)
    torch.testing.assert_close(got.double(), torch.cat([exact.real, exact.imag], dim=-1), atol=1e-3, rtol=2**-8)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_a_slice_keeps_the_timesteps_of_its_rollout(positions: str, make_agent: Callable[..., Agent]) -> None:
    """The same tokens later in a rollout are told apart, and a table covers the horizon."""
    model = make_agent(horizon=20, positions=positions).sequence_model.eval()
    tokens = torch.ones(3, INPUTS)
    begin, late = (model(tokens, Packing([3]), torch.arange(3) + start) for start in (0, 18))
    assert (begin - late).abs().max() > 1e-3


def test_rotary_positions_depend_on_distances_only(make_agent: Callable[..., Agent]) -> None:
    model = make_agent(positions="rotary").sequence_model.eval()
    tokens = torch.randn(4, INPUTS, generator=torch.Generator().manual_seed(0))
    begin, late = (model(tokens, Packing([4]), torch.arange(4) + start) for start in (0, 15))
    torch.testing.assert_close(begin, late, atol=1e-5, rtol=1e-5)


def test_a_gru_on_a_cpu_learns_in_the_precision_that_it_acts_in(make_agent: Callable[..., Agent]) -> None:
    model = make_agent(sequence_model="gru").sequence_model
    tokens = torch.randn(9, INPUTS, generator=torch.Generator().manual_seed(0))
    hidden: list[Tensor] = []
    model.gru.register_forward_hook(lambda *call: hidden.append(call[2][0]))
    for half in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            model(tokens, Packing([6, 3]), torch.arange(9))
    assert torch.equal(*hidden)


def test_autocast_is_off_in_a_gru_on_whatever_device_it_runs(
    make_agent: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no GPU here; tensors without data stand for it."""
    model, off = make_agent(sequence_model="gru").sequence_model.to("meta"), []
    autocast = torch.autocast
    monkeypatch.setattr(torch, "autocast", lambda device, enabled: off.append((device, enabled)) or autocast("cpu"))
    model(torch.zeros(4, INPUTS, device="meta"), Packing([4], "meta"), torch.arange(4, device="meta"))
    assert off == [("meta", False)]


def test_dropout_is_off_when_acting(make_agent: Callable[..., Agent]) -> None:
    model = make_agent(dropout=0.5).sequence_model
    tokens, packing, position = torch.ones(4, INPUTS), Packing([4]), torch.arange(4)
    model.eval()
    assert torch.equal(model(tokens, packing, position), model(tokens, packing, position))
    model.train()
    assert not torch.equal(model(tokens, packing, position), model(tokens, packing, position))


def test_dropout_keeps_the_mean() -> None:
    out = Dropout(0.25, torch.Generator().manual_seed(0))(torch.full((40_000,), 3.0))
    assert set(out.tolist()) == {0.0, 4.0}
    assert out.mean().item() == pytest.approx(3, abs=0.04)  # four standard errors are 0.035


def paper_transformer(model: Transformer, x: Tensor) -> Tensor:
    """agent.md 3.1 line by line, for one sequence [L, inputs] with learned positions."""

    def norm(layer: nn.LayerNorm, h: Tensor) -> Tensor:
        return F.layer_norm(h, h.shape[-1:], layer.weight, layer.bias)

    def sigma(layer: SigmaLinear, h: Tensor) -> Tensor:
        return F.linear(h, layer.weight * layer.gamma / (layer.u @ layer.weight @ layer.v), layer.bias)

    length = len(x)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    x = F.linear(x, model.embed.weight, model.embed.bias) + model.positions.table.weight[:length]
    for block in model.blocks:
        attention, mlp = block.attention, block.mlp
        qkv = sigma(attention.qkv, norm(block.attention_norm, x))
        q, k, v = qkv.view(length, 3, attention.heads, -1).permute(1, 2, 0, 3)
        scores = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).masked_fill(future, -torch.inf)
        heads = scores.softmax(-1) @ v * attention.head_scale.unsqueeze(-1)  # [H, L, Dh]
        x = x + norm(attention.norm, sigma(attention.out, heads.transpose(0, 1).flatten(1)))
        h = F.leaky_relu(sigma(mlp.up, norm(block.mlp_norm, x)), 0.01)
        x = x + sigma(mlp.down, norm(mlp.norm, h))
    return norm(model.norm, x)


@pytest.mark.parametrize("model", [MODELS["learned-blocked"]], indirect=True)
def test_the_layers_are_those_of_the_paper_in_its_order(model: Transformer) -> None:
    x = torch.randn(30, INPUTS, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        got = model(x, Packing([30]), torch.arange(30))
        torch.testing.assert_close(got, paper_transformer(model, x), atol=1e-4, rtol=1e-4)


def test_a_block_adds_to_its_input_and_scales_its_heads(make_agent: Callable[..., Agent]) -> None:
    """agent.md 3.1: a residual stream, and a learned factor per attention head."""
    block = make_agent().sequence_model.eval().blocks[0]
    x = torch.randn(5, 16, generator=torch.Generator().manual_seed(0))
    louder = torch.tensor([1.0, 2.0]).view(1, 2, 1)  # the second of two heads

    def output(factor: Tensor) -> Tensor:
        block.attention.backend = lambda q, k, v, packing: v * factor
        return block(x, None, Packing([5]))

    with torch.no_grad():
        assert not torch.equal(output(louder), output(torch.ones(1)))
        block.attention.head_scale[1] = 0
        assert torch.equal(output(louder), output(torch.ones(1)))
        for parameter in (*block.attention.norm.parameters(), block.mlp.down.gamma, block.mlp.down.bias):
            parameter.zero_()  # both branches say nothing
        assert torch.equal(output(louder), x)
