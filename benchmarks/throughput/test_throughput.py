"""Timed by pytest-benchmark; `amago-bench bench` runs this file and prints the figures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.places.cores import fast_dtype
from benchmarks.places.heap import keep_freed_memory
from benchmarks.throughput import cases, share

#: Name -> (what is timed, given the dtype; dtypes that it is timed in).
LEARNING = {
    "update-small": lambda dtype: cases.update(cases.SMALL, cases.CORRIDOR + 1, dtype),
    "update-wide": lambda dtype: cases.update(cases.WIDE, 500, dtype),
}
ACTING = {
    "acting-12": lambda: cases.acting(12),
    "acting-64": lambda: cases.acting(64),
    "evaluation": cases.evaluating,
    "replay-sample": lambda: cases.sampling(cases.CORRIDOR + 1),
}
STARTING = {"list": ("list",), "table": ("table", "--tier", "laptop"), "help": ("--help",)}


@pytest.fixture(scope="module", autouse=True)
def heap() -> None:
    keep_freed_memory()  # as `amago-bench run` does


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def timed(benchmark: BenchmarkFixture, work: cases.Work, name: str, threads: int, dtype: str, rounds: int) -> None:
    work.call()  # caches, lazy initialisation
    yardstick = cases.matmul(dtype)
    benchmark.pedantic(work.call, rounds=rounds, warmup_rounds=1)
    assert benchmark.stats is not None, "the benchmarks are switched off"
    seconds = benchmark.stats.stats.median
    products = cases.best_of(yardstick.call)
    benchmark.extra_info |= {
        "name": name,
        "threads": threads,
        "dtype": dtype,
        "products": seconds / products,
        "steps_per_s": work.steps / seconds,
        "gflops": work.flops / seconds / 1e9,
        "product_gflops": yardstick.flops / products / 1e9,
    }


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", LEARNING)
def test_learning(benchmark: BenchmarkFixture, name: str, threads: int, dtype: str) -> None:
    timed(benchmark, LEARNING[name](dtype), name, threads, dtype, rounds=10 if name == "update-small" else 3)


@pytest.mark.parametrize("name", ACTING)
def test_acting(benchmark: BenchmarkFixture, name: str, threads: int) -> None:
    timed(benchmark, ACTING[name](), name, threads, "float32", rounds=5)


@pytest.mark.parametrize("threads", [2], indirect=True)
def test_acting_on_popgym(benchmark: BenchmarkFixture, threads: int) -> None:
    pytest.importorskip("popgym")
    rates = benchmark.pedantic(cases.popgym_rates, args=(64,), rounds=1)
    yardstick = cases.matmul("float32")
    benchmark.extra_info |= {"name": "acting-64, POPGym", "threads": threads, "dtype": "float32"}
    benchmark.extra_info |= {"rates": rates, "product_gflops": yardstick.flops / cases.best_of(yardstick.call) / 1e9}


@pytest.mark.parametrize("name", STARTING)
def test_start_up(benchmark: BenchmarkFixture, name: str) -> None:
    timed(benchmark, cases.start_up(STARTING[name]), f"start-up-{name}", 1, "float32", rounds=5)


def test_harness_share(benchmark: BenchmarkFixture) -> None:
    seconds = benchmark.pedantic(share.timed_run, rounds=1)
    part = seconds["harness"] / sum(seconds.values())
    benchmark.extra_info |= {"name": "harness share of a run", "threads": 1, "dtype": fast_dtype(), "share": part}
