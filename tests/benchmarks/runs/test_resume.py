"""Runs that are stopped, killed or damaged, and end with the rows of a run that never was.

As a script it makes one run and kills it, see `kill_again_and_again`.
"""

import errno
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import batch_space

from amago_core import checkpoint as core
from amago_core.learner import Learner
from benchmarks.gate.harness_env import HarnessEnv
from benchmarks.gate.rollout_log import RolloutLog
from benchmarks.long_term_memory.tmaze.env import TMaze
from benchmarks.runs import checkpoint, record
from benchmarks.runs import run as run_module
from benchmarks.runs.plan import plan
from benchmarks.runs.run import run
from benchmarks.task import Budget, Task
from results.errors import UserError
from results.store import read_table

ROOT = Path(__file__).parents[3]
MAY_DIFFER = {"wall_s", "collect_s", "learn_s", "evaluate_s", "started", "peak_rss_mb", "commit", "dirty"}


class Drift(gymnasium.Env):
    """A point that drifts; the action should hold it at 0. Rollouts end by chance, so slots are never in step."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.x, self.t = self.np_random.normal(), 0
        return np.array([self.x, self.t], np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.x += float(action[0]) + 0.3 * self.np_random.normal()
        self.t += 1
        end = bool(self.np_random.random() < 0.1)
        return np.array([self.x, self.t], np.float32), -abs(self.x), end, False, {}


def drifts(slots: int) -> SyncVectorEnv:
    return SyncVectorEnv([Drift] * slots, autoreset_mode=AutoresetMode.DISABLED)


def make_task(kind: str, env_steps: int) -> Task:
    make, horizon = {"discrete": (partial(TMaze, corridor=6), 7), "continuous": (drifts, 20)}[kind]
    return Task(
        id=f"test/resume/{kind}", description="", make=make, horizon=horizon, random_return=0.0, high=1.0,
        high_source="", budgets={"smoke": Budget(env_steps, num_envs=3, evaluations=3, seeds=(0,))},
        instances=2 if kind == "discrete" else None, settings={"smoke": SETTINGS},
    )  # fmt: skip


SETTINGS = {
    "encoder_hidden": (8,), "encoder_width": 8, "width": 8, "actor_critic_hidden": (8,), "discounts": (0.9,),
    "dropout": 0.1, "warmup_updates": 20, "steps_per_iteration": 5, "updates_per_iteration": 3, "batch_sequences": 4,
    "batch_tokens": 40, "replay_tokens": 60, "replay_trajectories": 30,
}  # fmt: skip
SMALL = 180  # env steps: 12 iterations, 48 safe points


def make_run(
    root: Path, kind: str = "discrete", agent: str = "amago", env_steps: int = SMALL, seed: int = 0, **options: Any
) -> Path:
    planned = plan(make_task(kind, env_steps), agent, seed=seed, root=root)
    return run(planned, **({"say": lambda _: None} | options))


def rows(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """All rows of a run, without what may differ."""
    return {
        table: [
            {name: getattr(row, name) for name in row.__slots__ if name not in MAY_DIFFER}
            for row in read_table(folder / f"{table}.csv", table)
        ]
        for table in ("episodes", "curves", "runs")
    }


def weights(folder: Path) -> dict[str, list]:
    return {name: value.tolist() for name, value in core.load_state(folder / "checkpoint" / "agent.pt").items()}


class Killed(BaseException):
    """Stops a run between two safe points, as a kill does."""


def stopper(monkeypatch):
    """`stop_at(n)`: the next run ends at its n-th safe point. Each safe point before has its checkpoint."""
    monkeypatch.setattr(checkpoint, "CHECKPOINT_S", 0.0)
    monkeypatch.setattr(checkpoint, "SHARE", 1e9)
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # power cuts are not what is tested, and it takes long
    progress = record.Recorder.progress

    def stop_at(n: int | None) -> None:
        seen = []

        def counting(*arguments: Any) -> None:
            seen.append(1)
            if len(seen) == n:
                raise Killed
            progress(*arguments)

        monkeypatch.setattr(record.Recorder, "progress", counting)

    return stop_at


@pytest.fixture
def stop_at(monkeypatch):
    return stopper(monkeypatch)


@pytest.fixture(scope="session")
def stopped_once(tmp_path_factory):
    """The results of a run that was stopped at its 30th safe point."""
    root = tmp_path_factory.mktemp("stopped")
    with pytest.MonkeyPatch.context() as patch:
        stopper(patch)(30)
        with pytest.raises(Killed):
            make_run(root)
    return root


@pytest.fixture
def stopped(stopped_once, tmp_path):
    """A copy of it, to be damaged."""
    shutil.copytree(stopped_once, tmp_path, dirs_exist_ok=True)
    return plan(make_task("discrete", SMALL), "amago", root=tmp_path).folder


@pytest.fixture(scope="session")
def straight(tmp_path_factory):
    """A run that never was stopped."""
    return make_run(tmp_path_factory.mktemp("straight"))


# --- the same rows ---


@pytest.mark.parametrize("agent", ["amago", "amago-gru"])
@pytest.mark.parametrize("kind", ["discrete", "continuous"])
def test_a_run_stopped_again_and_again_ends_with_the_same_rows_and_weights(kind, agent, stop_at, tmp_path):
    expected = make_run(tmp_path / "straight", kind, agent)
    for n in (2, 8, 20, 12):
        stop_at(n)
        with pytest.raises(Killed):
            make_run(tmp_path / "stopped", kind, agent)
    stop_at(None)
    folder = make_run(tmp_path / "stopped", kind, agent)
    assert (folder / "log.txt").read_text().count("resumes from step") == 4
    assert rows(folder) == rows(expected)
    assert weights(folder) == weights(expected)
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in expected.iterdir())


def test_an_agent_that_cannot_resume_starts_over(stop_at, tmp_path, monkeypatch):
    from benchmarks.agents.amago import Amago

    monkeypatch.setattr(Amago, "resumes", False)
    stop_at(30)
    with pytest.raises(Killed):
        make_run(tmp_path)
    stop_at(None)
    folder = make_run(tmp_path)
    assert "resumes" not in (folder / "log.txt").read_text()


def test_a_run_that_moves_to_another_device_resumes_and_says_so(stop_at, tmp_path, monkeypatch):
    """Its checkpoints say that they come from a GPU."""
    state_dict = Learner.state_dict
    on_gpu = {"generator": {"device": "cuda", "state": torch.zeros(16, dtype=torch.uint8)}}
    monkeypatch.setattr(Learner, "state_dict", lambda learner: state_dict(learner) | on_gpu)
    stop_at(30)
    with pytest.raises(Killed):
        make_run(tmp_path)
    stop_at(None)
    row = read_table(make_run(tmp_path) / "runs.csv", "runs")[-1]
    assert row.status == "finished"
    moved = r"at step \d+ learning moved from cuda to cpu, where its random generator was reseeded"
    assert re.search(moved, row.message)


def test_checkpoints_change_no_number(straight, stop_at, tmp_path):
    """The straight run made none; this one makes one at every safe point."""
    stop_at(None)
    folder = make_run(tmp_path)
    assert (folder / "log.txt").read_text().count("checkpoint at step") > 40
    assert rows(folder) == rows(straight)


def test_times_add_up_over_the_lives_of_a_run(stopped, tmp_path):
    before = json.loads((core.checkpoints(stopped / "checkpoints")[0] / "harness.json").read_text())["recorder"]
    last = read_table(make_run(tmp_path) / "runs.csv", "runs")[-1]
    assert last.started == before["started"]
    for name, seconds in zip(("collect_s", "learn_s", "evaluate_s", "wall_s"), before["seconds"], strict=True):
        assert getattr(last, name) > seconds > 0


# --- killed ---


def kill_again_and_again(root: Path, kind: str, agent: str, env_steps: int, kills: int, seed: int) -> None:
    """Makes a run in a child process and kills it, `kills` times.

    Every third life ends at any time from its start on, every third inside a checkpoint write (most of them the
    second), and the others some time after their first checkpoint. The child is forked from a process that has
    imported everything and computed nothing, and rests at each safe point, so that all lives are work.
    """
    import torch
    import torch._dynamo  # the first optimiser imports it, which takes seconds that the child shall not spend

    import benchmarks.agents.amago  # noqa: F401 - neither on this

    torch.set_num_threads(1)
    checkpoint.SHARE = 1.0
    log = plan(make_task(kind, env_steps), agent, root=root).folder / "log.txt"
    draw = random.Random(seed)
    for life in range(kills + 1):
        at_any_time, inside, delay = life % 3 == 0, life % 3 == 1, draw.uniform(0, 0.25)
        before = _checkpoints_in(log)
        child = os.fork()
        if child == 0:
            checkpoint.CHECKPOINT_S = 0.06 if life < kills else 60.0
            if inside and life < kills:
                _die_in_write(random.Random(life).randrange(1, 9))
            if life < kills:
                _slow_down()
            make_run(root, kind, agent, env_steps, trackers=(), say=print)
            os._exit(0)
        if life < kills:
            deadline = time.monotonic() + 20
            while not at_any_time and _checkpoints_in(log) == before and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(delay)
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if life < kills and not os.WIFSIGNALED(status):
            sys.exit(f"life {life} ended by itself: the run is too short for {kills} kills")
    sys.exit(os.waitstatus_to_exitcode(status))


def _slow_down() -> None:
    progress = record.Recorder.progress
    record.Recorder.progress = lambda *arguments: (time.sleep(0.015), progress(*arguments))[1]


def _checkpoints_in(log: Path) -> int:
    return log.read_text().count("checkpoint at step") if log.exists() else 0


def _die_in_write(calls: int) -> None:
    """This process kills itself while it writes its second checkpoint, at some file or right after the rename."""
    sync, count = core._sync, [0]

    def counting(path: Path) -> None:
        count[0] += 1
        if count[0] == 8 + calls:
            os.kill(os.getpid(), signal.SIGKILL)
        sync(path)

    core._sync = counting


def check_kills(tmp_path: Path, kind: str, agent: str, env_steps: int, kills: int) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    arguments = [str(tmp_path / "killed"), kind, agent, str(env_steps), str(kills), "0"]
    done = subprocess.run([sys.executable, __file__, *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = plan(make_task(kind, env_steps), agent, root=tmp_path / "killed").folder
    assert (folder / "log.txt").read_text().count("resumes from step") >= kills // 2
    straight = make_run(tmp_path / "straight", kind, agent, env_steps, trackers=())
    assert rows(folder) == rows(straight)
    assert weights(folder) == weights(straight)


def test_killed_twenty_times(tmp_path):
    check_kills(tmp_path, "continuous", "amago", env_steps=600, kills=20)


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["amago", "amago-gru"])
@pytest.mark.parametrize("kind", ["discrete", "continuous"])
def test_killed_fifty_times(kind, agent, tmp_path):
    check_kills(tmp_path, kind, agent, env_steps=1500, kills=50)


# --- damaged ---


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("damage", [flip, cut, Path.unlink])
@pytest.mark.parametrize("name", ["agent/training.pt", "harness.json", "environments.npz", "manifest.json"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(name, damage, stopped, straight, tmp_path):
    newest, older = core.checkpoints(stopped / "checkpoints")
    damage(newest / name)
    lines: list[str] = []
    folder = make_run(tmp_path, say=lines.append)
    assert lines[0].startswith(f"checkpoint {newest} cannot be used (")
    assert Path(name).name in lines[0]
    assert lines[0].endswith("; the previous one is used")
    assert "resumes from step" in lines[1]
    assert rows(folder) == rows(straight)
    assert older.name == str(int(newest.name) - 1)


def test_with_all_checkpoints_damaged_it_starts_afresh_and_says_so(stopped, straight, tmp_path):
    for folder in core.checkpoints(stopped / "checkpoints"):
        cut(folder / "harness.json")
    lines: list[str] = []
    assert rows(make_run(tmp_path, say=lines.append)) == rows(straight)
    assert [line.rpartition("; ")[2] for line in lines[:2]] == ["the previous one is used", "the run starts over"]


@pytest.mark.parametrize(("damage", "says"), [(Path.unlink, "is missing"), (cut, "bytes instead of")])
def test_a_replay_file_that_is_missing_or_cut_is_named(damage, says, stopped, straight, tmp_path):
    damage(stopped / "scratch" / "reward")
    lines: list[str] = []
    assert rows(make_run(tmp_path, say=lines.append)) == rows(straight)
    restarts = [line for line in lines if line.endswith("the run starts over")]
    assert len(restarts) == 1
    assert "scratch/reward" in restarts[0]
    assert says in restarts[0]


def test_a_table_without_its_rows_is_no_ground_to_go_on_from(stopped, straight, tmp_path):
    (stopped / "episodes.csv").write_text("")
    lines: list[str] = []
    assert rows(make_run(tmp_path, say=lines.append)) == rows(straight)
    assert "episodes.csv lacks rows that it had at the checkpoint" in lines[0]


def test_a_moved_run_goes_on(stopped, straight, tmp_path):
    shutil.move(tmp_path / "runs", tmp_path / "elsewhere" / "runs")
    lines: list[str] = []
    folder = make_run(tmp_path / "elsewhere", say=lines.append)
    assert "resumes from step" in lines[0]
    assert rows(folder) == rows(straight)


def test_a_full_disk_is_one_line_and_what_was_written_stays(stopped, straight, stop_at, tmp_path, monkeypatch):
    stop_at(None)
    before = {path: path.read_bytes() for path in stopped.glob("*.csv")}
    kept = core.checkpoints(stopped / "checkpoints")

    def full(self: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(UserError, match=r"training.pt: No space left on device; the checkpoint could not be"):
            make_run(tmp_path)
    assert core.checkpoints(stopped / "checkpoints") == kept
    for path, content in before.items():
        assert path.read_bytes().startswith(content[: content.rfind(b"\n", 0, -1)])
    assert read_table(stopped / "runs.csv", "runs")[-1].status == "failed"
    assert rows(make_run(tmp_path)) == rows(straight)


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounts a small file system")
def test_a_really_full_disk(straight, stop_at, tmp_path):
    """A tmpfs fills up while checkpoints are written; with room made, the same command resumes it."""
    stop_at(None)
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(disk)], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        stop_at(20)
        with pytest.raises(Killed):
            make_run(disk)
        ballast = disk / "ballast"
        with open(ballast, "wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
            while file.write(b"0" * 4096):
                pass
        stop_at(None)
        with pytest.raises(UserError, match="No space left on device") as error:
            make_run(disk)
        assert str(disk) in str(error.value)
        ballast.unlink()
        lines: list[str] = []
        assert rows(make_run(disk, say=lines.append)) == rows(straight)
        assert "resumes from step" in lines[0]
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


# --- refused ---


@pytest.mark.parametrize("newest_is_damaged", [False, True])
def test_an_older_format_is_refused_and_nothing_is_lost(newest_is_damaged, stopped, tmp_path, monkeypatch):
    """It never starts over in silence, not even where a newer checkpoint is damaged."""
    written, newest = core.FORMAT, core.checkpoints(stopped / "checkpoints")[0]
    if newest_is_damaged:
        cut(newest / "manifest.json")
    before = {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file() and path.name != "lock"}
    monkeypatch.setattr(core, "FORMAT", written + 1)
    says = f"has checkpoint format {written}, this version reads {written + 1}; give --replace to start over"
    with pytest.raises(UserError, match=f"^{stopped / 'checkpoints'}/[0-9]+ {says}$"):
        make_run(tmp_path)
    assert before == {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file() and path.name != "lock"}
    assert read_table(make_run(tmp_path, replace=True) / "runs.csv", "runs")[-1].status == "finished"


def test_a_run_stopped_before_a_setting_was_renamed_goes_on(stopped, straight, tmp_path):
    def age(path: Path) -> None:
        path.write_text(path.read_text().replace('"tau"', '"target_rate"'))

    age(stopped / "config.json")
    for folder in core.checkpoints(stopped / "checkpoints"):
        age(folder / "harness.json")
        manifest = json.loads((folder / "manifest.json").read_bytes().rpartition(b"\n")[0])
        manifest["files"]["harness.json"] = core._measure(folder / "harness.json")
        body = json.dumps(manifest).encode()
        (folder / "manifest.json").write_bytes(body + b"\n" + hashlib.sha256(body).hexdigest().encode())
    lines: list[str] = []
    assert rows(make_run(tmp_path, say=lines.append)) == rows(straight)
    assert "resumes from step" in lines[0]


def test_the_checkpoint_of_another_run_is_refused_with_the_keys(stopped, stop_at, tmp_path):
    stop_at(20)
    with pytest.raises(Killed):
        make_run(tmp_path, seed=1)
    other = stopped.with_name("seed-1")
    shutil.rmtree(stopped / "checkpoints")
    shutil.copytree(other / "checkpoints", stopped / "checkpoints")
    with pytest.raises(UserError, match=r"a checkpoint with another run_id: .*; seed: 1 -> 0; give --replace"):
        make_run(tmp_path)


def test_two_processes_on_one_run(stopped, tmp_path):
    """The second is told who holds it; when the holder is gone, however it went, the run goes on."""
    hold = "import sys, time; from benchmarks.runs.owner import owned; from pathlib import Path\n" \
        "with owned(Path(sys.argv[1])): print(flush=True); time.sleep(60)"  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", hold, str(stopped)], stdout=subprocess.PIPE, env=environment) as other:
        other.stdout.readline()
        with pytest.raises(UserError, match=rf"is being written by process {other.pid} on .*; wait for it or stop it"):
            make_run(tmp_path, replace=True)
        other.kill()
        other.wait()
    make_run(tmp_path)


# --- stopped on purpose ---


def test_ctrl_c_stops_at_a_safe_point_with_a_checkpoint(straight, tmp_path, monkeypatch):
    progress, seen, lines = record.Recorder.progress, [], []

    def pressing(*arguments: Any) -> None:
        seen.append(1)
        if len(seen) == 30:
            os.kill(os.getpid(), signal.SIGINT)
        progress(*arguments)

    monkeypatch.setattr(record.Recorder, "progress", pressing)
    with pytest.raises(KeyboardInterrupt):
        make_run(tmp_path, say=lines.append)
    assert "stopping at the next safe point; press Ctrl-C again to stop immediately" in lines
    assert len(seen) == 30
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    last = read_table(next(tmp_path.rglob("runs.csv")), "runs")[-1]
    assert (last.status, last.message) == ("interrupted", "interrupted; the same command resumes it")
    folder = make_run(tmp_path, say=lines.append)
    assert "resumes from step" in (folder / "log.txt").read_text()
    assert rows(folder) == rows(straight)


# --- environments ---


def played(env: HarnessEnv, steps: int, seed: int, instances: bool = False) -> list[tuple]:
    """Random play; every third reset of a slot asks for an instance if `instances`. All that was answered."""
    rng, answers = np.random.default_rng(seed), []
    env.action_space.seed(seed)
    for _ in range(steps):
        if env.needs_reset.any():
            asked = {"instance": rng.integers(2, size=env.num_envs)} if instances and rng.random() < 0.3 else {}
            answers.append(env.reset(options={"reset_mask": env.needs_reset, **asked})[0].tolist())
        *answer, _ = env.step(env.action_space.sample())
        answers.append([part.tolist() for part in answer])
    return answers


@pytest.mark.parametrize("steps", [0, 1, 2, 9, 40, 77])
@pytest.mark.parametrize("kind", ["discrete", "continuous"])
def test_every_slot_is_brought_back_to_exactly_where_it_was(kind, steps):
    task = make_task(kind, SMALL)
    make = lambda: HarnessEnv(task.make(5), task, np.random.SeedSequence(3), "train")  # noqa: E731
    first, second = make(), make()
    played(first, steps, seed=0, instances=kind == "discrete")
    state = {name: value.copy() for name, value in first.state().items()}
    if kind == "continuous" and steps == 77:
        assert len(set(first.t.tolist())) > 2  # slots at different timesteps
    assert second.restore(state) == ""
    assert second.env_steps == first.env_steps == 5 * steps
    for name in ("t", "rollouts", "seeds", "instance", "needs_reset"):
        going_on = ~first.needs_reset | (name in ("rollouts", "needs_reset"))
        np.testing.assert_array_equal(getattr(second, name)[going_on], getattr(first, name)[going_on])
    assert played(second, 30, seed=1) == played(first, 30, seed=1)


@pytest.mark.parametrize("part", ["actions", "checksum"])
def test_a_slot_that_is_not_where_it_was_is_noticed(part):
    task = make_task("continuous", SMALL)
    first, second = (HarnessEnv(task.make(5), task, np.random.SeedSequence(3), "train") for _ in range(2))
    played(first, 10, seed=0)
    state = {name: value.copy() for name, value in first.state().items()}
    slot = int(first.t.argmax())
    if part == "actions":
        state["actions"][0, slot] = -state["actions"][0, slot]  # the very first step of the longest rollout
    else:
        state["checksum"][slot] ^= 1
    assert second.restore(state) == "the same seed and actions gave other observations or rewards"
    assert second.needs_reset.all()
    rollouts = second.rollouts.copy()
    second.reset()
    assert (second.rollouts == rollouts + 1).all()  # the next seeds


def test_one_answer_among_many_equal_ones_changes_the_checksum():
    """In the corridor of a T-Maze nearly every observation is the same, and two signs must not cancel out."""
    seen = set()
    for signs in np.ndindex(2, 2, 2):
        log = RolloutLog(batch_space(spaces.Discrete(2), 1), 1)
        log.begin(np.array([0]), None, np.array([[0.0, 1 - 2 * signs[0]]], np.float32))
        for t, sign in enumerate(signs[1:]):
            observation = np.array([[1.0, 1 - 2 * sign]], np.float32)
            log.add(np.array([t]), np.array([0]), observation, np.zeros(1, np.float32))
        seen.add(int(log.checksum()[0]))
    assert len(seen) == 8


class Restless(Drift):
    """Does not depend on its seed alone."""

    lives = 0

    def reset(self, **options: Any) -> tuple[np.ndarray, dict]:
        observation, infos = super().reset(**options)
        Restless.lives += 1
        return observation + np.float32(Restless.lives), infos


def test_an_environment_that_does_not_replay_begins_its_rollouts_anew_and_the_run_says_so(stop_at, tmp_path):
    task = make_task("continuous", SMALL)
    object.__setattr__(task, "make", lambda n: SyncVectorEnv([Restless] * n, autoreset_mode=AutoresetMode.DISABLED))
    lines: list[str] = []
    stop_at(30)
    with pytest.raises(Killed):
        run(plan(task, "amago", root=tmp_path))
    stop_at(None)
    folder = run(plan(task, "amago", root=tmp_path), say=lines.append)
    says = "the rollouts under way were restarted after a stop: the environment does not replay"
    assert says in lines[1]
    finished = read_table(folder / "runs.csv", "runs")[-1]
    assert finished.status == "finished"
    assert says in finished.message
    assert says in (folder / "log.txt").read_text()


def test_a_checkpoint_is_made_when_the_agent_asks(tmp_path, monkeypatch):
    """The replay of 60 tokens has little room beyond; by the clock there would be none in this run."""
    monkeypatch.setattr("amago_core.replay.SPARE_BYTES", 0)
    saved, save = [], run_module.save_point
    monkeypatch.setattr(run_module, "save_point", lambda *a: saved.append(1) or save(*a))
    monkeypatch.setattr(checkpoint, "FIRST_S", 1e9)
    monkeypatch.setattr(checkpoint, "CHECKPOINT_S", 1e9)
    original = run_module._Training._learn

    def with_a_first_one(self: Any, *arguments: Any) -> str:
        self._next_s = 0.0
        return original(self, *arguments)

    monkeypatch.setattr(run_module._Training, "_learn", with_a_first_one)
    make_run(tmp_path, env_steps=750)
    assert 2 <= len(saved) <= 25


if __name__ == "__main__":
    path, *names, steps, kills, seed = sys.argv[1:]
    kill_again_and_again(Path(path), names[0], names[1], int(steps), int(kills), int(seed))
