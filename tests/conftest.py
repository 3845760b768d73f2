"""What holds for all tests."""

import signal

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
