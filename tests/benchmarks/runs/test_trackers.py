"""Trackers watch; none of them costs a run."""

import sys
import types

import pytest

from benchmarks.runs.trackers import Tracked, Trackers, WandB, load_trackers
from results.errors import UserError


class Own:
    """A tracker that writes down what it gets, and raises at the calls named in `fails`."""

    fails = ()
    error = OSError

    def __init__(self, run):
        self.heard = Own.heard = [run]
        self.maybe("init")

    def scalars(self, values, env_steps):
        self.heard.append((values, env_steps))
        self.maybe("scalars")

    def close(self):
        self.heard.append("closed")
        self.maybe("close")

    def maybe(self, call):
        if call in self.fails:
            raise self.error(f"{call}\nfailed")


@pytest.fixture
def own(monkeypatch):
    monkeypatch.setitem(sys.modules, "my_trackers", types.SimpleNamespace(Own=Own))
    return "my_trackers:Own"


def test_a_class_of_ones_own_gets_what_the_others_get(own, tmp_path):
    said, run = [], Tracked("id", {"a": 1}, tmp_path, "now", resumed_at=7)
    trackers = Trackers(load_trackers([own, "tensorboard"]), run, said.append)
    trackers.scalars({"train/loss": 0.5}, 10)
    trackers.close()
    assert Own.heard == [run, ({"train/loss": 0.5}, 10), "closed"]
    assert list((tmp_path / "tensorboard").iterdir())
    assert said == []


@pytest.mark.parametrize("error", [OSError, SystemExit])
@pytest.mark.parametrize(
    ("fails", "heard"),
    [("init", 1), ("scalars", 2), ("close", 4)],
)
def test_one_that_fails_is_left_out_with_one_line(own, tmp_path, monkeypatch, fails, heard, error):
    monkeypatch.setattr(Own, "fails", (fails,))
    monkeypatch.setattr(Own, "error", error)
    said = []
    trackers = Trackers(load_trackers([own]), Tracked("id", {}, tmp_path, "now"), said.append)
    trackers.scalars({"x": 1.0}, 1)
    trackers.scalars({"x": 1.0}, 2)
    trackers.close()
    assert said == [f"tracker {own} failed and is left out from now on ({error.__name__}: {fails} failed)"]
    assert len(Own.heard) == heard


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("tensorbord", "unknown tracker 'tensorbord'; known: tensorboard, wandb, or module:Class"),
        ("my_trackers:Missing", "module my_trackers has no 'Missing'"),
        ("no_such_module:T", "tracker 'no_such_module:T': ModuleNotFoundError"),
    ],
)
def test_one_that_does_not_exist_is_a_users_error(own, name, says):
    with pytest.raises(UserError, match=says):
        load_trackers([name])


def test_one_id_of_weights_and_biases_is_one_run_however_often_it_is_resumed(monkeypatch, tmp_path):
    asked = []
    fake = types.SimpleNamespace(init=lambda **options: asked.append((options["id"], options["resume"])))
    monkeypatch.setitem(sys.modules, "wandb", fake)
    runs = [("a/b:0", "1", None), ("a/b:0", "1", 7), ("a/b:0", "2", None), ("c", "1", None)]
    for run_id, started, resumed_at in runs:
        WandB(Tracked(run_id, {}, tmp_path, started, resumed_at))
    (first, how), again, replaced, other = asked
    assert (how, again) == ("allow", (first, "allow"))
    assert len({first, replaced[0], other[0]}) == 3
    assert all(id.isalnum() and len(id) <= 64 for id, _ in asked)
