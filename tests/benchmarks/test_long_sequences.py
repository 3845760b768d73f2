"""One sequence of 10,000 tokens: memory grows with the length and not with its square."""

import subprocess
import sys

import pytest

UPDATE = """
import resource, sys
import numpy as np, torch
from benchmarks.throughput import cases
torch.set_num_threads(1)
tokens = int(sys.argv[1])
config = cases.SMALL.replace({"width": 128, "encoder_width": 128, "batch_sequences": 1})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
cases.update(config, tokens, "float32").call()
print(before / 2**20, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


def update_gib(tokens: int) -> tuple[float, float]:
    """Peak memory of a process before and after an update from one rollout."""
    done = subprocess.run([sys.executable, "-c", UPDATE, str(tokens)], capture_output=True, text=True, check=True)
    before, after = map(float, done.stdout.split())
    return before, after


@pytest.mark.slow
def test_memory_of_a_long_sequence_is_linear() -> None:
    (before, half), (_, whole) = update_gib(5_000), update_gib(10_000)
    print(f"peak memory: {half:.2f} GiB at 5,000 tokens, {whole:.2f} GiB at 10,000, {before:.2f} GiB before")
    assert whole <= 8
    assert (whole - before) / (half - before) < 2.5  # 4 if the scores of all pairs were kept
