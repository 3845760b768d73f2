import json
import os
import subprocess
import sys
import time
import types
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from benchmarks.agents import agent_id, make_agent, parse_agent, parse_settings
from benchmarks.agents.protocol import ContractError, Progress
from benchmarks.gate.evaluate import EpisodeRecord
from benchmarks.gate.harness_env import EnvironmentFault
from benchmarks.runs import owner, record
from benchmarks.runs import run as run_module
from benchmarks.runs.plan import plan
from benchmarks.runs.run import run, save_checkpoint
from benchmarks.task import Budget
from results.errors import UserError
from results.store import read_table


class Walker:
    """Steps its environments, one vector step a safe point; `after` is called before each yield with their count."""

    after = staticmethod(lambda envs: None)

    def __init__(self, spec):
        self.spec = spec

    def learn(self, envs, seeds):
        rng = np.random.default_rng(seeds)
        envs.reset()
        updates = 0
        while True:
            *_, terminated, truncated, _ = envs.step(rng.integers(3, size=envs.num_envs))
            if (done := terminated | truncated).any():
                envs.reset(options={"reset_mask": done})
            updates += 1
            self.after(envs)
            yield Progress(updates, 10 * updates, 0.5, 0.25, {"loss": 1.0 / updates})

    def act(self, step, memory, rng):
        return rng.integers(3, size=len(step.first)), memory

    def save(self, folder):
        (folder / "weights.txt").write_text("weights")

    def load(self, folder):
        self.weights = (folder / "weights.txt").read_text()

    def describe(self):
        return {"parameters": 7, "device": "cpu", "attention": "none", "dtype": "float32"}


@pytest.fixture
def toy(toys, tmp_path, monkeypatch):
    """Runs an agent class on a toy task in which the return is the rollout's length, 4."""

    class Toy:
        task = toys.scripted(lambda t: (1.0, t == 4, False, {"success": True}), horizon=9)
        lines: list[str] = []  # noqa: RUF012 - fresh for each test

        def run(self, agent=Walker, task=None, *, settings=None, root=tmp_path, **options):
            monkeypatch.setitem(sys.modules, "toy_agents", types.SimpleNamespace(Agent=agent))
            planned = plan(task or self.task, "toy_agents:Agent", settings=settings, root=root)
            return run(planned, **({"say": self.lines.append} | options))

        def rows(self, table, folder=None):
            return read_table((folder or self.folder) / f"{table}.csv", table)

        folder = tmp_path / "runs" / "smoke" / "test" / "toy" / "a" / "toy_agents:Agent" / "seed-0"

    return Toy()


# --- what a run writes ---


def test_a_run_from_nothing_to_its_rows(toy):
    folder = toy.run()
    assert folder == toy.folder
    running, finished = toy.rows("runs")
    assert (running.status, finished.status, finished.message) == ("running", "finished", "")
    assert (finished.env_steps, finished.updates, finished.tokens) == (40, 20, 200)
    assert (finished.collect_s, finished.learn_s, finished.parameters) == (0.5, 0.25, 7)
    assert (finished.device, finished.attention, finished.dtype, finished.threads) == ("cpu", "none", "float32", 1)
    assert 0 < finished.evaluate_s < finished.wall_s
    assert 10 < finished.peak_rss_mb < 100_000
    assert json.loads(finished.config)["budget"]["env_steps"] == 40
    first, final = toy.rows("curves")
    assert (first.evaluation, first.final, first.env_steps, first.updates, first.rollouts) == (0, False, 20, 10, 20)
    assert (final.evaluation, final.final, final.env_steps, final.updates, final.rollouts) == (1, True, 40, 20, 100)
    assert (final.return_mean, final.return_q1, final.success_mean) == (4.0, 4.0, 1.0)
    episodes = toy.rows("episodes")
    assert [len([e for e in episodes if e.final is final]) for final in (False, True)] == [20, 100]
    assert {(e.episode_return, e.episode_length) for e in episodes} == {(4.0, 4)}
    config = json.loads((folder / "config.json").read_text())
    assert {row.protocol for row in (finished, final, *episodes)} == {config["protocol"]}
    assert {e.split for e in episodes} == {"same"}


def test_the_files_beside_the_tables(toy):
    folder = toy.run()
    progress = json.loads((folder / "progress.json").read_text())
    assert progress.pop("wall_s") > 0
    assert progress == {
        "run_id": "smoke:test/toy/a:toy_agents:Agent:0",
        "status": "finished",
        "env_steps": 40,
        "total": 40,
        "updates": 20,
        "return": 4.0,
    }
    assert sorted(path.name for path in (folder / "checkpoint").iterdir()) == ["SHA256SUMS", "done", "weights.txt"]
    protocol = json.loads((folder / "protocol.json").read_text())
    assert (protocol["task"], protocol["horizon"], protocol["evaluation"]["rollouts"]) == ("test/toy/a", 9, 100)
    assert set(protocol["packages"]) == {"gymnasium"}
    assert "finished" in (folder / "log.txt").read_text()
    assert not (folder / "scratch").exists()


def test_skipped_updates_are_said_in_the_row(toy):
    class Skips(Walker):
        def learn(self, envs, seeds):
            for progress in super().learn(envs, seeds):
                yield replace(progress, skipped=progress.updates // 4)

    toy.run(Skips)
    assert toy.rows("runs")[-1].message == "5 of 20 updates skipped: gradients not finite"


def test_tensorboard_shows_the_curves(toy):
    events = EventAccumulator(str(toy.run() / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("evaluation/return_mean")] == [(20, 4.0), (40, 4.0)]


def test_training_metrics_are_means_since_the_last_time_and_none_is_lost(toy, monkeypatch):
    """Every second report has none, as one while collecting."""

    class Learns(Walker):
        def learn(self, envs, seeds):
            for progress in super().learn(envs, seeds):
                learnt = progress.updates % 2 == 0
                yield replace(progress, metrics={"loss": progress.updates} if learnt else {})

    monkeypatch.setattr("benchmarks.runs.record.EVERY_S", float("inf"))
    events = EventAccumulator(str(toy.run(Learns) / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("train/loss")] == [(20, 6.0), (40, 16.0)]  # 2 to 10, 12 to 20


def test_tensorboard_has_the_settings_of_a_run(tmp_path):
    """In the dashboard HPARAMS, where runs are compared by their settings."""
    folder = run(
        plan("long_term_memory/tmaze/passive-10", "amago@lr=2e-3,steps=200", root=tmp_path), say=lambda _: None
    )
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    (content,) = events.PluginTagToContent("hparams").values()
    settings = HParamsPluginData.FromString(content).session_start_info.hparams
    assert (settings["lr"].number_value, settings["env_steps"].number_value) == (2e-3, 200)
    assert settings["discounts"].string_value == "(0.9, 0.97, 0.99)"


def test_training_rollouts_are_shown_for_every_agent(toy, toys):
    """Rollouts of 4 steps that pay their number; slots end together, evaluations do not count."""
    events = EventAccumulator(str(toy.run(task=toys.scripted(lambda t: (t, t == 4, False, {}))) / "tensorboard"))
    events.Reload()
    assert {e.value for e in events.Scalars("rollout/return")} == {10.0}
    assert {e.value for e in events.Scalars("rollout/length")} == {4.0}
    assert all(e.value > 0 for e in events.Scalars("rollout/steps_per_second"))


def test_wandb_is_asked_for_before_anything_is_touched(toy, monkeypatch):
    toy.run()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install wandb"):
        toy.run(trackers=["wandb"], replace=True)
    assert toy.rows("runs")[-1].status == "finished"


def test_a_tracker_that_fails_costs_the_run_nothing_but_a_line_in_its_log(toy, monkeypatch):
    class Fails:
        def __init__(self, run):
            raise ConnectionError("no network")

    monkeypatch.setitem(sys.modules, "failing", types.SimpleNamespace(Fails=Fails))
    folder = toy.run(trackers=["failing:Fails", "tensorboard"])
    assert toy.rows("runs")[-1].status == "finished"
    assert (folder / "log.txt").read_text().count("tracker failing:Fails failed and is left out") == 1


def test_wandb_gets_what_the_tables_get(toy, monkeypatch):
    logged, finished = [], []
    handle = types.SimpleNamespace(log=lambda v, step: logged.append((step, v)), finish=lambda: finished.append(1))
    fake = types.ModuleType("wandb")
    fake.__spec__ = types.SimpleNamespace()
    fake.init = lambda **options: handle
    monkeypatch.setitem(sys.modules, "wandb", fake)
    toy.run(trackers=["wandb"])
    assert [step for step, values in logged if "evaluation/return_mean" in values] == [20, 40]
    assert finished == [1]


def test_the_same_seed_gives_the_same_rows(toys, toy, tmp_path):
    task = toys.scripted(lambda t: (1.0, t == 4, False, {}))
    rows = []
    for name in "ab":
        toy.run(task=task, root=tmp_path / name)
        folder = toy.folder.relative_to(tmp_path)
        rows.append([toy.rows("episodes", tmp_path / name / folder), len(toy.rows("curves", tmp_path / name / folder))])
    assert rows[0] == rows[1]


# --- evaluations and the end of training ---


def steps_of(toy):
    return [(c.evaluation, c.env_steps, c.final) for c in toy.rows("curves")]


def test_evaluations_are_evenly_spaced_and_the_last_is_the_final_one(toy, toys):
    budget = Budget(env_steps=100, num_envs=2, evaluations=4, seeds=(0,))
    toy.run(task=toys.scripted(lambda t: (1.0, t == 4, False, {}), budget=budget))
    assert steps_of(toy) == [(0, 26, False), (1, 50, False), (2, 76, False), (3, 100, True)]


def test_a_safe_point_past_several_marks_makes_one_evaluation_under_the_last_number(toy, toys):
    class Rare(Walker):
        def learn(self, envs, seeds):
            for i, progress in enumerate(super().learn(envs, seeds), start=1):
                if i % 30 == 0:
                    yield progress

    budget = Budget(env_steps=100, num_envs=2, evaluations=4, seeds=(0,))
    toy.run(Rare, task=toys.scripted(lambda t: (1.0, t == 4, False, {}), budget=budget))
    assert steps_of(toy) == [(1, 60, False), (3, 120, True)]


def test_training_stops_after_two_solved_evaluations_in_a_row(toy, toys):
    budget = Budget(env_steps=100, num_envs=2, evaluations=10, seeds=(0,), stop_return=4.0)
    toy.run(task=toys.scripted(lambda t: (1.0, t == 4, False, {}), budget=budget))
    assert steps_of(toy) == [(0, 10, False), (1, 20, False), (2, 20, True)]
    assert "solved" in toy.rows("runs")[-1].message


def with_splits(toys, returns, **changes):
    """A task whose rollouts last as many steps as `returns` says for their split."""

    def make(num_envs, split):
        return toys.scripted(lambda t: (1.0, t == returns[split], False, {})).make(num_envs)

    return toys.task(make, splits=("train", "test"), horizon=9, **changes)


def test_both_splits_are_evaluated_and_training_sees_one(toy, toys):
    lengths = []

    class Measuring(Walker):
        after = staticmethod(lambda envs: lengths.append(int(envs.t.max())))

    folder = toy.run(Measuring, task=with_splits(toys, {"train": 3, "test": 5}))
    assert max(lengths) == 2, "the third step ends a rollout of the training split"
    curves = [(c.split, c.evaluation, c.final, c.return_mean, c.rollouts) for c in toy.rows("curves")]
    assert curves == [
        ("train", 0, False, 3.0, 20), ("test", 0, False, 5.0, 20),
        ("train", 1, True, 3.0, 100), ("test", 1, True, 5.0, 100),
    ]  # fmt: skip
    assert {(e.split, e.episode_return) for e in toy.rows("episodes")} == {("train", 3.0), ("test", 5.0)}
    assert json.loads((folder / "progress.json").read_text())["return"] == 5.0, "the headline is the test split"
    assert "split" not in json.loads((folder / "protocol.json").read_text())


@pytest.mark.parametrize(("returns", "stops"), [({"train": 4, "test": 2}, True), ({"train": 2, "test": 4}, False)])
def test_the_training_split_alone_decides_when_to_stop(toy, toys, returns, stops):
    budget = Budget(env_steps=100, num_envs=2, evaluations=10, seeds=(0,), stop_return=4.0)
    toy.run(task=with_splits(toys, returns, budget=budget))
    assert ("solved" in toy.rows("runs")[-1].message) is stops


def test_the_rollouts_of_a_split_are_its_own():
    seeds = {split: run_module.evaluation_seeds("a/b/c", 0, split) for split in ("same", "train", "test")}
    assert len({tuple(each.generate_state(4)) for each in seeds.values()}) == 3
    assert seeds["same"].spawn_key == run_module.evaluation_seeds("a/b/c", 0).spawn_key


def test_one_solved_evaluation_is_not_enough(toy, toys, monkeypatch):
    returns = iter([4.0, 3.9, 4.0, 4.0, 1.0])
    fake = lambda *a, **k: [EpisodeRecord(0, 0, 0, "", next(returns), 1, None, None, True)]  # noqa: E731
    monkeypatch.setattr(run_module, "evaluate", fake)
    budget = Budget(env_steps=100, num_envs=2, evaluations=10, seeds=(0,), stop_return=4.0)
    toy.run(task=toys.scripted(lambda t: (1.0, t == 4, False, {}), budget=budget))
    assert [c.return_mean for c in toy.rows("curves")] == [4.0, 3.9, 4.0, 4.0, 1.0]


def test_an_agent_that_has_learnt_all_it_can_is_evaluated(toy):
    class Short(Walker):
        def learn(self, envs, seeds):
            yield next(super().learn(envs, seeds))

    toy.run(Short)
    assert steps_of(toy) == [(0, 2, True)]
    assert toy.rows("runs")[-1].message == "learn() ended by itself after 2 steps"


def test_the_final_evaluation_has_the_same_seeds_however_long_the_run_was(toy, monkeypatch):
    asked = []
    seeds = run_module.evaluation_seeds
    monkeypatch.setattr(
        run_module, "evaluation_seeds", lambda task_id, which, split: asked.append(which) or seeds("", which)
    )
    toy.run()
    assert asked == [0, "final"]


def test_the_agent_is_told_that_training_is_over(toy):
    closed = []

    class Tidy(Walker):
        def learn(self, envs, seeds):
            self.points = self.endless(envs, seeds)  # a reference that keeps it from being collected
            return self.points

        def endless(self, envs, seeds):
            try:
                yield from super().learn(envs, seeds)
            finally:
                closed.append(envs.env_steps)

        def save(self, folder):
            super().save(folder)
            assert closed == [40]

    toy.run(Tidy)


# --- running again ---


def test_a_finished_run_is_left_as_it_is(toy):
    toy.run()
    before = {path: path.read_bytes() for path in toy.folder.rglob("*") if path.is_file()}
    toy.lines.clear()
    toy.run()
    assert toy.lines == [f"smoke:test/toy/a:toy_agents:Agent:0 is finished already: {toy.folder}"]
    assert before == {path: path.read_bytes() for path in toy.folder.rglob("*") if path.is_file()}


def test_an_interrupted_run_starts_afresh_and_leaves_no_old_row(toy):
    class Interrupted(Walker):
        def after(self, envs):
            if envs.env_steps >= 30:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        toy.run(Interrupted)
    assert [r.status for r in toy.rows("runs")] == ["running", "interrupted"]
    assert json.loads((toy.folder / "progress.json").read_text())["status"] == "interrupted"
    assert steps_of(toy) == [(0, 20, False)]
    toy.run()
    assert [r.status for r in toy.rows("runs")] == ["running", "finished"]
    assert steps_of(toy) == [(0, 20, False), (1, 40, True)]


def test_a_killed_run_starts_afresh(toy, monkeypatch):
    toy.run()
    table = toy.folder / "runs.csv"
    table.write_text("\n".join(table.read_text().splitlines()[:2]) + "\n")  # header and `running`, as a kill leaves it
    (toy.folder / "SHA256SUMS").unlink()
    toy.run()
    assert [r.status for r in toy.rows("runs")] == ["running", "finished"]


def test_a_failure_is_a_row_a_log_and_an_error(toy):
    class Failing(Walker):
        def after(self, envs):
            if envs.env_steps >= 10:
                raise ZeroDivisionError("loss\nof an empty batch")

    with pytest.raises(ZeroDivisionError):
        toy.run(Failing)
    last = toy.rows("runs")[-1]
    assert (last.status, last.env_steps) == ("failed", 8)
    assert last.message == "ZeroDivisionError: loss of an empty batch"
    assert "Traceback" in (toy.folder / "log.txt").read_text()
    assert not (toy.folder / "scratch").exists()


def test_another_configuration_is_refused_without_replace(toy, toys):
    toy.run()
    other = toys.scripted(lambda t: (1.0, t == 4, False, {}), horizon=9, budget=Budget(60, 2, 2, (0,)))
    with pytest.raises(UserError, match=r"another budget.env_steps: 40 -> 60; .*--replace"):
        toy.run(task=other)
    assert toy.rows("runs")[-1].env_steps == 40
    toy.run(task=other, replace=True)
    assert toy.rows("runs")[-1].env_steps == 60


def test_another_protocol_is_refused_without_replace(toy, toys):
    toy.run()
    with pytest.raises(UserError, match="another protocol"):
        toy.run(task=toys.scripted(lambda t: (1.0, t == 4, False, {}), horizon=8))


class Tuned(Walker):
    def __init__(self, spec):
        super().__init__(spec)
        self.lr, self.batch = spec.settings.get("lr"), spec.settings.get("batch")


def test_other_settings_are_another_run(toy):
    one, other = toy.run(Tuned), toy.run(Tuned, settings={"lr": "3e-4", "batch": "8"})
    assert other.parent.name == "toy_agents:Agent@batch=8,lr=3e-4"
    assert one.parent != other.parent
    assert toy.rows("runs", other)[-1].agent == "toy_agents:Agent@batch=8,lr=3e-4"


def test_a_setting_that_the_agent_never_reads_is_refused_with_the_nearest_one(toy):
    with pytest.raises(
        UserError, match=r"^agent toy_agents:Agent never reads the setting 'bacth'; did you mean batch\?$"
    ):
        toy.run(Tuned, settings={"bacth": "8"})


def test_an_agent_that_learns_and_made_no_update_is_no_result(toy):
    class Learner(Walker):
        learns = True

    class Idle(Learner):
        def learn(self, envs, seeds):
            for _ in super().learn(envs, seeds):
                yield Progress()

    with pytest.raises(UserError, match=r"no update was made in 40 steps.*horizon 9, 20 steps in each slot.*--steps"):
        toy.run(Idle)
    assert toy.rows("runs")[-1].status == "failed"
    toy.run(Learner, replace=True)
    assert toy.rows("runs")[-1].status == "finished"


@pytest.mark.parametrize(("steps", "refused"), [(64, True), (65, False)])
def test_a_budget_without_updates_is_refused_before_the_first_step(steps, refused, tmp_path):
    agent = f"amago@num_envs=1,steps={steps},steps_per_iteration=16,warmup_iterations=3,width=16"
    planned = plan("long_term_memory/tmaze/passive-10", agent, root=tmp_path)
    if refused:
        with pytest.raises(UserError, match="first would come after 64 steps in each slot and the run ends after 64;"):
            run(planned, say=lambda _: None)
    else:
        run(planned, say=lambda _: None)
    row = read_table(planned.folder / "runs.csv", "runs")[-1]
    assert (row.status, row.env_steps > 0, row.updates > 0) == (
        "failed" if refused else "finished",
        not refused,
        not refused,
    )


def test_the_stream_tells_one_training_from_another(toy, tmp_path):
    def stream(seed, root):
        planned = plan(toy.task, "toy_agents:Agent", seed=seed, root=tmp_path / root)
        return read_table(run(planned, say=lambda _: None) / "runs.csv", "runs")[-1].stream

    toy.run()  # makes the agent known
    first = stream(0, "one")
    assert len(first) == 8
    assert stream(0, "other") == first != stream(1, "one")


def test_a_run_that_was_taken_over_writes_nothing_more(toy, toys, monkeypatch):
    """As one whose machine was asleep: another process owns its folder when it wakes up."""
    monkeypatch.setattr(owner, "BEAT_S", 0.01)

    class Sleepy(Walker):
        def after(self, envs):
            if envs.env_steps == 30:
                other = toy.folder / "other"
                other.write_text(json.dumps({"host": "elsewhere", "space": "", "process": 7, "since": ""}))
                os.replace(other, toy.folder / "lock")
            if envs.env_steps >= 30:  # until its next beat
                time.sleep(0.01)

    task = toys.scripted(lambda t: (1.0, t == 4, False, {}), budget=Budget(10**6, 2, 1, (0,)))
    with pytest.raises(owner.TakenOver, match="by process 7 on elsewhere"):
        toy.run(Sleepy, task)
    assert [r.status for r in toy.rows("runs")] == ["running"]
    assert "TakenOver" not in (toy.folder / "log.txt").read_text()


# --- agents that break the contract ---


def breaking(name, value):
    return type("Broken", (Walker,), {name: value})


def answering(answer):
    return breaking("act", lambda self, step, memory, rng: answer)


@pytest.mark.parametrize(
    ("agent", "says"),
    [
        (breaking("save", None), r"no method save\(\)"),
        (breaking("learn", lambda self, envs, seeds: iter(())), r"learn\(\) ended after 0 steps without a yield"),
        (breaking("learn", lambda self, envs, seeds: None), r"learn\(\) must return an iterator"),
        (breaking("learn", lambda self, envs, seeds: iter([3])), r"learn\(\) must yield Progress, it yielded int"),
        (answering((np.full(20, 3), None)), r"act\(\) gave action 3.*slot 0, seed \d+, step 0"),
        (answering((np.full(20, np.nan), None)), r"act\(\) gave actions of dtype"),
        (answering((np.zeros(3, int), None)), r"act\(\) gave actions of shape \(3,\)"),
        (answering(None), r"act\(\) must return \(actions, memory\)"),
    ],
)
def test_a_broken_contract_is_named_and_recorded(toy, agent, says):
    with pytest.raises(ContractError, match=says):
        toy.run(agent)
    last = toy.rows("runs")[-1]
    assert last.status == "failed"
    assert last.message.startswith("ContractError: ")


def reporting(**report):
    def learn(self, envs, seeds):
        for progress in Walker.learn(self, envs, seeds):
            yield replace(progress, **report)

    return breaking("learn", learn)


def describing(described):
    return breaking("describe", lambda self: described)


@pytest.mark.parametrize(
    ("agent", "says"),
    [
        (describing(7), r"describe\(\) must return a mapping, it returned int"),
        (describing({"parameters": "many"}), r"describe\(\)\['parameters'\] must be a whole number, it is of type str"),
        (reporting(updates=1.5), r"Progress.updates must be a whole number, it is of type float"),
        (reporting(learn_s=None), r"Progress.learn_s must be a number, it is of type NoneType"),
        (reporting(metrics=[1.0]), r"Progress.metrics must be a mapping, it is of type list"),
        (
            reporting(metrics={"loss": torch.ones((), requires_grad=True)}),
            r"Progress.metrics\['loss'\] must be a number, it is of type Tensor; give value.item\(\)",
        ),
    ],
)
def test_a_report_that_no_table_can_hold_is_named_when_it_is_made(toy, agent, says):
    with pytest.raises(ContractError, match=says):
        toy.run(agent)
    last = toy.rows("runs")[-1]
    assert (last.status, last.env_steps) == ("failed", 0)


def test_numpy_scalars_are_welcome_in_reports(toy):
    agent = reporting(updates=np.int64(3), learn_s=np.float32(0.5), metrics={"loss": np.float16(2.0), "n": np.int8(1)})
    agent.describe = lambda self: {"parameters": np.int64(9), "device": torch.device("cpu")}
    toy.run(agent)
    last = toy.rows("runs")[-1]
    assert (last.status, last.updates, last.learn_s, last.parameters, last.device) == ("finished", 3, 0.5, 9, "cpu")


def test_an_error_that_cannot_be_printed_is_a_failed_row_all_the_same(toy):
    class Unspeakable(Exception):
        def __str__(self):
            raise ValueError

    def learn(self, envs, seeds):
        raise Unspeakable

    with pytest.raises(Unspeakable):
        toy.run(breaking("learn", learn))
    last = toy.rows("runs")[-1]
    assert (last.status, last.message) == ("failed", "Unspeakable")


def test_an_agent_that_never_steps_is_stopped(toy, monkeypatch):
    monkeypatch.setattr(run_module, "IDLE_YIELDS", 50)

    class Idle(Walker):
        def learn(self, envs, seeds):
            while True:
                yield Progress()

    with pytest.raises(ContractError, match="50 times without stepping"):
        toy.run(Idle)


def test_a_fault_of_the_environment_is_a_failed_run_that_names_it(toy, toys):
    task = toys.scripted(lambda t: (np.nan if t == 3 else 1.0, False, False, {}))
    with pytest.raises(EnvironmentFault):
        toy.run(task=task)
    message = toy.rows("runs")[-1].message
    assert "task test/toy/a, slot 0, seed " in message
    assert message.endswith("step 3: the reward is not finite: nan")


# --- names ---


def test_unknown_names_give_the_nearest():
    with pytest.raises(UserError, match="unknown agent 'orakle'; did you mean oracle"):
        plan("long_term_memory/tmaze/passive-10", "orakle")
    with pytest.raises(UserError, match="passive-30"):
        plan("long_term_memory/tmaze/pasive-30", "random")
    with pytest.raises(UserError, match="no budget for tier 'desktop'"):
        plan("long_term_memory/tmaze/passive-10", "random", "desktop")
    with pytest.raises(UserError, match="No module named"):
        make_agent("toy_module_that_is_not:Agent", None)


def test_agent_ids():
    assert parse_agent("amago@lr=3e-4, batch=8") == ("amago", {"lr": "3e-4", "batch": "8"})
    assert agent_id("amago", {"lr": "3e-4", "batch": "8"}) == "amago@batch=8,lr=3e-4"
    assert agent_id(*parse_agent("amago")) == "amago"
    for bad in (["lr"], ["=3"], ["lr="], ["lr=1", "lr=2"], ["a=b/c"]):
        with pytest.raises(UserError):
            parse_settings(bad)


# --- checkpoints ---


def test_a_checkpoint_that_fails_leaves_the_one_before(tmp_path):
    save_checkpoint(Walker(None), tmp_path / "checkpoint")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]

    class Full(Walker):
        def save(self, folder: Path):
            (folder / "weights.txt").write_text("half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        save_checkpoint(Full(None), tmp_path / "checkpoint")
    assert (tmp_path / "checkpoint" / "weights.txt").read_text() == "weights"
    assert (tmp_path / "checkpoint" / "done").exists()


def test_code_is_dirty_when_code_changed_and_not_when_tables_were_merged(tmp_path, monkeypatch):
    files = ["benchmarks/runs/record.py", "results/protocols.json", "results/reference/laptop/runs.csv"]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("before")
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "m"]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    monkeypatch.setattr(record, "__file__", str(tmp_path / files[0]))
    for file, dirty in zip(reversed(files), (False, False, True), strict=True):
        (tmp_path / file).write_text("after")
        commit, found = record.git_state()
        assert found is dirty, file
    assert len(commit) == 40
    (tmp_path / "lib/python/site-packages/benchmarks").mkdir(parents=True)  # installed inside the user's repository
    monkeypatch.setattr(record, "__file__", str(tmp_path / "lib/python/site-packages" / files[0]))
    assert record.git_state() == (f"amago-bench {version('amago-bench')}", False)
