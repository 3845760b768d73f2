"""A Slurm cluster: runs are the tasks of job arrays, submitted through submitit.

A job that is preempted, loses its node or reaches its time limit is queued again and resumes from its checkpoint. What
submitit needs and writes is in `runs/.slurm/` of the results folder: nothing of it is a result, and only a job reads
the pickles there.
"""

from __future__ import annotations

import contextlib
import math
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.places.cores import process_environment
from benchmarks.places.executor import Outcome, Phase, outcome, restartable
from benchmarks.places.local import Alone
from benchmarks.places.slurm_queue import FOLDER, NAME, ask, queued, remember, submitted
from benchmarks.runs.job import Job
from results.errors import UserError

ARRAY = 1000  # runs in a job array; Slurm's own limit is 1001 unless a cluster sets another
STARTS = 100  # of a job that reaches its time limit, before it counts as failed
LEAST = timedelta(minutes=5)  # for a start, to get anywhere
WARNING_S = 60  # before its time limit a job is told to stop


class Slurm:
    """An executor (see `executor.py`) whose jobs go on when the sweep that submitted them ends.

    Args:
        workers: runs at once, of each thousand; None: as many as Slurm will start.
        partition: None: the cluster's default.
        time: limit of one start, as Slurm writes it: minutes, [DAYS-]HOURS:MINUTES:SECONDS.
        cpus: per run; None: as many as its threads.
        gpus: per run.
        memory: per run, such as 16G; None: the cluster's default.
        slurm: further options of sbatch, such as {"account": "lab"}.

    Raises UserError where submitit or Slurm is missing, or for a wrong time.
    """

    poll_s = 5.0

    def __init__(
        self,
        workers: int | None = None,
        partition: str | None = None,
        time: str = "24:00:00",
        cpus: int | None = None,
        gpus: float = 0,
        memory: str | None = None,
        slurm: Mapping[str, str] | None = None,
    ) -> None:
        if gpus != int(gpus):
            raise UserError(f"--gpus {gpus:g}: Slurm gives a run whole GPUs only")
        self.workers = workers
        self._minutes = minutes(time)
        self._cpus = cpus
        self._more = {"partition": partition, "mem": memory, "gpus_per_node": int(gpus) or None}
        self._slurm = dict(slurm or {})
        self._ids: dict[Job, str] = {}
        self._phases: dict[Job, Phase] = {}
        _submitit()

    def submit(self, jobs: Sequence[Job], root: Path) -> None:
        """Submits what is neither queued nor running since an earlier call; that is only followed."""
        self._root = root.absolute()
        known = submitted(self._root)
        self._ids = {job: known[job.run_id].id for job in jobs if job.run_id in known}
        todo = [job for job in jobs if job not in self._ids]
        for first in range(0, len(todo), ARRAY):
            self._submit_array(todo[first : first + ARRAY])
        self._phases = dict.fromkeys(jobs, "queued")

    def _submit_array(self, jobs: Sequence[Job]) -> None:
        submitit = _submitit()
        folder = self._root / FOLDER
        cpus = self._cpus or max(job.threads for job in jobs)
        settings = dict(
            job_name=NAME,
            time=self._minutes,
            signal_delay_s=WARNING_S,
            cpus_per_task=cpus,
            srun_args=[f"--cpus-per-task={cpus}"],  # srun does not take it from the job (Slurm 22.05 and later)
            setup=[f"export PYTHONPATH={shlex.quote(process_environment()['PYTHONPATH'])}"],
            array_parallelism=self.workers or ARRAY,
            additional_parameters={"requeue": True, **self._slurm},
            **{name: value for name, value in self._more.items() if value is not None},
        )
        starts = [restartable(job, self._root) for job in jobs]
        try:
            executor = submitit.SlurmExecutor(folder, STARTS, python=f"{shlex.quote(sys.executable)} -P")
            executor.update_parameters(**settings)
            made = executor.map_array(Start(self._root), starts)
        except RuntimeError as error:  # there is no Slurm, or what sbatch said
            raise UserError(f"Slurm did not take the jobs: {' '.join(str(error).split())}") from error
        ids = {job: each.job_id for job, each in zip(jobs, made, strict=True)}
        remember(self._root, ids)
        self._ids |= ids

    def poll(self) -> Mapping[Job, Phase]:
        """While Slurm does not answer, everything stands as before."""
        with contextlib.suppress(UserError):
            queue = queued()
            self._phases = {job: queue.get(id, "ended") for job, id in self._ids.items()}
        return self._phases

    def collect(self, job: Job) -> Outcome:
        how = outcome(job, self._root)
        if how.status == "lost" and (words := _last_line(job.log(self._root))):
            return Outcome("failed", words)
        return how

    def cancel(self) -> None:
        """Ends all of its jobs, queued and running."""
        if open_ids := [id for job, id in self._ids.items() if self._phases[job] != "ended"]:
            ask("scancel", *open_ids)

    @property
    def cancel_command(self) -> str:
        return shlex.join(["scancel", *sorted({id.partition("_")[0] for id in self._ids.values()}, key=int)])


def minutes(time: str) -> int:
    """Minutes, rounded up, of a time limit as Slurm writes it. Raises UserError if it is none, or below 5 minutes."""
    days, dash, clock = time.rpartition("-")
    numbers = clock.split(":")
    units = ("hours", "minutes", "seconds") if dash or len(numbers) == 3 else ("minutes", "seconds")
    if len(numbers) > len(units) or not all(number.isdecimal() for number in (days if dash else "0", *numbers)):
        raise UserError(f"--time {time} is no time limit; write minutes, HOURS:MINUTES:SECONDS or DAYS-HOURS:MINUTES")
    limit = timedelta(days=int(days or 0), **dict(zip(units, map(int, numbers), strict=False)))
    if limit < LEAST:
        raise UserError(f"--time {time} is too short: a start needs at least {LEAST.seconds // 60} minutes")
    return math.ceil(limit / timedelta(minutes=1))


def _submitit() -> Any:
    try:
        import submitit
    except ImportError as error:
        raise UserError("--on slurm needs submitit: pip install 'amago-bench[slurm]'") from error
    return submitit


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


# --- in the job ------------------------------------------------------------------------------------------------------


class Start:
    """One start of a job: makes the run in a process of its own, as on any machine.

    Slurm signals every process of a job. SIGTERM, before it takes the machine away, has the run save a checkpoint and
    stop; this process then waits for its end, because a job that ends by itself is not queued again. SIGUSR2, before
    the time limit, is for submitit alone, which calls `checkpoint` and queues the job again.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._alone = Alone()
        self._taken_away = False

    def __call__(self, record: str) -> None:
        def note(number: int, frame: object) -> None:
            self._taken_away = True

        signal.signal(signal.SIGTERM, note)
        job = Job.from_json(record)
        status, message = self._alone.make(job, self._root)
        while self._taken_away:
            signal.pause()
        if status != "finished":
            if _last_line(job.log(self._root)) != message:
                with job.log(self._root).open("a") as log:
                    log.write(f"{message}\n")  # for `collect`, far away
            raise RuntimeError(message)

    def checkpoint(self, record: str) -> Any:
        self._alone.stop()
        return _submitit().helpers.DelayedSubmission(Start(self._root), record)
