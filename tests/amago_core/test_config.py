"""Hyper-parameters: the paper's values, settings from text, and errors of one line."""

import dataclasses
import math
from typing import Any

import pytest

from amago_core.config import RANGES, Config, Rollout


def test_the_defaults_are_those_of_the_paper() -> None:
    """As in agent.md 10.1."""
    c = Config()
    assert (c.encoder_hidden, c.encoder_width) == ((512, 512), 256)
    assert (c.width, c.layers, c.heads, c.dropout) == (256, 3, 8, 0.05)
    assert (c.actor_critic_hidden, c.critics, c.gamma, c.reward_multiplier) == ((256, 256), 4, 0.999, 10)
    assert (c.online_weight, c.offline_weight, c.critic_weight, c.popart_rate) == (1, 0.1, 10, 5e-4)
    assert (c.lr, c.weight_decay, c.gradient_clip, c.warmup_updates) == (1e-4, 1e-3, 1, 10_000)
    assert (c.batch_sequences, c.steps_per_iteration, c.updates_per_iteration) == (24, 1000, 1000)
    assert (c.epsilon_start, c.epsilon_end, c.anneal_steps) == ((1, 0.05), (0.8, 0.01), 1_000_000)


def test_the_acting_discount_is_last_and_kept_where_it_repeats() -> None:
    """agent.md 4.1: 18 outputs for discrete actions, 0.999 twice; 6 for continuous ones."""
    discrete, continuous = Config().all_discounts(True), Config().all_discounts(False)
    assert len(discrete) == 18 and discrete.count(0.999) == 2 and discrete[-1] == 0.999
    assert continuous == (0.9, 0.95, 0.99, 0.993, 0.996, 0.999)
    assert Config(discounts=(), gamma=0.9).all_discounts(True) == (0.9,)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("lr", "3e-4", 3e-4),
        ("layers", "2", 2),
        ("encoder_hidden", "64+32", (64, 32)),
        ("discounts", "0.9+0.99", (0.9, 0.99)),
        ("discounts", "", ()),
        ("discounts", "none", None),
        ("corridor_epsilon", "none", None),
        ("corridor_epsilon", "0.1", 0.1),
        ("epsilon_start", "1+0.1", (1.0, 0.1)),
        ("sigma_reparam", "false", False),
        ("sigma_reparam", "1", True),
        ("sequence_model", "gru", "gru"),
    ],
)
def test_settings_are_read_from_text(name: str, text: str, value: Any) -> None:
    assert getattr(Config().replace({name: text}), name) == value


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"popart_rat": "1"}, ["unknown setting 'popart_rat'", "did you mean popart_rate"]),
        ({"qqqqqqqq": "1"}, ["unknown setting 'qqqqqqqq'"]),
        ({"layers": "two"}, ["layers=two", "int"]),
        ({"layers": "2.5"}, ["layers=2.5", "int"]),
        ({"sigma_reparam": "maybe"}, ["sigma_reparam=maybe", "bool"]),
        ({"sequence_model": "lstm"}, ["sequence_model=lstm", "one of transformer, gru, memoryless"]),
        ({"epsilon_start": "1"}, ["epsilon_start=1"]),
        ({"heads": "3"}, ["width 256", "heads 3"]),
        ({"heads": "0"}, ["heads", "at least 1"]),
        ({"anneal_steps": "0"}, ["anneal_steps", "at least 1"]),
        ({"lr": "nan"}, ["lr", "nan"]),
        ({"lr": "inf"}, ["lr must be a finite number"]),
        ({"reward_multiplier": "nan"}, ["reward_multiplier must be a finite number"]),
        ({"advantage_threshold": "nan"}, ["advantage_threshold", "finite"]),
        ({"encoder_hidden": "64+-5"}, ["encoder_hidden", "at least 1, not -5"]),
        ({"actor_critic_hidden": "0"}, ["actor_critic_hidden", "at least 1"]),
        ({"epsilon_start": "5+0"}, ["epsilon_start", "between 0 and 1"]),
        ({"corridor_epsilon": "7"}, ["corridor_epsilon", "between 0 and 1"]),
        ({"corridor_ends": "-1+0"}, ["corridor_ends", "at least 0"]),
        ({"dropout": "1"}, ["dropout", "between 0 and 0.99"]),
        ({"gamma": "1"}, ["discounts", "not 1.0"]),
        ({"discounts": "0.9+1.5"}, ["discounts", "not 1.5"]),
        ({"gamma": "1.5", "discounts": "0.9"}, ["discounts", "not 1.5"]),
    ],
)
def test_a_bad_setting_is_one_line_that_names_it(setting: dict[str, str], words: list[str]) -> None:
    with pytest.raises(ValueError) as error:
        Config().replace(setting)
    for word in words:
        assert word in str(error.value)
    assert "\n" not in str(error.value)


def test_every_range_names_a_field_and_holds_for_the_default() -> None:
    assert RANGES.keys() <= {f.name for f in dataclasses.fields(Config)}


def test_the_time_input_of_a_rollout() -> None:
    assert Rollout(50).time_scale == 50
    assert Rollout(50, finite=False).time_scale == math.inf  # hidden
    assert Rollout(50, time_scale=10_000).time_scale == 10_000  # POPGym in the paper
    with pytest.raises(ValueError, match="at least one step"):
        Rollout(0)
