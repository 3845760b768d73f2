"""What schedulers and closing terminals send to a run."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from benchmarks.runs.stop import CALL_AGAIN, SIGNALS

RUN = [sys.executable, "-m", "reproduce.cli", "run", "--task", "long_term_memory/tmaze/passive-10", "--steps", "500000"]


def stopped_by(number: int, results, past: int) -> tuple[int, str, int]:
    """Exit code, output and last step of a run that gets the signal once it is `past` a step."""
    environment = {**os.environ, "AMAGO_BENCH_RESULTS": str(results)}
    process = subprocess.Popen(
        RUN, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )

    def steps() -> int:
        return next((json.loads(p.read_bytes())["env_steps"] for p in results.rglob("progress.json")), 0)

    try:
        deadline = time.monotonic() + 120
        while steps() <= past:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, output, steps()


def test_signals_stop_a_run_at_a_safe_point_and_the_same_command_goes_on(tmp_path):
    reached = 0
    for life, number in enumerate(SIGNALS):
        code, output, at = stopped_by(number, tmp_path, reached)
        assert code == CALL_AGAIN, output
        assert f"stopping at the next safe point ({number.name})" in output
        assert output.endswith("amago-bench: stopped; the same command resumes it\n")
        assert (f"resumes from step {reached} of 500000" in output) == (life > 0)
        assert at > reached
        reached = at


@pytest.mark.parametrize("ignored", [True, False])
def test_nohup_keeps_a_run_from_the_signal_of_a_closing_terminal(ignored):
    nothing = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN);" if ignored else "import signal;"
    ends = "from benchmarks.runs.stop import stop_at_signals; stop_at_signals(); signal.raise_signal(signal.SIGHUP)"
    done = subprocess.run([sys.executable, "-c", nothing + ends], capture_output=True, text=True)
    assert ("Stopped: SIGHUP" in done.stderr) is not ignored


def test_status_says_how_far_a_killed_run_was(tmp_path):
    code, _, at = stopped_by(signal.SIGKILL, tmp_path, 100)
    assert code == -signal.SIGKILL
    environment = {**os.environ, "AMAGO_BENCH_RESULTS": str(tmp_path)}
    status = [sys.executable, "-m", "reproduce.cli", "status", "--task", "long_term_memory/tmaze/passive-10"]
    shown = subprocess.run(status, env=environment, capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in shown.splitlines() if "500000" in line]
    assert line.split()[1:3] == ["lost", str(at)]
