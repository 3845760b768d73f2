"""The packed batch: unpacking and packing are inverse, and the tokens with a successor are the right ones."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from amago_core.sequences import Packing

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=6)


def test_by_hand() -> None:
    packing = Packing([2, 1, 3])
    assert packing.starts.tolist() == [0, 2, 3]
    assert packing.cumulative.tolist() == [0, 2, 3, 6] and packing.cumulative.dtype == torch.int32
    assert packing.current.tolist() == [0, 3, 4]  # the sequence of one token has no transition
    grid = packing.unpack(torch.arange(1, 7))
    assert grid.tolist() == [[1, 2, 0], [3, 0, 0], [4, 5, 6]]


@given(LENGTHS, st.sampled_from([(), (2,), (2, 3)]))
def test_pack_is_the_inverse_of_unpack_and_padding_is_zero(lengths: list[int], shape: tuple[int, ...]) -> None:
    packing = Packing(lengths)
    x = 1 + torch.rand(packing.tokens, *shape)
    grid = packing.unpack(x)
    assert grid.shape == (len(lengths), max(lengths), *shape)
    assert torch.equal(packing.pack(grid), x)
    for row, (sequence, length) in enumerate(zip(x.split(lengths), lengths, strict=True)):
        assert torch.equal(grid[row, :length], sequence)
        assert not grid[row, length:].any()


@given(LENGTHS)
def test_every_token_but_the_last_of_each_sequence_has_its_successor(lengths: list[int]) -> None:
    packing = Packing(lengths)
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    current = packing.current.numpy()
    assert len(current) == packing.tokens - packing.sequences
    assert (sequence[current] == sequence[current + 1]).all()


@pytest.mark.parametrize("lengths", [[], [2, 0], [[1, 2]]])
def test_impossible_lengths_are_refused(lengths: list) -> None:
    with pytest.raises(ValueError, match="sequence lengths"):
        Packing(lengths)
