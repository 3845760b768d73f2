"""The hyper-parameters of the outside baselines. Imports neither torch nor stable-baselines3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from amago_core.config import Hyperparameters
from benchmarks.task import Task
from results.errors import UserError


@dataclass(frozen=True)
class PPO(Hyperparameters):
    """PPO without memory, the same for all tasks; not tuned.

    Defaults and names are stable-baselines3's, except for the sizes, which are those of POPGym's baselines (Morad et
    al., 2023), and for a short `n_steps`, since steps come from many slots and not from one.
    """

    RANGES: ClassVar[Mapping[str, tuple[float, float]]] = {
        **dict.fromkeys(("n_steps", "minibatches", "n_epochs", "hidden", "lstm_hidden_size"), (1, float("inf"))),
        **dict.fromkeys(("lr", "clip_range", "ent_coef", "vf_coef", "max_grad_norm"), (0, float("inf"))),
        **dict.fromkeys(("gamma", "gae_lambda"), (0, 1)),
    }

    hidden: tuple[int, ...] = (128, 128)  # layers of the actor, and of the separate critic
    n_steps: int = 128  # in every slot between two rounds of updates
    minibatches: int = 32  # equal parts of these steps, one update each
    n_epochs: int = 10  # passes over these steps
    lr: float = 3e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_range: float = 0.2
    ent_coef: float = 0.0
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_steps % self.minibatches:
            raise ValueError(f"n_steps {self.n_steps} is not a multiple of minibatches {self.minibatches}")


@dataclass(frozen=True)
class RecurrentPPO(PPO):
    """PPO with one LSTM for the actor and one for the critic, before the hidden layers.

    Gradients reach back at most `n_steps`: more than a rollout at the laptop tier, and at the tier `paper` the 1,024 of
    POPGym's baselines. A minibatch holds consecutive steps, slot after slot, so few minibatches keep sequences long.
    """

    minibatches: int = 4
    lstm_hidden_size: int = 256


#: Agent id -> its hyper-parameters.
PRESETS: Mapping[str, PPO] = {"sb3-ppo": PPO(), "sb3-recurrent-ppo": RecurrentPPO()}


def configure(preset: str, task: Task, tier: str, settings: Mapping[str, str]) -> PPO:
    """The hyper-parameters of a run, `settings` (`--set`) applied; the counterpart of `presets.configure`.

    Raises:
        UserError: a setting that does not exist or has a wrong value.
    """
    base = PRESETS[preset]
    if tier == "paper" and isinstance(base, RecurrentPPO):
        base = replace(base, n_steps=1024)
    try:
        return base.replace(settings)
    except ValueError as error:
        raise UserError(f"agent {preset}: {error}") from None
