"""The top: the command, the scripts, the claims, one entry per figure."""

import sys

from reproduce.shadows import shadowed

if _line := shadowed():  # before anything here imports the wrong module, and fails in a way that nobody understands
    print(f"amago-bench: {_line}", file=sys.stderr)
    sys.exit(2)
