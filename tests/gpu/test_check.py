"""The GPU checks themselves cannot run without a card; that they say so can."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

CHECK = Path(__file__).with_name("check.py")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device: run tests/gpu/check.sh")
def test_without_a_card_nothing_is_checked_and_that_is_said(tmp_path):
    root = str(CHECK.parents[2])
    done = subprocess.run(
        [sys.executable, str(CHECK), str(tmp_path / "check.json")],
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": root},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, "no CUDA device: nothing was checked\n")
    assert not (tmp_path / "check.json").exists()
