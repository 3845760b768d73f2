"""The audit of the random streams: it hears what a run uses, and a stream that is used twice is found."""

import pytest
from click.testing import CliRunner

from reproduce.cli import cli
from reproduce.commands import doctor

TASK = "long_term_memory/tmaze/passive-10"

TWINS = """
import numpy as np
from amago_core.seeding import child
from benchmarks.agents.random import Random

class Twins(Random):
    def learn(self, envs, seeds):
        first, second = (np.random.default_rng(child(seeds, "noise")) for _ in range(2))
        assert first.random() == second.random()
        yield from super().learn(envs, seeds)
"""


def audit(monkeypatch, tmp_path, agent):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(doctor, "AUDITED", (TASK, agent))
    return CliRunner().invoke(cli, ["doctor", "--seeds"])


def test_every_stream_is_printed_and_no_two_are_equal(monkeypatch, tmp_path):
    result = audit(monkeypatch, tmp_path, "random")
    assert result.exit_code == 0
    *lines, summary = result.output.splitlines()
    streams = dict(line.split(maxsplit=1)[::-1] for line in lines)
    assert summary == f"{len(lines)} streams, 0 equal to another"
    assert len(streams) == len(set(streams.values())) == len(lines)
    assert f"seed 0 / {TASK} / evaluate / final / policy / 0" in streams
    assert {f"seed 0 / {TASK} / evaluate / final / evaluate / {slot} / 0" for slot in range(20)} <= streams.keys()
    assert {"analysis / bootstrap", "analysis / permutation_test"} <= streams.keys()


def test_a_stream_that_two_generators_use_is_found(monkeypatch, tmp_path):
    (tmp_path / "twin_agents.py").write_text(TWINS)
    result = audit(monkeypatch, tmp_path, "twin_agents:Twins")
    assert result.exit_code == 1
    (marked,) = (line for line in result.output.splitlines() if line.startswith("!"))
    name = f"seed 0 / {TASK} / agent / noise"
    assert marked.endswith(f"  {name}  <- equal to {name}")
    assert result.output.splitlines()[-1].endswith(" streams, 1 equal to another")


@pytest.mark.slow
def test_the_streams_of_amago(monkeypatch, tmp_path):
    result = audit(monkeypatch, tmp_path, "amago")
    assert result.exit_code == 0
    for name in ("agent / weights", "agent / learning", f"{TASK} / agent / collect / actions",
                 f"{TASK} / agent / collect / exploration", f"{TASK} / agent / replay", f"{TASK} / train / 0 / 0",
                 f"{TASK} / evaluate / 0 / policy / 0", f"{TASK} / evaluate / final / policy / 0"):  # fmt: skip
        assert f"  seed 0 / {name}\n" in result.output
