"""What holds for all tests."""

import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No time limits: the first call of an example may compile, load or page in, and a loaded machine is no fault.
# Fixtures that are functions are safe here: the examples that use one build everything from scratch.
# The same examples everywhere and every time: what fails on one machine fails on all, and because of a change.
settings.register_profile(
    "any machine", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("any machine")

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would every process that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def without_reference(tmp_path_factory, monkeypatch):
    """No committed reference results beside those that the test writes; the published numbers stay."""
    committed = tmp_path_factory.mktemp("committed")
    (committed / "published").symlink_to(Path(__file__).resolve().parents[1] / "results/published")
    monkeypatch.setattr("results.store.COMMITTED", committed)
