"""All tasks by id: those of this repository, those that installed packages register, and any gymnasium environment."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache, partial
from importlib import import_module
from importlib.metadata import entry_points, packages_distributions
from pathlib import Path
from types import MappingProxyType

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

from amago_core.names import did_you_mean
from benchmarks.gate.slots import SlotFault
from benchmarks.gate.workers import vectorise
from benchmarks.imports import load_object, look_here
from benchmarks.task import Budget, Task
from results.errors import UserError

#: benchmarks/<domain>/<family>/tasks.py; each has TASKS.
MODULES = sorted(
    f"benchmarks.{path.parts[-3]}.{path.parts[-2]}.tasks" for path in Path(__file__).parent.glob("*/*/tasks.py")
)
ENTRY_POINTS = "amago_bench.tasks"  # each names an iterable of Tasks
FOREIGN = "foreign/gymnasium/"
FOREIGN_HORIZON = 1000  # where the registration has no limit


@cache
def tasks() -> Mapping[str, Task]:
    """Every known task by id, in the order of the modules. Entry points that fail are skipped with a warning."""
    found: dict[str, Task] = {}
    for module in MODULES:
        _add(found, import_module(module).TASKS, module)
    for entry in entry_points(group=ENTRY_POINTS):
        where = f"entry point {entry.name} = {entry.value}"
        try:
            _add(found, entry.load(), where)
        except Exception as error:  # a broken package must not take the other tasks away
            warnings.warn(f"{where} is skipped: {error}", stacklevel=2)
    return MappingProxyType(found)


def _add(found: dict[str, Task], more: Iterable[Task], where: str) -> None:
    new: dict[str, Task] = {}  # all of them or none
    for task in more:
        if not isinstance(task, Task):
            raise TypeError(f"{where} has a {type(task).__name__} among its tasks; all must be benchmarks.task.Task")
        if task.id in found or task.id in new:
            raise ValueError(f"{where} defines task {task.id}, which exists already; choose another id")
        new[task.id] = task
    found.update(new)


def get_task(task_id: str) -> Task:
    """The task of an id. Raises UserError.

    `foreign/gymnasium/<ENV_ID>` wraps any registered environment; `my_module:MY_TASK` is a task of one's own, whose id
    is then this name.
    """
    if task_id.startswith(FOREIGN):
        return foreign_task(task_id.removeprefix(FOREIGN))
    if ":" in task_id:
        return own_task(task_id)
    if task_id not in tasks():
        raise UserError(f"unknown task {task_id!r}; {_nearest(task_id)}")
    return tasks()[task_id]


def match(pattern: str) -> list[Task]:
    """The tasks whose id matches a shell pattern such as `long_term_memory/tmaze/*`. Raises UserError if none does."""
    if pattern.startswith(FOREIGN) or ":" in pattern:
        return [get_task(pattern)]
    matched = [task for task_id, task in tasks().items() if fnmatchcase(task_id, pattern)]
    if not matched:
        raise UserError(f"no task matches {pattern!r}; {_nearest(pattern)}")
    return matched


def _nearest(task_id: str) -> str:
    return did_you_mean(task_id, tasks(), "`amago-bench list` shows all tasks")


def own_task(name: str) -> Task:
    """The `Task` under `my_module:MY_TASK`, in the current folder or installed. Raises UserError for anything else."""
    found = load_object(name, "task")
    if not isinstance(found, Task):
        raise UserError(f"task {name!r} is of type {type(found).__name__}; it must be a benchmarks.task.Task")
    return replace(found, id=name)  # the name by which every process finds it


def foreign_id(env_id: str) -> str:
    """The task of a gymnasium environment, by id."""
    return FOREIGN + env_id


def foreign_task(env_id: str) -> Task:
    """A task around a registered gymnasium environment, with an artificial time limit and no known scale of returns.

    `module:Id-v0` imports the module first. Budgets are small, and the same for every environment. Raises UserError for
    an id that is not registered.
    """
    look_here()
    module, _, name = env_id.rpartition(":")
    try:
        if module:  # importing it registers its environments, and may raise anything
            import_module(module)
        spec = gymnasium.spec(name)
    except Exception as error:
        hint = did_you_mean(name, gymnasium.registry, "name the module that registers it: `module:Id-v0`")
        raise UserError(f"gymnasium knows no environment {env_id!r} ({error}); {hint}") from error
    return Task(
        id=foreign_id(env_id),
        description=f"gymnasium environment {env_id}",
        make=partial(_make_foreign, spec),
        horizon=spec.max_episode_steps or FOREIGN_HORIZON,
        random_return=math.nan,
        high=math.nan,
        high_source="unknown",
        budgets={
            "smoke": Budget(env_steps=2000, num_envs=4, evaluations=2, seeds=(0,)),
            "laptop": Budget(env_steps=200_000, num_envs=16, evaluations=10, seeds=(0, 1, 2, 3, 4)),
        },
        time_limit="artificial",
        infos=(),  # its names mean what its author chose
        packages=_packages(spec.entry_point),
    )


def _make_foreign(spec: EnvSpec, num_envs: int) -> VectorEnv:
    try:  # from the spec, since a worker has no such registration; the harness does the checking
        return vectorise(partial(gymnasium.make, spec, disable_env_checker=True), num_envs)
    except SlotFault as fault:
        raise UserError(f"cannot make gymnasium environment {spec.id}: {fault}") from fault


def _packages(entry_point: object) -> tuple[str, ...]:
    """The distributions that an environment comes from, gymnasium included."""
    module = entry_point if isinstance(entry_point, str) else getattr(entry_point, "__module__", "")
    root = module.split(":")[0].split(".")[0]
    others = _distributions().get(root, []) if root != "gymnasium" else []
    return tuple(sorted({"gymnasium", *others}))


_distributions = cache(packages_distributions)  # slow: it reads the file lists of all distributions
