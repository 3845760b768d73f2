"""Whether Python finds our packages under their names, or something of the user's that has the same name.

Imports nothing of ours, because that is what may be shadowed.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

HOME = Path(__file__).resolve().parents[1]
PACKAGES = ("amago_bench", "amago_core", "analysis", "benchmarks", "reproduce", "results")


def shadowed() -> str:
    """One line about the first of our packages whose name something else has taken; empty if there is none."""
    for name in PACKAGES:
        spec = sys.modules[name].__spec__ if name in sys.modules else find_spec(name)
        places = [str(place) for place in spec.submodule_search_locations or [spec.origin or name]] if spec else []
        if places and str(HOME / name) not in map(os.path.realpath, places):
            return (
                f"Python finds {places[0]} under the name {name!r}, which a package of AMAGO Bench has (in {HOME}); "
                "rename it, or run from another folder"
            )
    return ""
