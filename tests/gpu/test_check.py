"""The checks of a GPU, on a CPU: what they measure holds there too. And without a card they say so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.gpu import check

SMALL = check.cases.SMALL.replace({"batch_sequences": 2, "actor_critic_hidden": (16, 16), "width": 16, "heads": 2})
SIZE = check.Size("cpu", updates=8, speed=SMALL, tokens=20, timed=4)


@pytest.mark.parametrize("name", [c.__name__ for c in check.CHECKS if c is not check.flash_equals_reference])
def test_a_cpu_passes_the_checks_too(name):
    found = getattr(check, name)(SIZE)
    assert found


def test_a_cpu_resumes_bitwise():
    assert check.resumes_where_it_was(SIZE) == {"discrete": {"bitwise": True}, "continuous": {"bitwise": True}}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device: run tests/gpu/check.sh")
def test_without_a_card_nothing_is_checked_and_that_is_said(tmp_path):
    script = Path(check.__file__)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "check.json")],
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(script.parents[2])},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, "no CUDA device: nothing was checked\n")
    assert not (tmp_path / "check.json").exists()
