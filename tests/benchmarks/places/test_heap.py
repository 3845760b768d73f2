"""The heap keeps large blocks: using one again costs no page faults."""

import subprocess
import sys

import pytest

COUNT = """
import resource, sys
import torch
from benchmarks.places.heap import keep_freed_memory
if "keep" in sys.argv:
    keep_freed_memory()
def update():
    tensors = [torch.full((10_000_000,), 1.0) for _ in range(2)]  # 40 MB each: glibc alone never keeps such
for _ in range(3):
    update()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    update()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's settings")
def test_freed_memory_is_used_again_without_page_faults():
    faults = {
        keep: int(
            subprocess.run([sys.executable, "-c", COUNT, keep], check=True, capture_output=True, text=True).stdout
        )
        for keep in ("", "keep")
    }
    assert faults["keep"] < faults[""] / 3, faults  # the size of a page differs from machine to machine
