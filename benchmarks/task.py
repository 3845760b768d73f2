"""What a task is: an environment, the length of a rollout, the scale of its returns and its budgets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gymnasium.vector import VectorEnv

from benchmarks.gate.slots import TOLD
from benchmarks.gate.vector_step import VectorStep
from results.errors import UserError
from results.schema import TIERS

# A scripted policy for B slots: (step, memory) -> (batched actions, memory), with `Agent.act`'s rules for the memory.
Policy = Callable[[VectorStep, Any], tuple[Any, Any]]


#: Which successes count: one at any step of a rollout, one at its last step, or one in its last inner episode.
Success = Literal["any_step", "last_step", "last_episode"]
SPLITS = (("same",), ("train", "test"))  # what a task may declare: the one that is trained on, then the headline


@dataclass(frozen=True)
class Budget:
    """What a tier fixes for a task.

    `env_steps` counts the steps of all slots together. The `evaluations` are evenly spaced over training, and the last
    is the final one. With `stop_return`, training ends once two evaluations in a row reach that mean return; the final
    evaluation is then a separate one.
    """

    env_steps: int
    num_envs: int
    evaluations: int
    seeds: tuple[int, ...]
    stop_return: float | None = None

    def __post_init__(self) -> None:
        for name in ("env_steps", "num_envs", "evaluations"):
            if getattr(self, name) < 1:
                raise ValueError(f"a budget needs {name} >= 1, got {getattr(self, name)}")
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"a budget needs at least one seed and no duplicates, got {self.seeds}")


@dataclass(frozen=True)
class Task:
    """One benchmark task. Everything here defines what its scores mean, and none of it depends on the agent.

    `random_return` and `high` are the 0 and the 1 of the normalised return; `high_source` says where `high` comes from.
    `oracle` is an optimal policy, `scripted` a good one that is not known to be optimal; where there is one, its mean
    return is `high`.
    """

    id: str
    description: str
    make: Callable[..., VectorEnv]  # (slots) -> environment; (slots, split) where there are a train and a test split
    horizon: int  # steps of a rollout
    random_return: float
    high: float
    high_source: str
    budgets: Mapping[str, Budget] = field(repr=False)  # tier -> budget
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)  # tier -> AMAGO's, see agents/
    solved_at: float | None = None  # the final return from which a seed counts as solved; None: there is no such share
    time_limit: Literal["finite", "artificial"] = "finite"
    time_scale: int | None = None  # divides the time input; None: the horizon
    success: Success = "any_step"  # where the environment reports any
    sample_actions: bool = True  # whether evaluation samples the policy or takes its mode
    infos: tuple[str, ...] = TOLD  # those that keep to the benchmark's meaning; of the others only success is read
    instances: int | None = None  # countable hidden instances, balanced through options["instance"]
    splits: tuple[str, ...] = ("same",)  # of the hidden instances; ("train", "test"): their instances are disjoint
    packages: tuple[str, ...] = ("gymnasium",)  # distributions whose versions matter to the scores
    extra: str | None = None  # the extra that installs the environment: pip install 'amago-bench[<extra>]'
    oracle: Policy | None = None
    scripted: Policy | None = None

    def __post_init__(self) -> None:
        if self.horizon < 1:
            raise ValueError(f"task {self.id}: horizon must be at least 1, got {self.horizon}")
        if unknown := set(self.budgets) - set(TIERS):
            raise ValueError(f"task {self.id}: unknown tiers {sorted(unknown)}; the tiers are {', '.join(TIERS)}")
        if self.splits not in SPLITS:
            raise ValueError(f"task {self.id}: splits {self.splits}; give {' or '.join(map(str, SPLITS))}")

    @property
    def training_split(self) -> str:
        """The split that is trained on, and alone decides when to stop or what to choose."""
        return self.splits[0]

    @property
    def headline_split(self) -> str:
        """The split whose scores count."""
        return self.splits[-1]

    def build(self, num_envs: int, split: str | None = None) -> VectorEnv:
        """An environment of a split (default: of the training split). Raises UserError if its package is missing."""
        try:
            envs = self.make(num_envs, *(() if self.splits == ("same",) else (split or self.training_split,)))
        except ImportError as error:
            if self.extra is None:
                raise
            raise UserError(
                f"task {self.id}: {error}; its environment comes with pip install 'amago-bench[{self.extra}]'"
            ) from error
        if (found := getattr(envs, "num_envs", num_envs)) != num_envs:
            raise UserError(f"task {self.id}: make({num_envs}) gave {found} slots; it must give as many as asked for")
        return envs

    def budget(self, tier: str) -> Budget:
        """The budget of a tier. Raises UserError if the task has none for it."""
        if tier not in self.budgets:
            have = ", ".join(self.budgets) or "none"
            raise UserError(f"task {self.id} has no budget for tier {tier!r}; its tiers: {have}")
        return self.budgets[tier]
