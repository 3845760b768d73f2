"""Hyper-parameters: the paper's values, settings from text, and errors of one line."""

import dataclasses
import math
from typing import Any

import pytest

from amago_core.config import Config, Rollout
from amago_core.hyperparameters import described, replaced


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
        ({"popart_rat": "1"}, ["it has no setting 'popart_rat'", "did you mean popart_rate?"]),
        ({"qqqqqqqq": "1"}, ["it has no setting 'qqqqqqqq'; it has encoder_hidden, encoder_width"]),
        ({"learning_rate": "1e-4"}, ["it has no setting 'learning_rate'; it is called lr here (learning rate of"]),
        ({"n_heads": "2"}, ["it is called heads here"]),
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


USUAL = (
    "learning_rate batch_size n_heads num_heads hidden_size d_model num_layers buffer_size max_grad_norm target_update "
    "learning_starts gradient_steps train_freq net_arch n_critics seq_len epsilon reward_scale"
)


def test_the_usual_names_lead_to_ours_and_to_one_only() -> None:
    fields = dataclasses.fields(Config)
    usual = [name for field in fields for name in field.metadata["also"]]
    assert set(USUAL.split()) <= set(usual)
    assert len(set(usual)) == len(usual) and not set(usual) & {field.name for field in fields}


def test_every_setting_says_what_it_means() -> None:
    assert [row.name for row in described(Config()) if not row.meaning] == []


def test_what_a_record_says_of_its_settings() -> None:
    rows = {row.name: row for row in described(Config(layers=1))}
    assert (rows["layers"].value, rows["layers"].default) == (1, 3)
    assert rows["encoder_width"].meaning.endswith("paper: 200 in POPGym")
    assert rows["positions"].meaning.endswith("(learned, sinusoidal, rotary)")  # the choices come from the type


@dataclasses.dataclass
class Plain:
    """A record of a user's own that knows nothing of ours."""

    spread: float = 1.0
    names: list[str] = dataclasses.field(default_factory=list)


def test_a_plain_dataclass_is_read_and_described_too() -> None:
    assert replaced(Plain(), {"spread": "0.5"}) == Plain(0.5)
    assert [(row.name, row.meaning) for row in described(Plain())] == [("spread", ""), ("names", "")]
    with pytest.raises(ValueError, match="it has no setting 'spred'; did you mean spread"):
        replaced(Plain(), {"spred": "1"})
    with pytest.raises(ValueError, match="setting names=ab: expected list"):
        replaced(Plain(), {"names": "ab"})


def test_the_time_input_of_a_rollout() -> None:
    assert Rollout(50).time_scale == 50
    assert Rollout(50, finite=False).time_scale == math.inf  # hidden
    assert Rollout(50, time_scale=10_000).time_scale == 10_000  # POPGym in the paper
    with pytest.raises(ValueError, match="at least one step"):
        Rollout(0)
