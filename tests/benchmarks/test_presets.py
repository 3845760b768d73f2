"""The presets: each ablation changes what its name says."""

import dataclasses

import pytest

from amago_core.config import Config
from benchmarks.agents.presets import PRESETS


def test_the_naive_agent_switches_exactly_the_list_of_the_paper() -> None:
    """As in agent.md 10.2."""
    naive = Config().replace(PRESETS["amago-naive"])
    assert {name: getattr(naive, name) for name in changed(naive)} == {
        "sequence_activation": "gelu",
        "actor_critic_activation": "relu",
        "encoder_activation": "relu",
        "normformer": False,
        "sigma_reparam": False,
        "head_scaling": False,
        "critics": 2,
        "gamma": 0.99,
        "discounts": (),
    }


@pytest.mark.parametrize(
    ("preset", "fields"),
    [
        ("amago", set()),
        ("amago-gru", {"sequence_model"}),
        ("amago-memoryless", {"sequence_model"}),
        ("amago-no-multigamma", {"discounts"}),
        ("amago-vanilla-transformer", {"sigma_reparam", "normformer", "head_scaling"}),
        ("amago-relu", {"sequence_activation", "actor_critic_activation", "encoder_activation"}),
        ("amago-two-critics", {"critics"}),
        ("amago-no-filtered-bc", {"offline_weight"}),
    ],
)
def test_an_ablation_changes_what_its_name_says(preset: str, fields: set[str]) -> None:
    assert PRESETS[preset].keys() == fields
    assert changed(Config().replace(PRESETS[preset])) == fields


def changed(config: Config) -> set[str]:
    """Fields that differ from the defaults."""
    return {f.name for f in dataclasses.fields(Config) if getattr(config, f.name) != getattr(Config(), f.name)}
