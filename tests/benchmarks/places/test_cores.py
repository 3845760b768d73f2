import os

import pytest

from benchmarks.places.cores import available_cores, fast_dtype


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine of 8 cores whose control groups the test writes."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/job/step\n")
    (tmp_path / "sys/fs/cgroup/job/step").mkdir(parents=True)
    return tmp_path


def test_affinity_counts_where_nothing_else_limits(machine):
    assert available_cores(machine, {}) == 8


@pytest.mark.parametrize(("quota", "cores"), [("max 100000", 8), ("250000 100000", 3), ("50000 100000", 1)])
def test_quota_of_the_group_above_counts_too_and_is_rounded_up(machine, quota, cores):
    (machine / "sys/fs/cgroup/job/cpu.max").write_text(quota + "\n")
    assert available_cores(machine, {}) == cores


def test_slurm_counts(machine):
    assert available_cores(machine, {"SLURM_CPUS_PER_TASK": "4"}) == 4
    assert available_cores(machine, {"SLURM_CPUS_PER_TASK": "64"}) == 8
    assert available_cores(machine, {"SLURM_CPUS_ON_NODE": "3"}) == 3  # of a job that asks for no number a task


@pytest.mark.parametrize(
    ("flags", "dtype"),
    [("fma avx512f avx512_bf16", "bfloat16"), ("avx2 amx_bf16 amx_tile", "bfloat16"), ("fma avx2 avx512f", "float32")],
)
def test_learning_is_in_bfloat16_where_the_processor_multiplies_in_it(machine, flags, dtype):
    (machine / "proc/cpuinfo").write_text(f"processor\t: 0\nflags\t\t: fpu {flags}\n")
    assert fast_dtype(machine) == dtype


def test_elsewhere_learning_is_in_float32(machine):
    assert fast_dtype(machine) == "float32"
