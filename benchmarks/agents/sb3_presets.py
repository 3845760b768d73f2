"""The hyper-parameters of the outside baselines. Imports neither torch nor stable-baselines3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from amago_core.hyperparameters import Hyperparameters, setting
from benchmarks.task import Task


@dataclass(frozen=True)
class PPO(Hyperparameters):
    """PPO without memory, the same for all tasks; not tuned.

    Defaults and names are stable-baselines3's, except for the sizes, which are those of POPGym's baselines (Morad et
    al., 2023), and for a short `n_steps`, since steps come from many slots and not from one.
    """

    hidden: tuple[int, ...] = setting(
        (128, 128), "layers of the actor, and of the separate critic", low=1, also=("net_arch", "hidden_size")
    )
    n_steps: int = setting(128, "in every slot between two rounds of updates", low=1, also=("num_steps",))
    minibatches: int = setting(32, "equal parts of these steps, one update each", low=1, also=("batch_size",))
    n_epochs: int = setting(10, "passes over these steps", low=1, also=("epochs", "update_epochs"))
    lr: float = setting(3e-4, "learning rate of Adam", low=0, also=("learning_rate",))
    gamma: float = setting(0.99, "discount", low=0, high=1, also=("discount",))
    gae_lambda: float = setting(0.95, "of generalised advantage estimation", low=0, high=1)
    clip_range: float = setting(0.2, "of the ratio of probabilities", low=0, also=("clip_coef",))
    ent_coef: float = setting(0.0, "weight of the entropy", low=0)
    vf_coef: float = setting(0.5, "weight of the value loss", low=0)
    max_grad_norm: float = setting(0.5, "largest global norm of the gradient", low=0, also=("gradient_clip",))

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

    minibatches: int = setting(4, "equal parts of these steps, one update each", low=1, also=("batch_size",))
    lstm_hidden_size: int = setting(256, "width of each LSTM", low=1)


#: Agent id -> its hyper-parameters.
PRESETS: Mapping[str, PPO] = {"sb3-ppo": PPO(), "sb3-recurrent-ppo": RecurrentPPO()}


def configure(preset: str, task: Task | None, tier: str, settings: Mapping[str, str]) -> PPO:
    """The hyper-parameters of a run, `settings` (`--set`) applied; the counterpart of `presets.configure`.

    Raises:
        ValueError: a setting that does not exist or has a wrong value.
    """
    base = PRESETS[preset]
    if tier == "paper" and isinstance(base, RecurrentPPO):
        base = replace(base, n_steps=1024)
    return base.replace(settings)
