"""One run to be made, and the one function that makes it: for `run`, for `sweep`, from Python, and on a cluster."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.agents import agent_id, parse_agent
from benchmarks.runs.budget import canonical_settings
from benchmarks.runs.stop import CALL_AGAIN, Stopped, stop_at_signals
from benchmarks.variables import refuse_unknown
from results.errors import UserError
from results.schema import run_id
from results.store import run_folder

if TYPE_CHECKING:
    from benchmarks.task import Task

GRACE_S = 10.0  # for a run that is asked to stop: to write a checkpoint and its last row before it is killed


@dataclass(frozen=True)
class Job:
    """A run to be made. It can be hashed, and survives JSON: that is how it gets to a process on another machine.

    `agent` is a full id, settings (and with them the device) included: `amago`, `amago@device=cuda,lr=3e-4`,
    `my_module:MyAgent`. Task, agent, tier, seed and threads decide the numbers and are the run's identity; `trackers`
    only watch. `replace` discards what the run's folder holds; otherwise a stopped run is resumed. Settings are
    named by their values: `lr=0.0003` is `lr=3e-4`. Raises UserError for settings that are not of the form key=value.
    """

    task: str
    agent: str
    tier: str = "smoke"
    seed: int = 0
    threads: int = 1
    trackers: tuple[str, ...] = ("tensorboard",)
    replace: bool = False

    def __post_init__(self) -> None:
        base, settings = parse_agent(self.agent)
        object.__setattr__(self, "agent", agent_id(base, canonical_settings(base, settings)))  # one agent, one name

    @property
    def run_id(self) -> str:
        return run_id(self.tier, self.task, self.agent, self.seed)

    def folder(self, root: Path) -> Path:
        """The run's folder in the results folder `root`."""
        return run_folder(root, self.tier, self.task, self.agent, self.seed)

    def log(self, root: Path) -> Path:
        """For what the run's process prints."""
        return self.folder(root).with_suffix(".log")

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        fields = json.loads(text)
        return cls(**fields | {"trackers": tuple(fields["trackers"])})


def make(job: Job, root: Path, say: Callable[[str], object] = print, task: Task | None = None) -> Path:
    """Make the run in this process, from its newest checkpoint if it has one; return its folder.

    `task` is the job's task itself, for one that no catalog knows. Raises what `benchmarks.runs.plan.plan` and
    `benchmarks.runs.run.run` raise.
    """
    from benchmarks.places.heap import keep_freed_memory
    from benchmarks.runs.plan import plan
    from benchmarks.runs.run import run

    refuse_unknown()
    keep_freed_memory()
    root = root.absolute()  # an agent may change the current folder
    planned = plan(task or job.task, job.agent, job.tier, job.seed, root=root, threads=job.threads)
    return run(planned, replace=job.replace, trackers=job.trackers, say=say)


def command(job: Job, root: Path) -> list[str]:
    """The command line that makes the run in a process of its own, with `benchmarks.places.cores.process_environment`.

    Exits with 0 if the run is finished. On SIGINT, SIGTERM, SIGHUP and SIGUSR1 it saves a checkpoint first, and exits
    with 75 on the last three. -P, because the user's folder may hold a `benchmarks` that is not ours.
    """
    return [sys.executable, "-P", "-m", "benchmarks.runs.job", job.to_json(), str(root)]


# --- in a process of its own -----------------------------------------------------------------------------------------


def end_with(lifeline: int) -> None:
    """Stop this process once the pipe `lifeline` (a file descriptor) is closed at its other end.

    Interrupts the process, and kills its group if that does not help within `GRACE_S`.
    """

    def watch() -> None:
        while os.read(lifeline, 1):
            pass
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(GRACE_S)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def main(record: str, root: str, lifeline: str = "") -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background jobs
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # from Slurm, for the process above (places/slurm.py)
    stop_at_signals()
    if lifeline:
        end_with(int(lifeline))
    try:
        make(Job.from_json(record), Path(root))
    except Stopped as error:
        print(f"stopped by {error}; the same command resumes it")
        sys.exit(CALL_AGAIN)
    except UserError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
