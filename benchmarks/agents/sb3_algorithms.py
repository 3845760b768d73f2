"""The settings of `sb3:DQN` and the like: keyword arguments of the algorithm's constructor, under SB3's own names."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, make_dataclass
from functools import cache
from typing import Any, ClassVar

from amago_core.hyperparameters import Hyperparameters, setting
from benchmarks.task import Task
from results.errors import UserError

try:
    import sb3_contrib
    import stable_baselines3
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
except ImportError as error:
    raise UserError(f"{error}; the agents sb3:... come with pip install 'amago-bench[sb3]'") from error

#: Algorithm by the name of its class. MaskablePPO is left out: no task says which actions are invalid.
ALGORITHMS: Mapping[str, Any] = {
    name: found
    for package in (stable_baselines3, sb3_contrib)
    for name, found in vars(package).items()
    if isinstance(found, type) and issubclass(found, OnPolicyAlgorithm | OffPolicyAlgorithm) and name != "MaskablePPO"
}
#: Arguments that the harness decides, or that only concern SB3's own logs; `optimize_memory_usage` cannot be combined
#: with time limits that are no end.
NOT_SETTINGS = {"policy", "env", "seed", "device", "verbose", "tensorboard_log", "stats_window_size"}
NOT_SETTINGS |= {"_init_setup_model", "optimize_memory_usage"}


@dataclass(frozen=True)
class Arguments(Hyperparameters):
    """The settings of one algorithm; `configure` makes the subclasses."""

    algorithm: ClassVar[Any]

    net_arch: tuple[int, ...] | None = setting(
        None, "hidden layers of each network (policy_kwargs); none: SB3's own", low=1, also=("hidden", "hidden_size")
    )

    def arguments(self) -> dict[str, Any]:
        """Those of the algorithm's constructor."""
        given = asdict(self)
        layers = given.pop("net_arch")
        return given | ({} if layers is None else {"policy_kwargs": {"net_arch": list(layers)}})


def configure(base: str, task: Task | None, tier: str, settings: Mapping[str, str]) -> Arguments:
    """The settings of the agent `sb3:NAME`: SB3's defaults, the same for every task and tier, changed by `settings`.

    Raises:
        ValueError: an algorithm or a setting that does not exist, or a wrong value.
    """
    name = base.partition(":")[2]
    if name not in ALGORITHMS:
        raise ValueError(f"there is no algorithm '{name}'; there are {', '.join(sorted(ALGORITHMS))}")
    return _arguments(name)().replace(settings)


@cache
def _arguments(name: str) -> type[Arguments]:
    algorithm = ALGORITHMS[name]
    meanings = _meanings(inspect.getdoc(algorithm) or "")
    fields = [
        (p.name, kind, setting(p.default, meanings.get(p.name, ""), also=("lr",) if p.name == "learning_rate" else ()))
        for p in inspect.signature(algorithm).parameters.values()
        if p.name not in NOT_SETTINGS and (kind := _plain(p.annotation)) is not None
    ]
    made = make_dataclass(name, fields, bases=(Arguments,), frozen=True, namespace={"algorithm": algorithm})
    return made


def _plain(annotation: Any) -> Any:
    """What a text is read as: the first plain type of a union, with None if that is allowed; None if there is none."""
    union = isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union
    options = typing.get_args(annotation) if union else (annotation,)
    plain = next((option for option in options if option in (bool, int, float, str)), None)
    return plain | None if plain is not None and types.NoneType in options else plain


def _meanings(text: str) -> dict[str, str]:
    """The first sentences of `:param name: ...` in a docstring, each on one line."""
    found = re.findall(r"^:param (\w+):(.*?)(?=^:|\Z)", text, re.MULTILINE | re.DOTALL)
    return {
        name: re.split(r"\.\s|\(see |,? it can be ", " ".join(said.replace("``", "").split()))[0]
        for name, said in found
    }
