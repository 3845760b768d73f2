"""The environment variables that this project reads, in one place, so that a misspelt one is found."""

from __future__ import annotations

import os
from collections.abc import Mapping

from amago_core.names import did_you_mean
from results.errors import UserError

PREFIX = "AMAGO_BENCH_"
RESULTS = "AMAGO_BENCH_RESULTS"  # the folder of the user's results; results/store.py, which imports nothing, reads it
DEBUG = "AMAGO_BENCH_DEBUG"  # anything: an error of the user shows its traceback too
WORKERS = "AMAGO_BENCH_WORKERS"  # worker processes per vector environment; 0: they run in the run's own process
TIMEOUT = "AMAGO_BENCH_ENV_TIMEOUT"  # seconds for one reset or step of one slot
KNOWN = (RESULTS, DEBUG, WORKERS, TIMEOUT)


def refuse_unknown(environment: Mapping[str, str] = os.environ) -> None:
    """Raises UserError for a variable with our prefix that nothing reads, with the nearest of those that are read."""
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in KNOWN:
            hint = did_you_mean(name, KNOWN, f"known: {', '.join(KNOWN)}")
            raise UserError(f"nothing reads the environment variable {name}; correct or unset it ({hint})")
