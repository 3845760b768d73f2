"""Modules of a user who stands in a folder of his own."""

import os
import sys


def look_here() -> None:
    """Let the present folder's modules be imported, as `python -m` would: an installed command does not look there."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
