"""One run, from nothing to its final evaluation and its rows."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from amago_core.seeding import child
from benchmarks.agents import make_agent, reports
from benchmarks.agents.protocol import Agent, CannotResume, ContractError, Progress
from benchmarks.agents.settings import Given
from benchmarks.gate.evaluate import FINAL_ROLLOUTS, INTERMEDIATE_ROLLOUTS, SLOTS, evaluate, evaluation_seeds, summarise
from benchmarks.gate.harness_env import HarnessEnv
from benchmarks.runs import checkpoint
from benchmarks.runs.checkpoint import Point, differences, newest_point, save_point
from benchmarks.runs.owner import LOCK, Owner, TakenOver, owned
from benchmarks.runs.plan import Plan
from benchmarks.runs.record import Recorder
from benchmarks.runs.stop import Stop
from benchmarks.runs.trackers import load_trackers
from results.errors import UserError
from results.protocols import read_json
from results.renames import current_identity
from results.seal import check, seal
from results.store import read_table
from results.tablefile import replace_file, write_table

Arenas = Mapping[str, VectorEnv]  # split -> the environment that is evaluated on
IDLE_YIELDS = 10_000  # safe points in a row without an environment step: the agent will never use up its budget
TO_GO_ON = ("checkpoints", "scratch")  # only needed to resume


def run(
    planned: Plan,
    *,
    replace: bool = False,
    trackers: Sequence[str] = ("tensorboard",),
    say: Callable[[str], object] = print,
) -> Path:
    """Train an agent on a task, evaluate it, write its rows; return the run's folder.

    A finished run is left as it is. One that was stopped, in whatever way, resumes from its newest checkpoint and ends
    with the same rows as if it had never stopped; without a checkpoint it starts over. Raises UserError if another
    process owns the run, or, unless `replace`, if the folder holds a run with another configuration or protocol.
    Any other error is recorded in the run's table and raised again.
    """
    classes = load_trackers(trackers)  # before anything is cleared away
    if not replace and _is_finished(planned):
        if any((planned.folder / name).exists() for name in TO_GO_ON):  # it was killed while tidying up
            _tidy(planned.folder)
        say(f"{planned.run_id} is finished already: {planned.folder}")
        return planned.folder
    with owned(planned.folder, say) as owner:
        if not replace and _is_finished(planned):  # by the process that held the lock until now
            return planned.folder
        recorder = partial(Recorder, planned, trackers=classes, say=say)
        point = None if replace else newest_point(planned.folder, planned.identity, say)
        try:
            _make(planned, owner, recorder, point)
        except CannotResume as problem:
            say(f"{problem}; the run starts over")
            _make(planned, owner, recorder, None)
    return planned.folder


def _make(planned: Plan, owner: Owner, recorder: Callable[..., Recorder], point: Point | None) -> None:
    """Makes the run, from a checkpoint or from the beginning, to its end."""
    folder = planned.folder
    if point is None:
        _clear(folder)
        _write_json(folder / "protocol.json", planned.protocol)
        _write_json(folder / "config.json", planned.identity)
    write_table(folder / "tasks.csv", "tasks", [planned.facts])
    with recorder(state=point and point.harness["recorder"]) as record:
        if owner.previous:
            record.log(f"taken over from {owner.previous}")
        training = _Training(planned, owner, record)
        try:
            message = training.run(point)
        except TakenOver:
            raise  # without a word in files that are another's now
        except KeyboardInterrupt:
            then = "resumes it" if training.saved else "starts it again"
            record.status("interrupted", f"interrupted; the same command {then}")
            raise
        except BaseException as error:
            with contextlib.suppress(UserError):  # from a full disk: the first error is the one to show
                record.log(traceback.format_exc())
                record.status("failed", _words(error))
            raise
        record.status("finished", message)
    _tidy(folder)


def _words(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # a foreign class may fail to print itself; the row is written all the same
        return type(error).__name__


@contextlib.contextmanager
def _staying() -> Iterator[None]:
    """Turns sys.exit() in an agent, which would look like a command that is done, into an error."""
    try:
        yield
    except SystemExit as error:
        raise ContractError(f"the agent or its environment called sys.exit({error.code!r}); it must not") from error


def _tidy(folder: Path) -> None:
    """Seals the files of a finished run and deletes what only resuming needs."""
    seal(folder, ["runs.csv", "curves.csv", "episodes.csv", "tasks.csv", "config.json", "protocol.json"])
    for name in TO_GO_ON:
        shutil.rmtree(folder / name, ignore_errors=True)


def discard(folder: Path) -> None:
    """Deletes what the folder of a run holds. Raises UserError if another process is writing it."""
    if folder.exists():
        with owned(folder):
            _clear(folder)


def _clear(folder: Path) -> None:
    """Deletes everything but the lock file, which is in use."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()


class _Training:
    """The loop: learn up to the next mark and evaluate; at the end, save and evaluate once more."""

    def __init__(self, planned: Plan, owner: Owner, record: Recorder) -> None:
        self._plan, self._owner, self._record = planned, owner, record
        self._returns: list[float] = []  # of the evaluations of the training split so far
        self._reached = 0  # marks passed, which number the evaluations; one safe point may pass several
        self._stop = Stop()
        self._wait_s = min(checkpoint.FIRST_S, checkpoint.CHECKPOINT_S)
        self._next_s = time.perf_counter() + self._wait_s
        self.saved = False  # whether there is a checkpoint to resume from

    def run(self, point: Point | None) -> str:
        """Returns why training ended before its budget was used up, or an empty string."""
        task, budget = self._plan.task, self._plan.budget
        scratch = self._plan.folder / "scratch"
        scratch.mkdir(exist_ok=True)
        root = child(self._plan.seed, task.id)
        with _staying(), contextlib.ExitStack() as stack:
            raw = stack.enter_context(contextlib.closing(task.build(budget.num_envs)))
            arenas = {split: stack.enter_context(contextlib.closing(task.build(SLOTS, split))) for split in task.splits}
            spec = self._plan.spec(raw, scratch)
            agent = make_agent(self._plan.base, spec)
            if not _resumes(agent):
                stack.callback(shutil.rmtree, scratch)
            if "torch" in sys.modules:  # some agent imported it; do not import it just for this line
                sys.modules["torch"].set_num_threads(self._plan.threads)
            self._record.describe(reports.description(agent))
            envs = HarnessEnv(raw, task, root, "train")
            if point is not None:
                self._resume(point, agent, envs)
            message = self._learn(agent, envs, child(root, "agent"), arenas, spec.settings)
            if getattr(agent, "learns", False) and not self._record.updates:
                raise UserError(
                    f"no update was made in {envs.env_steps} steps, so this is no result (horizon {task.horizon}, "
                    f"{envs.env_steps // envs.num_envs} steps in each slot); give more --steps or fewer --num-envs, "
                    "or settings with which learning begins sooner"
                )
            save_checkpoint(agent, self._plan.folder / "checkpoint")
            self._evaluate(agent, arenas, final=True, index=self._reached)
        return message

    def _resume(self, point: Point, agent: Agent, envs: HarnessEnv) -> None:
        """Raises CannotResume if the agent does, UserError if the agent cannot load what was saved."""
        self.saved = True
        self._returns, self._reached = point.harness["returns"], point.harness["reached"]
        try:
            change = agent.load(point.agent)
        except CannotResume:
            raise
        except Exception as error:
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            raise UserError(f"{point.agent} cannot be loaded ({what}); give --replace to start over") from error
        problem = envs.restore(point.environments)
        if change:
            self._record.note(f"at step {envs.env_steps} {change}")
        if problem:
            self._record.note(
                f"at step {envs.env_steps} the rollouts under way were restarted after a stop: "
                f"the environment does not replay ({problem})"
            )

    def _learn(
        self, agent: Agent, envs: HarnessEnv, seeds: np.random.SeedSequence, arenas: Arenas, settings: Given
    ) -> str:
        """Learn until the budget is used up, the task is solved, or the agent stops by itself."""
        points = agent.learn(envs, seeds)
        if not isinstance(points, Iterator):
            raise ContractError(f"learn() must return an iterator (write it with yield), not {type(points).__name__}")
        with contextlib.ExitStack() as stack:
            if isinstance(points, Generator):
                stack.callback(points.close)
            if _resumes(agent):
                stack.enter_context(self._stop.listening(self._record.tell))
            for progress in self._safe_points(points, envs):
                self._owner.check()
                if not self.saved:  # by its first safe point an agent has read what it ever will
                    settings.refuse_unread(self._plan.base)
                self._record.progress(progress, envs.env_steps, envs.ended(), envs.stream)
                if (reason := self._reason_to_end(agent, envs, arenas)) is not None:
                    return reason
                if _resumes(agent) and (progress.checkpoint or self._stop.asked or time.perf_counter() > self._next_s):
                    self._save(agent, envs)
                if self._stop.asked:
                    raise self._stop.asked
        return f"learn() ended by itself after {envs.env_steps} steps"

    def _reason_to_end(self, agent: Agent, envs: HarnessEnv, arenas: Arenas) -> str | None:
        """Evaluates if a mark has been passed. An empty reason means that the budget is used up."""
        budget = self._plan.budget
        marks = [budget.env_steps * k // budget.evaluations for k in range(1, budget.evaluations)]
        if envs.env_steps >= budget.env_steps:
            self._reached = len(marks)
            return ""
        passed = sum(envs.env_steps >= mark for mark in marks)
        if passed > self._reached:
            self._reached = passed
            self._evaluate(agent, arenas, final=False, index=passed - 1)
            if self._is_solved():
                return f"solved: two evaluations in a row returned {budget.stop_return:g} or more"
        return None

    def _save(self, agent: Agent, envs: HarnessEnv) -> None:
        started = time.perf_counter()
        harness = {
            "identity": self._plan.identity,
            "reached": self._reached,
            "returns": self._returns,
            "recorder": self._record.state(),
        }
        save_point(self._plan.folder, agent, harness, envs.state())
        self.saved = True
        ended = time.perf_counter()
        self._wait_s = min(2 * self._wait_s, checkpoint.CHECKPOINT_S)
        self._next_s = ended + max(self._wait_s, (ended - started) / checkpoint.SHARE)
        self._record.log(f"checkpoint at step {envs.env_steps}, {ended - started:.3f} s")

    def _safe_points(self, points: Iterator[Any], envs: HarnessEnv) -> Iterator[Progress]:
        """The agent's safe points, checked: at least one, each a Progress, and steps taken between them."""
        progress, idle, steps = None, 0, 0
        for progress in points:
            if not isinstance(progress, Progress):
                raise ContractError(f"learn() must yield Progress, it yielded {type(progress).__name__}")
            idle = 0 if envs.env_steps > steps else idle + 1
            steps = envs.env_steps
            if idle >= IDLE_YIELDS:
                raise ContractError(f"learn() yielded {idle} times without stepping its environments; end it instead")
            yield reports.plain(progress)
        if progress is None:
            raise ContractError(
                f"learn() ended after {envs.env_steps} steps without a yield; it must yield at least once"
            )

    def _is_solved(self) -> bool:
        stop, last = self._plan.budget.stop_return, self._returns[-2:]
        return stop is not None and len(last) == 2 and min(last) >= stop

    def _evaluate(self, agent: Agent, arenas: Arenas, *, final: bool, index: int) -> None:
        """Every split is evaluated and recorded; the training split alone decides when to stop."""
        task = self._plan.task
        rollouts = FINAL_ROLLOUTS if final else INTERMEDIATE_ROLLOUTS
        for split, arena in arenas.items():
            start = time.perf_counter()
            seeds = evaluation_seeds(task.id, "final" if final else index, split)
            episodes = evaluate(agent, task, seeds, rollouts, SLOTS, arena, run_seed=self._plan.seed)
            summary = summarise(episodes, task.success)
            self._record.evaluation(episodes, summary, split, index, final, time.perf_counter() - start)
            if split == task.training_split:
                self._returns.append(summary.return_mean)


def save_checkpoint(agent: Agent, folder: Path) -> None:
    """Saves the agent's files, sealed, and an empty file `done`; one rename moves all into place or nothing."""
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    agent.save(temporary)
    seal(temporary, [str(path.relative_to(temporary)) for path in temporary.rglob("*") if path.is_file()])
    (temporary / "done").touch()
    if folder.exists():
        shutil.rmtree(folder)
    os.replace(temporary, folder)


def _is_finished(planned: Plan) -> bool:
    """Whether the folder holds this very run, finished. Raises UserError if it holds another run."""
    config, table = planned.folder / "config.json", planned.folder / "runs.csv"
    if not config.exists() and not table.exists():
        return False
    if changed := differences(current_identity(read_json(check(config))), planned.identity):
        raise UserError(f"{planned.folder} holds a run with another {changed}; give --replace to start over")
    rows = read_table(check(table), "runs") if table.exists() else []
    return bool(rows) and rows[-1].status == "finished"


def _resumes(agent: Agent) -> bool:
    return bool(getattr(agent, "resumes", False))


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, f"{json.dumps(content, indent=2)}\n".encode())
