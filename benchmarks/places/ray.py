"""A Ray cluster: each run is a task, made in a process of its own on the node where Ray puts it.

A task whose node is lost is started again on another one and resumes from the run's checkpoint in the results folder,
which all nodes share. Tasks end with the process that submitted them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.places.cores import available_cores, process_environment
from benchmarks.places.executor import Outcome, Phase, outcome, restartable
from benchmarks.places.local import Alone
from benchmarks.runs.job import GRACE_S, Job
from results.errors import UserError

STARTS = 100  # of a task whose node or worker is lost, before it counts as failed


class Ray:
    """An executor (see `executor.py`).

    Args:
        address: of a cluster, as `ray.init` takes it: auto, HOST:PORT, ray://HOST:PORT; None: start one here.
        cpus: per run; None: as many as its threads.
        gpus: per run; a share of one, such as 0.25, puts several runs on one GPU.

    Raises UserError if ray is missing.
    """

    workers = None
    cancel_command = None
    poll_s = 1.0

    def __init__(self, address: str | None = None, cpus: int | None = None, gpus: float = 0) -> None:
        self._address, self._cpus, self._gpus = address, cpus, gpus
        self._futures: dict[Job, Any] = {}
        self._ended: set[Job] = set()
        try:
            import ray
        except ImportError as error:
            raise UserError("--on ray needs ray: pip install 'amago-bench[ray]'") from error
        self._ray = ray

    def submit(self, jobs: Sequence[Job], root: Path) -> None:
        """Raises UserError if no cluster answers at the address."""
        self._root = root.absolute()
        own = {"num_cpus": available_cores(), "include_dashboard": False} if self._address is None else {}
        variables = {name: value for name, value in process_environment().items() if name == "PYTHONPATH"}
        try:
            self._ray.init(
                address=self._address or "local",
                runtime_env={"env_vars": variables},
                log_to_driver=False,
                logging_level="ERROR",
                **own,
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            what = str(error).splitlines()[0]
            raise UserError(f"no Ray cluster to be used at {self._address or 'this machine'}: {what}") from error
        for job in jobs:
            job.log(self._root).unlink(missing_ok=True)  # it is there again once the run has begun
            task = self._ray.remote(start).options(
                num_cpus=self._cpus or job.threads, num_gpus=self._gpus, max_retries=STARTS
            )
            self._futures[job] = task.remote(restartable(job, self._root), str(self._root), os.getcwd())

    def poll(self) -> Mapping[Job, Phase]:
        jobs = {future: job for job, future in self._futures.items() if job not in self._ended}
        ready, _ = self._ray.wait(list(jobs), num_returns=len(jobs), timeout=0) if jobs else ([], [])
        self._ended |= {jobs[future] for future in ready}
        return {job: self._phase(job) for job in self._futures}

    def _phase(self, job: Job) -> Phase:
        if job in self._ended:
            return "ended"
        return "running" if job.log(self._root).exists() else "queued"

    def collect(self, job: Job) -> Outcome:
        try:
            how: Outcome = self._ray.get(self._futures[job])
        except self._ray.exceptions.RayError as error:
            how = outcome(job, self._root)
            if how.status == "lost":
                how = how._replace(message=str(error).strip().splitlines()[-1])
        return how

    def cancel(self) -> None:
        left = [future for job, future in self._futures.items() if job not in self._ended]
        for future in left:
            self._ray.cancel(future)  # raises KeyboardInterrupt in a running task
        if left:
            self._ray.wait(left, num_returns=len(left), timeout=GRACE_S + 5)
        self._ray.shutdown()


def start(record: str, root: str, folder: str) -> Outcome:
    """One start of a task, in a worker of Ray; how the run ended. `folder`: where the user's own modules are."""
    with contextlib.suppress(OSError):  # it may exist on the user's machine alone
        os.chdir(folder)
    return Alone().make(Job.from_json(record), Path(root))
