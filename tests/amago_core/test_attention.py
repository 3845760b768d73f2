"""The attention backends agree with plain mathematics, and the choice between them survives broken installations."""

import importlib.util
import math
from collections.abc import Callable

import pytest
import torch

from amago_core.nets import attention
from amago_core.nets.cache import attend_cached
from amago_core.sequences import Packing

RAGGED = [[5], [1, 1], [3, 7, 1, 4], [200, 2]]  # the last one has four blocks, one of them short
BACKENDS = [attention.reference, attention.sdpa, attention.blocked]


def qkv(packing: Packing, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(packing.tokens, 2, 8, generator=generator).to(dtype).requires_grad_() for _ in range(3)]


def test_reference_by_hand() -> None:
    """Two keys with scores 0 and ln 3: weights 1/4 and 3/4. The first query sees itself only."""
    packing = Packing([2])
    q = torch.tensor([[[1.0]], [[1.0]]])
    k = torch.tensor([[[0.0]], [[math.log(3)]]])
    v = torch.tensor([[[4.0]], [[8.0]]])
    assert attention.reference(q, k, v, packing).flatten().tolist() == pytest.approx([4, 7])


@pytest.mark.parametrize("lengths", RAGGED)
@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_every_backend_agrees_with_the_reference_in_values_and_gradients(
    backend: attention.Backend, lengths: list[int]
) -> None:
    packing = Packing(lengths)
    inputs = qkv(packing)
    outputs = []
    for each in (attention.reference, backend):
        out = each(*inputs, packing)
        outputs.append([out, *torch.autograd.grad(out.square().sum(), inputs)])
    for expected, got in zip(*outputs, strict=True):
        torch.testing.assert_close(got, expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("lengths", RAGGED)
@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_half_precision_agrees_to_half_precision(backend: attention.Backend, lengths: list[int]) -> None:
    packing = Packing(lengths)
    expected = attention.reference(*qkv(packing), packing)
    got = backend(*qkv(packing, torch.bfloat16), packing)
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.float(), expected, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_half_precision_agrees_where_attention_is_sharp(backend: attention.Backend) -> None:
    """Scores four times as large. Rounded before the softmax, they are known to 2^-8 of their size."""
    packing = Packing([200])
    q, k, v = qkv(packing)
    expected = attention.reference(4 * q, k, v, packing)
    got = backend(4 * q.bfloat16(), k.bfloat16(), v.bfloat16(), packing)
    assert (got.float() - expected).square().mean().sqrt() < 0.02 * expected.std()


@pytest.mark.parametrize("backend", BACKENDS)
def test_short_sequences_beside_long_ones_stay_finite(backend: attention.Backend) -> None:
    """No row of the padded grid is fully masked: outputs and gradients are finite."""
    packing = Packing([1, 9, 1])
    inputs = qkv(packing)
    out = backend(*inputs, packing)
    gradients = torch.autograd.grad(out.sum(), inputs)
    assert all(x.isfinite().all() for x in (out, *gradients))
    torch.testing.assert_close(out[0], inputs[2][0])  # a lone token attends to itself


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_leaks_between_sequences(backend: attention.Backend) -> None:
    """Perturbing one sequence leaves the others bitwise as they were."""
    packing = Packing([4, 3, 4])
    q, k, v = (x.detach() for x in qkv(packing))
    before = backend(q, k, v, packing)
    for x in (q, k, v):
        x[4:7] += 100
    after = backend(q, k, v, packing)
    assert torch.equal(before[:4], after[:4]) and torch.equal(before[7:], after[7:])
    assert not torch.equal(before[4:7], after[4:7])


def test_blocks_give_way_where_they_would_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths past the limit go to the backend whose memory grows linearly."""
    monkeypatch.setattr(attention, "BLOCKED_LENGTH", 8)
    fused = []
    monkeypatch.setattr(attention, "sdpa", lambda q, *_: fused.append(len(q)) or q)
    for tokens in (8, 9):
        packing = Packing([tokens])
        attention.blocked(*qkv(packing), packing)
    assert fused == [9]


def test_cached_attention_sees_the_visible_keys_only() -> None:
    generator = torch.Generator().manual_seed(0)
    q, keys, values = (torch.randn(*s, generator=generator) for s in [(2, 2, 8), (2, 2, 4, 8), (2, 2, 4, 8)])
    visible = torch.tensor([[True, False, False, False], [True, True, True, True]])
    out = attend_cached(q, keys, values, visible)
    torch.testing.assert_close(out[0], values[0, :, 0])
    packed = attention.reference(
        q[1].expand(4, -1, -1), keys[1].transpose(0, 1), values[1].transpose(0, 1), Packing([4])
    )
    torch.testing.assert_close(out[1], packed[3])


@pytest.fixture
def fake_flash(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable], None]:
    """Pretends that the package is installed and a card is there; `install(backend)` is what its forward does."""

    def install(backend: Callable) -> None:
        zeros = torch.zeros
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
        monkeypatch.setattr(torch, "zeros", lambda *shape, device=None, **kw: zeros(*shape, **kw))
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
        monkeypatch.setattr(attention, "flash", backend)

    return install


def test_flash_is_chosen_where_it_runs(fake_flash: Callable[[Callable], None]) -> None:
    fake_flash(lambda q, k, v, packing: q)
    assert attention.choose("auto", "cuda", 32) == ("flash", "")
    assert attention.choose("flash", "cuda", 32) == ("flash", "")


@pytest.mark.parametrize("wanted", ["auto", "flash"])
@pytest.mark.parametrize(
    "error", [RuntimeError("FlashAttention only supports Ampere GPUs\nmore"), ImportError(), AssertionError()]
)
def test_a_broken_flash_falls_back_with_one_line(
    fake_flash: Callable[[Callable], None], wanted: str, error: Exception
) -> None:
    def broken(*_: object) -> None:
        raise error

    fake_flash(broken)
    backend, note = attention.choose(wanted, "cuda", 32)
    assert backend == "sdpa"
    assert type(error).__name__ in note and "using sdpa" in note and "\n" not in note


def test_a_head_width_that_flash_cannot_take(fake_flash: Callable[[Callable], None]) -> None:
    fake_flash(lambda q, k, v, packing: q)
    backend, note = attention.choose("flash", "cuda", 12)
    assert backend == "sdpa" and "head width 12" in note


def test_the_choice_of_the_user_is_respected_and_flash_not_even_probed(
    fake_flash: Callable[[Callable], None],
) -> None:
    fake_flash(lambda *_: pytest.fail("flash was probed"))
    assert attention.choose("sdpa", "cuda", 32) == ("sdpa", "")
    assert attention.choose("reference", "cuda", 32) == ("reference", "")


def test_without_a_card_auto_is_silent_and_a_wanted_flash_is_not() -> None:
    assert attention.choose("auto", "cpu", 32) == ("blocked", "")
    backend, note = attention.choose("flash", "cpu", 32)
    assert backend == "blocked" and "CUDA" in note


def test_the_backend_for_cpus_is_not_taken_on_a_card() -> None:
    backend, note = attention.choose("blocked", "cuda", 32)
    assert backend == "sdpa" and "CPU" in note
