"""Who owns a run, with and without locks in the file system, and when an owner counts as dead."""

import errno
import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace

import pytest

from benchmarks.runs import owner
from benchmarks.runs.owner import BEAT_S, LOCK, MISSED, Holder, TakenOver, is_owned, owned
from results.errors import UserError


def here(process=None, **changes):
    return replace(Holder(owner.platform.node(), owner._space(), process or os.getpid(), "1"), **changes)


@pytest.fixture
def dead():
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.fixture
def left(tmp_path):
    """`left(holder, silent_s)`: the lock file that an owner left, and its age by the clock of the file system."""

    def write(holder, silent_s):
        path = tmp_path / LOCK
        path.write_text(json.dumps(asdict(holder)))
        then = time.time() - silent_s
        os.utime(path, (then, then))
        return tmp_path

    return write


@pytest.fixture(params=["locks", "no locks"])
def locks(request, monkeypatch):
    """File systems that have flock, and some that have not."""
    if request.param == "no locks":

        def none(file, how):
            raise OSError(errno.ENOLCK, "no locks")

        monkeypatch.setattr(fcntl, "flock", none)
        monkeypatch.setattr(owner, "SETTLE_S", 0.0)
    return request.param


def test_an_owner_says_who_it_is_and_leaves_nothing(locks, tmp_path):
    run = tmp_path / "run"
    with owned(run) as mine:
        assert mine.previous == ""
        assert json.loads((run / LOCK).read_bytes())["process"] == os.getpid()
        assert is_owned(run)
        with (
            pytest.raises(UserError, match=rf"is being written by process {os.getpid()} on .*; wait for it or stop it"),
            owned(run),
        ):
            pass
    assert list(run.iterdir()) == []
    assert not is_owned(run)


def test_one_whose_process_is_gone_is_taken_over_at_once(locks, left, dead):
    run = left(here(dead), silent_s=0)
    assert not is_owned(run)
    with owned(run) as mine:
        assert mine.previous.startswith(f"process {dead} on ")
        assert json.loads((run / LOCK).read_bytes())["process"] == os.getpid()


def test_one_of_another_machine_is_taken_over_when_it_missed_its_beats(locks, left, monkeypatch):
    monkeypatch.setattr(owner, "SETTLE_S", 0.0)
    elsewhere = here(host="elsewhere")
    run = left(elsewhere, silent_s=BEAT_S * (MISSED + 1))
    assert not is_owned(run)
    with owned(run) as mine:
        assert mine.previous == f"process {os.getpid()} on elsewhere, silent for {BEAT_S * (MISSED + 1):.0f} s"
    assert is_owned(left(elsewhere, silent_s=BEAT_S))


def test_a_container_on_the_same_machine_is_another_machine(left):
    """Its processes cannot be seen from here."""
    assert is_owned(left(here(2**22 + 1, space="another"), silent_s=0))  # a number that no process has


def test_a_process_with_the_number_of_a_dead_owner_is_not_the_owner(locks, left):
    """As in containers, where a run often is process 1."""
    with owned(left(here(), silent_s=BEAT_S * (MISSED + 1))) as mine:
        assert mine.previous.startswith(f"process {os.getpid()} on ")


def test_one_of_another_machine_that_may_live_is_watched(locks, left, monkeypatch):
    """It gives a beat: refused. It gives none: taken over."""
    monkeypatch.setattr(owner, "BEAT_S", 0.05)
    monkeypatch.setattr(owner, "MISSED", 10**6)
    monkeypatch.setattr(owner, "SETTLE_S", 0.0)
    run, said = left(here(host="elsewhere"), silent_s=1), []

    def beat(line):
        said.append(line)
        os.utime(run / LOCK)

    with pytest.raises(UserError, match=r"is being written by process \d+ on elsewhere"), owned(run, beat):
        pass
    assert said == [f"waiting to see whether process {os.getpid()} on elsewhere lives, which owns {run}"]
    monkeypatch.setattr(owner, "MISSED", 5)
    left(here(host="elsewhere"), silent_s=0)
    with owned(run, said.append) as mine:
        assert "elsewhere" in mine.previous


def test_the_lock_file_of_a_dead_node_may_stay_locked(left, monkeypatch):
    monkeypatch.setattr(owner, "SETTLE_S", 0.0)
    run = left(here(host="elsewhere"), silent_s=BEAT_S * (MISSED + 1))
    with open(run / LOCK, "r+b") as stuck:
        fcntl.flock(stuck, fcntl.LOCK_EX)
        with owned(run) as mine:
            assert "elsewhere" in mine.previous


def test_an_owner_beats_and_notices_that_it_was_taken_over(tmp_path, monkeypatch):
    monkeypatch.setattr(owner, "BEAT_S", 0.01)
    with owned(tmp_path) as mine:
        path = tmp_path / LOCK
        os.utime(path, (0, 0))
        wait_until(lambda: path.stat().st_mtime > 0)
        mine.check()
        other = tmp_path / "other"
        other.write_text(json.dumps(asdict(here(host="elsewhere"))))
        os.replace(other, path)
        wait_until(lambda: raises(mine.check))
        with pytest.raises(TakenOver, match=r"was taken over by process \d+ on elsewhere"):
            mine.check()
    assert json.loads(path.read_bytes())["host"] == "elsewhere"  # not ours to delete


@pytest.mark.parametrize("after", ["nobody", "a dead owner"])
def test_of_many_at_once_one_owns_the_run(after, left, dead, tmp_path):
    """Threads count as processes here: each has its own lock file."""
    if after != "nobody":
        left(here(dead), silent_s=0)
    won, refused, gate, end = [], [], threading.Barrier(8), threading.Event()

    def claim():
        gate.wait()
        try:
            with owned(tmp_path):
                won.append(1)
                end.wait()
        except UserError:
            refused.append(1)

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(won) + len(refused) == 8)
    end.set()
    for thread in threads:
        thread.join()
    assert (len(won), len(refused)) == (1, 7)


def test_a_lock_file_without_a_name_is_an_older_versions(tmp_path):
    (tmp_path / LOCK).write_text("process 12 on somewhere")
    with owned(tmp_path) as mine:
        assert mine.previous == ""


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "did not happen"
        time.sleep(0.01)


def raises(check):
    try:
        check()
    except UserError:
        return True
    return False
