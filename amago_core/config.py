"""Every hyper-parameter of the agent, with its unit and its value in the paper; agent.md 1 to 8 explain them.

The defaults are the settings that the paper's experiments share (agent.md 10.1); tasks and presets override some of
them. Flat on purpose: `--set lr=3e-4` names a field.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from amago_core.names import did_you_mean

#: Discount lists of the paper-time code (agent.md 4.1). The acting discount `gamma` is appended as the last entry.
DISCRETE_DISCOUNTS = (
    0.7, 0.9, 0.93, 0.95, 0.98, 0.99, 0.992, 0.994, 0.995, 0.997, 0.998, 0.999,
    0.9991, 0.9992, 0.9993, 0.9994, 0.9995,
)  # fmt: skip
CONTINUOUS_DISCOUNTS = (0.9, 0.95, 0.99, 0.993, 0.996)

#: Smallest and largest legal values, element by element. All numbers must be finite; discounts are checked separately.
RANGES: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("encoder_width", "goal_width", "width", "layers", "heads", "critics"), (1, math.inf)),
    **dict.fromkeys(("batch_sequences", "batch_tokens", "steps_per_iteration", "anneal_steps"), (1, math.inf)),
    **dict.fromkeys(("replay_trajectories", "replay_tokens"), (1, math.inf)),
    **dict.fromkeys(("context", "warmup_updates", "updates_per_iteration", "warmup_iterations"), (0, math.inf)),
    **dict.fromkeys(("online_weight", "offline_weight", "critic_weight"), (0, math.inf)),
    **dict.fromkeys(("lr", "weight_decay"), (0, math.inf)),
    "gradient_clip": (1e-6, math.inf),  # 0 would stop all learning, not turn clipping off
    **dict.fromkeys(("encoder_hidden", "actor_critic_hidden"), (1, math.inf)),
    **dict.fromkeys(("epsilon_start", "epsilon_end", "corridor_epsilon"), (0, 1)),
    "corridor_ends": (0, math.inf),
    "popart_rate": (1e-6, 1),
    "tau": (0, 1),
    "dropout": (0, 0.99),
}

Activation = Literal["leaky_relu", "relu", "gelu"]


@dataclass(frozen=True)
class Rollout:
    """What the agent is told about its rollouts: facts of the task, not choices."""

    horizon: int  # limit of a rollout, steps
    finite: bool = True  # the horizon ends the value target and the agent sees the time; if not, the target bootstraps
    time_scale: float = math.nan  # steps that make the time input 1; nan: the horizon (POPGym in the paper: 10,000)

    def __post_init__(self) -> None:
        if self.horizon < 1:
            raise ValueError(f"horizon must be at least one step, not {self.horizon}")
        if math.isnan(self.time_scale):
            object.__setattr__(self, "time_scale", float(self.horizon) if self.finite else math.inf)


@dataclass(frozen=True)
class Hyperparameters:
    """A flat record of settings that checks its values and parses them from text.

    Raises:
        ValueError: a number that is not finite or out of its range.
    """

    RANGES: ClassVar[Mapping[str, tuple[float, float]]] = {}  # smallest and largest value, element by element

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            numbers = [x for x in (value if isinstance(value, tuple) else (value,)) if isinstance(x, int | float)]
            low, high = self.RANGES.get(name, (-math.inf, math.inf))
            for number in numbers:
                if not math.isfinite(number):
                    raise ValueError(f"{name} must be a finite number, not {number}")
                if not low <= number <= high:
                    wanted = f"at least {low}" if high == math.inf else f"between {low} and {high}"
                    raise ValueError(f"{name} must be {wanted}, not {number}")

    def replace(self, settings: Mapping[str, Any]) -> Self:
        """A copy with some fields replaced; strings (from a command line) are parsed by the field's type.

        Raises:
            ValueError: unknown field (with the nearest names) or a value of the wrong type.
        """
        hints = typing.get_type_hints(type(self))
        fields = [field.name for field in dataclasses.fields(self)]
        values = {}
        for name, value in settings.items():
            if name not in fields:
                hint = did_you_mean(name, fields)
                raise ValueError(f"unknown setting '{name}'" + (f"; {hint}" if hint else ""))
            values[name] = _parse(name, value, hints[name]) if isinstance(value, str) else value
        return dataclasses.replace(self, **values)


@dataclass(frozen=True)
class Config(Hyperparameters):
    """Hyper-parameters of one agent."""

    RANGES = RANGES

    # Timestep encoder (agent.md 2)
    encoder_hidden: tuple[int, ...] = (512, 512)
    encoder_width: int = 256  # 200 in POPGym
    encoder_activation: Activation = "leaky_relu"
    input_norm: bool = True
    goal_width: int = 32  # width 1 hides every goal behind its LayerNorm (agent.md 2.1)

    # Sequence model (agent.md 3)
    sequence_model: Literal["transformer", "gru", "memoryless"] = "transformer"
    width: int = 256
    layers: int = 3
    heads: int = 8
    dropout: float = 0.05  # on the embedded input and behind the second feed-forward map
    sequence_activation: Activation = "leaky_relu"
    sigma_reparam: bool = True
    normformer: bool = True  # both extra LayerNorms
    head_scaling: bool = True
    positions: Literal["learned", "sinusoidal", "rotary"] = "learned"  # all but rotary show the timestep
    context: int = 0  # transitions in a training slice, timesteps a Transformer acts on; 0: the whole rollout
    attention: Literal["auto", "reference", "sdpa", "blocked", "flash"] = "auto"

    # Actor and critics (agent.md 4)
    actor_critic_hidden: tuple[int, ...] = (256, 256)
    actor_critic_activation: Activation = "leaky_relu"
    critics: int = 4
    gamma: float = 0.999  # the discount of the acting policy
    discounts: tuple[float, ...] | None = None  # trained beside gamma; None: the paper's list for the action type

    # Losses (agent.md 5)
    reward_multiplier: float = 10.0
    online_weight: float = 1.0
    offline_weight: float = 0.1  # filtered behaviour cloning
    critic_weight: float = 10.0
    advantage_threshold: float = 1e-3  # raw critic units
    popart_rate: float = 5e-4

    # Optimisation (agent.md 6)
    lr: float = 1e-4
    warmup_updates: int = 10_000  # linear from 0
    weight_decay: float = 1e-3
    gradient_clip: float = 1.0  # global norm of the summed gradient
    tau: float = 0.003  # step of the target networks towards the trained ones per update; POPGym: 0.0025
    dtype: Literal["float32", "bfloat16"] = "float32"  # of learning; bfloat16 brings TF32 with it (agent.md 6.3)
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: the GPU where there is one

    # Data (agent.md 8)
    batch_sequences: int = 24
    batch_tokens: int = 1_000_000  # a batch is closed before the sequence that would exceed this
    steps_per_iteration: int = 1000  # in every slot
    updates_per_iteration: int = 1000
    warmup_iterations: int = 0  # collected before the first update
    replay_trajectories: int = 20_000
    replay_tokens: int = 20_000_000  # capacity of the ring, allocated in full
    replay_sampling: Literal["trajectory", "transition"] = "trajectory"  # uniform over rollouts (paper) or transitions

    # Exploration (agent.md 7)
    sample_actions: bool = True  # sample the policy; False: its mode
    epsilon_start: tuple[float, float] = (1.0, 0.05)  # at the start of a rollout, first and last value of training
    epsilon_end: tuple[float, float] = (0.8, 0.01)  # at its end; equal to epsilon_start: plain epsilon-greedy
    anneal_steps: int = 1_000_000  # steps in each slot
    corridor_epsilon: float | None = None  # constant, in the corridor of a T-Maze; None: the schedule everywhere
    corridor_ends: tuple[int, int] = (1, 3)  # steps before and after the corridor, which keep the schedule

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.actor_critic_hidden:
            raise ValueError("actor_critic_hidden needs at least one hidden layer")
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        for gamma in (*(self.discounts or ()), self.gamma):
            if not 0 <= gamma < 1:
                raise ValueError(f"discounts must lie in [0, 1), not {gamma}")

    def all_discounts(self, discrete: bool) -> tuple[float, ...]:
        """The trained discounts, `gamma` last even where it repeats an entry (agent.md 4.1)."""
        listed = self.discounts
        if listed is None:
            listed = DISCRETE_DISCOUNTS if discrete else CONTINUOUS_DISCOUNTS
        return (*listed, self.gamma)


def _parse(name: str, text: str, hint: Any) -> Any:
    """Text to a value of the annotated type, e.g. '64+64' to a tuple of int (a comma separates settings)."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    try:
        if origin in (types.UnionType, typing.Union):
            inner = next(a for a in args if a is not types.NoneType)
            return None if text.lower() == "none" else _parse(name, text, inner)
        if origin is Literal:
            if text not in args:
                raise ValueError
            return text
        if origin is tuple:
            items = tuple(args[0](part) for part in text.split("+") if part)
            if Ellipsis not in args and len(items) != len(args):
                raise ValueError
            return items
        if hint is bool:
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        return hint(text)
    except (ValueError, KeyError):
        wanted = getattr(hint, "__name__", str(hint))
        if origin is Literal:
            wanted = "one of " + ", ".join(map(str, args))
        elif origin is tuple:
            wanted = "numbers with + between them"
        raise ValueError(f"setting {name}={text}: expected {wanted}") from None
