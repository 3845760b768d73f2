"""Help for whoever misspells a name."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches


def did_you_mean(name: str, known: Collection[str], otherwise: str = "") -> str:
    """`did you mean a or b?` with at most three of the known names, the nearest first; `otherwise` if none is near.

    Ids with slashes share long beginnings, so one that lacks its beginning looks far off: last parts are compared too.
    """
    near = get_close_matches(name, known, n=3)
    for last in get_close_matches(_last(name), {_last(each) for each in known}, n=3):
        near += [each for each in known if _last(each) == last]
    return f"did you mean {' or '.join(list(dict.fromkeys(near))[:3])}?" if near else otherwise


def _last(name: str) -> str:
    return name.rpartition("/")[2]
