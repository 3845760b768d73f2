"""How many cores this process may use, which is often fewer than the machine has, and what they can do."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from results.store import in_checkout

#: Read by the thread pools of OpenMP, MKL and OpenBLAS when they load.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def available_cores(root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> int:
    """The cores granted by the scheduler's affinity, the container's quota and Slurm, whichever is least; at least 1.

    `root` holds proc/ and sys/; it is another folder only in tests.
    """
    granted = [len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1]
    granted += [math.ceil(quota) for quota in _quotas(root)]
    slurm = (environment.get(name, "") for name in ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE"))
    granted += [int(cores) for cores in slurm if cores.isdecimal()]
    return max(1, min(granted))


def fast_dtype(root: Path = Path("/")) -> str:
    """`bfloat16` where the processor multiplies in it (AVX-512 BF16 or AMX), else `float32`.

    Without these instructions bfloat16 is slower than float32, not faster. Only Linux says which there are.
    """
    flags = _text(root / "proc/cpuinfo").split()
    return "bfloat16" if "avx512_bf16" in flags or "amx_bf16" in flags else "float32"


def process_environment(threads: int = 1) -> dict[str, str]:
    """The variables of a child process of ours: its threads, and the same code of ours as here."""
    paths = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
    if not in_checkout():  # then the first are all installed packages: what the user put before them stays before them
        paths.reverse()
    path = os.pathsep.join(filter(None, paths))
    return os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads)) | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


def _quotas(root: Path) -> Iterator[float]:
    """CPU quotas of this process's control group and of the groups above it, in cores (cgroup v2)."""
    own = _text(root / "proc/self/cgroup").rpartition("0::/")[2].strip()
    mount = root / "sys/fs/cgroup"
    for folder in (mount / own, *(mount / own).parents):
        quota, _, period = _text(folder / "cpu.max").strip().partition(" ")
        if quota.isdecimal() and period.isdecimal() and int(period) > 0:
            yield int(quota) / int(period)
        if folder == mount:
            return


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # another kernel, or not ours to read
        return ""
