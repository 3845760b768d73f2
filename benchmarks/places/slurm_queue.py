"""Slurm's queue, and which of its jobs make runs of a results folder."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.places.executor import Phase
from benchmarks.runs.job import Job
from results.errors import UserError
from results.tablefile import replace_file

FOLDER = Path("runs", ".slurm")  # in the results folder; an array of jobs has a file there, from id to record
NAME = "amago-bench"  # of our jobs


class Entry(NamedTuple):
    """A run in Slurm's queue."""

    id: str  # of Slurm, such as 12_3: the third of the array 12
    job: Job
    phase: Phase


def remember(root: Path, ids: Mapping[Job, str]) -> None:
    """Writes down the jobs of an array, for `submitted`."""
    array = min(ids.values()).partition("_")[0]
    records = {id: job.to_json() for job, id in ids.items()}
    replace_file(root / FOLDER / f"{array}.json", json.dumps(records, indent=1).encode())


def submitted(root: Path) -> dict[str, Entry]:
    """The runs of this results folder that are in Slurm's queue, by run id.

    Raises UserError if there have been jobs and Slurm does not answer.
    """
    arrays = [json.loads(path.read_bytes()) for path in (root / FOLDER).glob("*.json")]
    queue = queued() if arrays else {}
    found = [Entry(id, Job.from_json(job), queue[id]) for array in arrays for id, job in array.items() if id in queue]
    return {entry.job.run_id: entry for entry in found}


def queued() -> dict[str, Phase]:
    """Everybody's jobs of this name that have not ended, by id. Raises UserError if Slurm does not answer."""
    return dict(_read(ask("squeue", "-h", "-r", "-n", NAME, "-o", "%i %T").splitlines()))


def _read(lines: Sequence[str]) -> Iterator[tuple[str, Phase]]:
    """Of a job that starts or ends, and of one that is suspended, it is said that it runs."""
    for line in lines:
        id, state = line.split()
        yield id, "queued" if state in ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT") else "running"


def ask(*command: str) -> str:
    """What a command of Slurm prints. Raises UserError if there is no Slurm here or it does not answer."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError as error:
        raise UserError(
            f"there is no Slurm here: the command {command[0]} is missing; log in to the cluster"
        ) from error
    except subprocess.CalledProcessError as error:
        raise UserError(f"{command[0]}: {' '.join(error.stderr.split())}") from error
