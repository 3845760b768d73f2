"""Runs the benchmarks in a process of their own and prints them beside the official implementation's figures."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from results.errors import UserError

#: Official implementation, release 3.3, float32, two cores: (name, threads) -> figure and its unit. For POPGym it is
#: that of the fast families.
OFFICIAL = {
    ("update-small", 2): (180.0, "ms"),
    ("acting-12", 2): (5_100.0, "steps/s"),
    ("acting-64, POPGym", 2): (5_500.0, "steps/s"),
}
OFFICIAL_GFLOPS = 215.0  # of a float32 product on two threads of the machine that those figures are from
NONE_SELECTED = 5  # pytest's exit code
COLUMNS = ("benchmark", "threads", "dtype", "median", "rate", "in products", "official there", "times faster")
NOTE = (
    f"official there: release 3.3 in float32 on two cores of another machine, with {OFFICIAL_GFLOPS:.0f} GFLOP/s in "
    "float32 products. times faster: with both times in float32 products of their own machine; empty where none was "
    "timed here."
)


def run(pattern: str = "") -> list[dict[str, Any]]:
    """One record per benchmark: name, threads, dtype, median (seconds), products, steps_per_s, gflops, product_gflops.

    The harness's has `share` instead of the last four, POPGym's `rates` (steps per second by task).

    `pattern` is pytest's -k. Raises UserError if pytest-benchmark is not installed, none matches or one fails.
    """
    if find_spec("pytest_benchmark") is None:
        raise UserError("the benchmarks need pytest-benchmark: pip install 'amago-bench[bench]'")
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "benchmark.json"
        # -B, no cache and no settings: nothing is written beside the code, and no pytest.ini of the user's is found.
        command = [sys.executable, "-B", "-m", "pytest", str(Path(__file__).with_name("test_throughput.py")), "-q"]
        command += ["-c", os.devnull, "-p", "no:cacheprovider"]
        command += [f"--benchmark-json={output}", f"--benchmark-storage=file://{folder}"]
        command += ["-k", pattern] if pattern else []
        done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).resolve().parents[2])
        if done.returncode == NONE_SELECTED:
            raise UserError(f"no benchmark matches {pattern!r}")
        if done.returncode or not output.exists():
            last = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["no output"]
            raise UserError(f"the benchmarks did not run: {last[0]}")
        records = json.loads(output.read_bytes())["benchmarks"]
    return [record["extra_info"] | {"median": record["stats"]["median"]} for record in records]


def rows(records: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """The table's rows: what a reader compares, as text."""
    here = {r["threads"]: r["product_gflops"] for r in records if r["dtype"] == "float32" and "product_gflops" in r}
    table: list[tuple[str, ...]] = []
    for r in records:
        shown = faster = ""
        if official := OFFICIAL.get((r["name"], r["threads"])):
            figure, unit = official
            shown = f"{figure:,.0f} {unit}"
            if gflops := r["product_gflops"] if r["dtype"] == "float32" else here.get(r["threads"]):
                times = figure / (r["median"] * 1e3) if unit == "ms" else _steps_per_s(r) / figure
                faster = f"{times * OFFICIAL_GFLOPS / gflops:.1f}"
        median = f"{r['median'] * 1e3:.1f} ms"
        products = f"{r['products']:.1f}" if "products" in r else ""
        table.append((r["name"], str(r["threads"]), r["dtype"], median, _rate(r), products, shown, faster))
    return table


def _steps_per_s(record: dict[str, Any]) -> float:
    """The median if there are several tasks."""
    return statistics.median(record["rates"].values()) if "rates" in record else record["steps_per_s"]


def _rate(record: dict[str, Any]) -> str:
    if "rates" in record:
        rates = sorted(record["rates"].values())
        return f"{_steps_per_s(record):,.0f} steps/s, median of {len(rates)}; {rates[0]:,.0f} to {rates[-1]:,.0f}"
    if "share" in record:
        return f"{record['share']:.1%} of it"
    if record["gflops"]:
        return f"{record['gflops']:.0f} of {record['product_gflops']:.0f} GFLOP/s"
    return f"{record['steps_per_s']:,.0f} steps/s" if record["steps_per_s"] else ""
