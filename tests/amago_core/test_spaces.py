"""Spaces to arrays and back, worked by hand."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from amago_core.spaces import ActionCodec, ObservationCodec, UnsupportedSpace


def tensors(fields: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(field) for name, field in fields.items()}


def expand(space: spaces.Space, observation: object) -> tuple[list, list]:
    codec = ObservationCodec(space)
    features, goals = codec.expand(tensors(codec.store(observation)))
    assert features.shape[1] == codec.features
    assert goals.shape[1] == int(np.prod(codec.goal_shape))
    return features.tolist(), goals.tolist()


def test_a_box_is_its_numbers_in_row_major_order() -> None:
    space = spaces.Box(-np.inf, np.inf, (2, 2), np.float64)
    features, goals = expand(space, np.array([[[1.0, 2.0], [3.0, 4.0]]]))
    assert features == [[1, 2, 3, 4]]
    assert goals == [[]]


def test_a_discrete_observation_starts_at_its_start() -> None:
    features, _ = expand(spaces.Discrete(3, start=1), np.array([1, 3]))
    assert features == [[1, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize("n", [256, 257, 300])
def test_discrete_observations_do_not_wrap(n: int) -> None:
    features, _ = expand(spaces.Discrete(n), np.array([0, 255, n - 1]))
    assert [row.index(1.0) for row in features] == [0, 255, n - 1]


def test_multi_discrete_with_start_and_two_axes() -> None:
    space = spaces.MultiDiscrete([[2, 3], [1, 2]], start=[[0, 5], [7, -1]])
    features, _ = expand(space, np.array([[[1, 6], [7, -1]]]))
    assert features == [[0, 1, 0, 1, 0, 1, 1, 0]]


def test_a_dict_is_read_in_sorted_order_whatever_the_order_of_its_keys() -> None:
    box = spaces.Box(-1, 1, (1,), np.float32)
    space = spaces.Dict({"b": box, "a": spaces.Dict({"z": spaces.Discrete(2), "y": box})})
    value = {"b": np.array([[0.25]]), "a": {"z": np.array([1]), "y": np.array([[0.5]])}}
    swapped = spaces.Dict({"a": spaces.Dict({"y": box, "z": spaces.Discrete(2)}), "b": box})
    assert expand(space, value)[0] == expand(swapped, value)[0] == [[0.5, 0, 1, 0.25]]


def test_goals_are_kept_apart_even_where_they_sort_before_other_keys() -> None:
    space = spaces.Dict({"goals": spaces.Box(0, 9, (2, 3), np.float32), "z": spaces.Discrete(2)})
    goals = np.arange(6).reshape(1, 2, 3)
    assert expand(space, {"goals": goals, "z": np.array([1])}) == ([[0, 1]], [[0, 1, 2, 3, 4, 5]])
    assert ObservationCodec(space).goal_shape == (2, 3)


def test_rows_are_fresh_contiguous_float32_whatever_the_environment_gives() -> None:
    codec = ObservationCodec(spaces.Box(-np.inf, np.inf, (2,), np.float64))
    observation = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    read_only = observation.copy()
    read_only.flags.writeable = False
    for given in (observation, observation[::-1], np.asfortranarray(observation), read_only, observation.tolist()):
        (rows,) = codec.store(given).values()
        assert rows.dtype == np.float32
        assert rows.flags.c_contiguous and rows.flags.writeable
        np.testing.assert_array_equal(rows, np.asarray(given, np.float32))
        assert not np.shares_memory(rows, given)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.float32])
def test_a_row_is_a_copy_so_a_reused_buffer_does_not_change_it(dtype: type) -> None:
    buffer = np.ones((1, 2), dtype)
    (rows,) = ObservationCodec(spaces.Box(0, 100, (2,), dtype)).store(buffer).values()
    buffer[:] = 5
    assert rows.dtype == dtype
    assert rows.tolist() == [[1, 1]]


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Dict({"mission": spaces.Text(10)}), ["'mission'", "Text", "no encoder"]),
        (spaces.Dict({"a": spaces.Dict({"view": spaces.Box(0, 255, (4, 4, 3), np.uint8)})}), ["'a/view'", "image"]),
        (spaces.Tuple([spaces.Discrete(2)]), ["Tuple", "no encoder"]),
        (spaces.Dict({"grey": spaces.Box(0, 255, (8, 8), np.uint8)}), ["'grey'", "image"]),
        (spaces.Box(0, 255, (4, 8, 8, 3), np.uint8), ["image"]),
        (spaces.Discrete(2**25), ["too many values"]),
        (spaces.Discrete(3, start=-(2**25)), ["too many values"]),
        (spaces.Dict({}), ["empty"]),
        (spaces.Box(0, 1, (64, 64, 3), np.float32), ["space", "image"]),
        (spaces.Dict({"goals": spaces.Discrete(2), "x": spaces.Discrete(2)}), ["'goals'", "[goals, features of one]"]),
        (spaces.Dict({"goals": spaces.Box(0, 1, (3,), np.float32)}), ["'goals'", "give the key another name"]),
        (spaces.Dict({"goals": spaces.Box(0, 255, (8, 8), np.uint8)}), ["'goals'", "image"]),
    ],
)
def test_text_and_images_are_refused_with_space_key_and_reason(space: spaces.Space, words: list[str]) -> None:
    with pytest.raises(UnsupportedSpace) as error:
        ObservationCodec(space)
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize("space", [spaces.Text(3), spaces.Tuple([spaces.Discrete(2)])])
def test_other_actions_are_refused(space: spaces.Space) -> None:
    with pytest.raises(UnsupportedSpace, match="only Box, Discrete, MultiDiscrete and MultiBinary"):
        ActionCodec(space)


@pytest.mark.parametrize("n", [1, 2, 127, 128, 129, 256, 257, 300, 40_000])
def test_discrete_actions_survive_storage_for_any_n(n: int) -> None:
    codec = ActionCodec(spaces.Discrete(n, start=3))
    stored = np.array([0, n - 1, codec.blank]).astype(codec.field.dtype)
    assert codec.to_env(stored[:2]).tolist() == [3, n + 2]
    features = codec.features(torch.from_numpy(stored))
    assert features[0].argmax() == 0 and features[0].sum() == 1
    assert features[1].argmax() == n - 1 and features[1].sum() == 1
    assert (features[2] == 1).all()  # no action yet: all ones, which no action is


def test_multi_discrete_actions_are_one_row_major_index() -> None:
    space = spaces.MultiDiscrete([[2], [3]], start=[[10], [20]])
    codec = ActionCodec(space)
    actions = codec.to_env(np.arange(6, dtype=codec.field.dtype))
    assert actions.reshape(6, 2).tolist() == [[10, 20], [10, 21], [10, 22], [11, 20], [11, 21], [11, 22]]
    assert all(space.contains(action) for action in actions)


def test_bounded_dimensions_are_rescaled_and_unbounded_ones_are_not() -> None:
    low = np.array([-2, -np.inf, 5, -np.inf], np.float32)
    high = np.array([6, np.inf, np.inf, -4], np.float32)
    space = spaces.Box(low, high, dtype=np.float32)
    codec = ActionCodec(space)
    actions = codec.to_env(np.array([[-1] * 4, [0, 0.5, 0.5, 0.5], [1] * 4], np.float32))
    assert actions.tolist() == [[-2, -1, 5, -6], [2, 0.5, 6.5, -4.5], [6, 1, 7, -4]]  # one bound: 2 units beside it
    assert actions.dtype == np.float32
    assert all(space.contains(action) for action in actions)


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        (np.int64, -(2**63), 2**63 - 1),
        (np.uint64, 0, 2**64 - 1),
        (np.int64, -(2**60) - 1, 2**60 - 1),
        (np.int32, -(2**31), 2**31 - 1),
    ],
)
def test_integer_actions_of_the_full_range_do_not_wrap(dtype: type, low: int, high: int) -> None:
    space = spaces.Box(np.array([low], dtype), np.array([high], dtype), dtype=dtype)
    actions = ActionCodec(space).to_env(np.array([[-1.0], [1.0]], np.float32))
    assert actions.dtype == dtype
    assert low <= int(actions[0, 0]) <= low + 2**12
    assert high - 2**12 <= int(actions[1, 0]) <= high


def test_integers_of_a_box_are_rounded_and_not_cut_off() -> None:
    codec = ActionCodec(spaces.Box(0, 3, (1,), np.int64))
    actions = codec.to_env(np.array([[-1], [-0.7], [-0.5], [0.6], [0.7], [1]], np.float32))  # 0, 0.45, 0.75, 2.4, 2.55
    assert actions.ravel().tolist() == [0, 0, 1, 2, 3, 3] and actions.dtype == np.int64


def test_the_widest_finite_box_gives_no_infinity() -> None:
    largest = np.finfo(np.float32).max
    codec = ActionCodec(spaces.Box(-largest, largest, (1,), np.float32))
    assert codec.to_env(np.array([[-1.0], [1.0]], np.float32)).tolist() == [[-largest], [largest]]


def test_no_continuous_action_yet_is_minus_two() -> None:
    codec = ActionCodec(spaces.Box(-1, 1, (2,), np.float32))
    assert codec.blank == -2
    assert codec.features(torch.full((1, 2), codec.blank)).tolist() == [[-2, -2]]


def test_a_table_of_numbers_is_no_image() -> None:
    assert ObservationCodec(spaces.Box(-1, 1, (32, 32), np.float32)).features == 1024


def test_bits_are_observed_as_numbers_and_chosen_as_one_of_their_combinations() -> None:
    space = spaces.MultiBinary((2, 2))
    features, _ = expand(space, np.array([[[1, 0], [0, 1]]], np.int8))
    assert features == [[1, 0, 0, 1]]
    codec = ActionCodec(space)
    actions = codec.to_env(np.arange(16, dtype=codec.field.dtype))
    assert codec.size == 16 and actions[6].tolist() == [[0, 1], [1, 0]]
    assert all(space.contains(action) for action in actions)
    assert len({action.tobytes() for action in actions}) == 16


@pytest.mark.parametrize("choices", [[2] * 70, [2] * 63, [50, 50, 50]])
def test_more_combinations_than_a_table_holds_are_refused(choices: list[int]) -> None:
    """The product must not wrap around: 2 ** 70 is 0 in 64 bits."""
    with pytest.raises(UnsupportedSpace, match="combinations, and each needs a value"):
        ActionCodec(spaces.MultiDiscrete(choices))
    with pytest.raises(UnsupportedSpace, match="combinations, and each needs a value"):
        ActionCodec(spaces.MultiBinary(sum(choices)))
