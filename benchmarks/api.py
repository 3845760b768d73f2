"""Runs from Python; `amago_bench` gives these names to its users."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.spaces import Space
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from amago_core.seeding import child
from benchmarks.agents import agent_id, make_agent, parse_agent
from benchmarks.agents.protocol import Agent, VectorStep
from benchmarks.catalog import get_task
from benchmarks.gate.evaluate import FINAL_ROLLOUTS, SLOTS, EpisodeRecord, evaluate, evaluation_seeds
from benchmarks.places.executor import Executor
from benchmarks.places.sweep import State
from benchmarks.places.sweep import sweep as make_all
from benchmarks.runs.grid import grid, missing
from benchmarks.runs.job import Job, make
from benchmarks.runs.plan import Plan, plan
from benchmarks.task import Task
from results.errors import UserError
from results.protocols import read_json
from results.renames import current_identity
from results.seal import check, check_folder
from results.store import read_table, results_root

if TYPE_CHECKING:
    import pandas as pd


@dataclass(repr=False)
class LoadedRun:
    """A finished run: its policy (`agent`), its task and its rows.

    `act` plays one environment and remembers; `agent.act` is the policy for a batch of slots.
    """

    folder: Path
    task: Task
    agent: Agent
    seed: int
    _spaces: tuple[Space, Space]  # observation and action, of one environment
    _memory: Any = None
    _rng: np.random.Generator | None = None

    def __repr__(self) -> str:
        row = self.rows("runs").iloc[-1]
        return f"<{row['run_id']}, {row['status']} after {row['env_steps']:,} steps>"

    def act(self, observation: Any, reward: float = 0.0, first: bool = False, inner_reset: bool = False) -> Any:
        """The action for one plain environment. `reward` is that of the previous step; `first` starts a new rollout.

        The first call starts a rollout too. Random draws come from a stream of the run's seed that starts at loading.
        """
        if self._rng is None:
            self._rng = np.random.default_rng(child(self.seed, self.task.id, "act"))
            first = True
        observation_space, action_space = self._spaces
        batch: Any = concatenate(observation_space, [observation], create_empty_array(observation_space, 1))  # type: ignore[arg-type]
        step = VectorStep(batch, np.array([reward], np.float32), np.array([first]), np.array([inner_reset]))
        actions, self._memory = self.agent.act(step, self._memory, self._rng)
        return next(iter(iterate(batch_space(action_space, 1), actions)))

    def evaluate(
        self, rollouts: int = FINAL_ROLLOUTS, slots: int = SLOTS, split: str | None = None
    ) -> list[EpisodeRecord]:
        """Play whole rollouts as the harness does; the defaults repeat the final evaluation of the headline split."""
        split = split or self.task.headline_split
        seeds = evaluation_seeds(self.task.id, "final", split)
        return evaluate(self.agent, self.task, seeds, rollouts, slots, split=split, run_seed=self.seed)

    def rows(self, table: str) -> pd.DataFrame:
        """The run's rows of `episodes`, `curves`, `runs` (its last one) or `tasks`."""
        import pandas as pd

        rows = read_table(check(self.folder / f"{table}.csv"), table)
        return pd.DataFrame(rows[-1:] if table == "runs" else rows)


def run(
    task: str | Task,
    agent: str | type,
    tier: str = "smoke",
    seed: int = 0,
    *,
    root: Path | None = None,
    threads: int = 1,
    trackers: Sequence[str] = ("tensorboard",),
    replace: bool = False,
    **settings: object,
) -> LoadedRun:
    """Train and evaluate unless that is done already, then load. `settings` are the agent's, as in `--set lr=3e-4`.

    `task` and `agent` are ids, or a `Task` and an agent's class themselves.
    """
    known = task if isinstance(task, Task) else get_task(task)
    base, own = parse_agent(_agent_name(agent))
    named = agent_id(base, own | {key: str(value) for key, value in settings.items()})
    job = Job(known.id, named, tier, seed, threads, tuple(trackers), replace)
    root = (root or results_root()).absolute()  # an agent may change the current folder
    folder = make(job, root, task=known)
    return _load(plan(known, named, tier, seed, root=root, threads=threads), folder)


def sweep(
    tasks: str | Iterable[str],
    agents: str | Iterable[str],
    tier: str = "smoke",
    seeds: int | Sequence[int] | None = None,
    settings: Mapping[str, Sequence[object]] | None = None,
    *,
    root: Path | None = None,
    executor: Executor | None = None,
    threads: int = 1,
    trackers: Sequence[str] = ("tensorboard",),
    replace: bool = False,
    report: Callable[[Sequence[State]], None] = lambda states: None,
) -> list[State]:
    """Make all runs of the grid (see `benchmarks.runs.grid.grid`) that are not finished yet; how each of them ended.

    `executor` says where they are made; the default is `benchmarks.places.local.Local()`, one process a run and as many
    at once as there are cores. `report` is called again and again while they are made.
    """
    root = root or results_root()
    tasks, agents = ([given] if isinstance(given, str) else given for given in (tasks, agents))
    jobs = grid(tasks, agents, tier, seeds, settings, threads=threads, trackers=tuple(trackers))
    return make_all(missing(jobs, root, replace), root, executor, report)


def load(
    run: str | Path | Task,
    agent: str | type | None = None,
    tier: str = "smoke",
    seed: int = 0,
    *,
    root: Path | None = None,
) -> LoadedRun:
    """A finished run, by its folder alone or by task, agent, tier and seed. Raises UserError if there is none.

    The rows of `results/reference/` have no weights: only runs made here can be loaded.
    """
    if agent is not None:
        return _load(plan(run if isinstance(run, Task) else str(run), _agent_name(agent), tier, seed, root=root))
    if isinstance(run, Task):
        raise UserError("load() of a task needs the agent, the tier and the seed too")
    folder = Path(run)
    path = folder / "config.json"
    config = current_identity(read_json(check(path)))
    try:
        planned = plan(config["task"], config["agent"], config["tier"], config["seed"], threads=config["threads"])
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: the file is damaged ({error})") from error
    return _load(planned, folder)


def _agent_name(agent: str | type) -> str:
    return agent if isinstance(agent, str) else f"{agent.__module__}:{agent.__qualname__}"


def _load(planned: Plan, folder: Path | None = None) -> LoadedRun:
    folder = folder or planned.folder
    checkpoint = folder / "checkpoint"
    if not (checkpoint / "done").exists():
        raise UserError(f"{folder} holds no finished run; `amago-bench run` makes it")
    with contextlib.closing(planned.task.build(1)) as envs, tempfile.TemporaryDirectory() as scratch:
        spaces = envs.single_observation_space, envs.single_action_space
        agent = make_agent(planned.base, planned.spec(envs, Path(scratch)))
        check_folder(checkpoint)
        try:
            agent.load(checkpoint)
        except Exception as error:
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            hint = "use the code of its commit (runs.csv), or run it again with --replace"
            raise UserError(f"{checkpoint}: the agent cannot be loaded from it ({what}); {hint}") from error
    return LoadedRun(folder, planned.task, agent, planned.seed, spaces)
