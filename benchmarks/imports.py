"""Importing the user's modules from the current folder."""

import os
import sys


def look_here() -> None:
    """Make the current folder importable, as `python -m` does; an installed command does not look there."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
