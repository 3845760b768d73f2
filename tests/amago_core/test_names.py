"""What whoever misspells a name is told."""

import pytest

from amago_core.names import did_you_mean

TASKS = ("games/chess/small", "games/chess/large", "games/go/small", "puzzles/maze")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("puzles/maze", "did you mean puzzles/maze?"),
        ("mase", "did you mean puzzles/maze?"),  # far from the whole id, near to its last part
        ("small", "did you mean games/chess/small or games/go/small?"),
        ("games/chess/smal", "did you mean games/chess/small or games/chess/large or games/go/small?"),
        ("checkers", "see the list"),
    ],
)
def test_the_nearest_names_first_and_at_most_three(name: str, hint: str) -> None:
    assert did_you_mean(name, TASKS, "see the list") == hint


def test_nothing_is_near() -> None:
    assert did_you_mean("lr", ()) == ""
