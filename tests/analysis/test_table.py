"""The results table: headline, failures, protocols, and text made only at the end."""

import io
import json
import math
import shutil

import pandas as pd
import pytest

from analysis import frames, text
from analysis.table import render, summary
from results.errors import UserError

TMAZE = "long_term_memory/tmaze/*"
NAN = math.nan


def test_one_row_by_hand(write_tmaze, write_run):
    write_tmaze({(10, "amago"): [1.0, 0.5, NAN]}, best=0.8)
    root = write_tmaze({(10, "amago-gru"): [0.5]})
    frame = summary(root, "laptop", TMAZE)
    row = frame.query("agent == 'amago'").iloc[0]
    assert (row["n"], row["failed"], row["mean"], row["median"]) == (3, 1, 0.75, 0.75)
    assert row["interval"] == "share" and math.isnan(row["low"])  # solved or not: the share has the interval
    assert row["solved"] == pytest.approx(1 / 3)  # the failed seed is not solved
    assert row["best"] == pytest.approx((1.0 + 0.8) / 2)  # the second seed was better before its end
    assert (row["env_steps"], row["wall_s"]) == (1000.5, 60.5)
    single = frame.query("agent == 'amago-gru'").iloc[0]
    assert single["interval"] == "single" and math.isnan(single["low"])


def test_a_task_that_is_not_solved_or_not_has_students_t(write_run, tmp_path):
    for seed, score in enumerate([1.0, 0.5]):
        write_run("meta_rl/other", "amago", seed, score)
    row = summary(tmp_path, "laptop").iloc[0]
    assert row["interval"] == "t" and row["low"] == pytest.approx(0.75 - 12.7062 * 0.25, abs=1e-3)  # t(0.975, 1)
    assert "final return [95%]" in render(summary(tmp_path)) and "ends early" not in render(summary(tmp_path))


def test_the_early_stop_and_what_is_solved_are_said_of_the_tasks_that_state_them(write_run, tmp_path):
    write_run("long_term_memory/popgym/CountRecallEasy", "amago", 0, 1.0)
    assert "ends early" not in (text := render(summary(tmp_path))) and "solved: share" not in text
    write_run("long_term_memory/popgym/RepeatPreviousEasy", "amago", 0, 1.0)
    for corridor in (10, 30):
        write_run(f"long_term_memory/tmaze/passive-{corridor}", "amago", 0, 1.0)
    text = " ".join(render(summary(tmp_path)).split())
    assert "Training on long_term_memory/tmaze/passive-* at the tier laptop ends early" in text
    assert "mean return >= 0.99;" in text
    assert "final return >= 0.95 (long_term_memory/tmaze/passive-*), binomial." in text
    assert "final return >= 0.9 (long_term_memory/popgym/RepeatPreviousEasy), binomial." in text


def test_another_configuration_is_another_row_and_threads_are_none(write_run, tmp_path):
    def config(lr, threads, **device):
        return json.dumps({"budget": {}, "hyperparameters": {"lr": lr, **device}, "settings": {}, "threads": threads})

    task = "long_term_memory/tmaze/passive-10"
    write_run(task, "amago", 0, 1.0, config=config(1e-3, 1))
    write_run(task, "amago", 1, 1.0, config=config(1e-3, 2, device="cpu"))
    write_run(task, "amago", 2, 0.0, config=config(2e-3, 1))
    frame = summary(tmp_path)
    assert sorted(zip(frame["n"], frame["mean"], strict=True)) == [(1, 0.0), (2, 1.0)]
    assert frame["config"].nunique() == 2 and all(digest in render(frame) for digest in frame["config"])


def test_seeds_of_an_agent_that_learns_nothing_are_one(write_tmaze):
    root = write_tmaze({(10, "random"): [0.1] * 5, (30, "random"): [0.1, 0.2]}, updates=0)
    write_tmaze({(10, "amago"): [0.1] * 5})
    frame = summary(root).set_index(["task", "agent"])["n"]
    task = "long_term_memory/tmaze/passive-"
    assert frame[f"{task}10", "random"] == 1 and frame[f"{task}10", "amago"] == 5
    assert frame[f"{task}30", "random"] == 2  # whoever gives different results repeats nothing
    assert "n is 1 for an agent that learns nothing" in render(summary(root))


def test_the_number_of_episodes_does_not_narrow_the_interval(write_tmaze):
    # a curve row holds 100 rollouts; n is the number of seeds
    assert summary(write_tmaze({(10, "amago"): [1.0, 0.5, 0.6]}), "laptop", TMAZE)["n"].tolist() == [3]


def test_order_and_filters(write_tmaze):
    root = write_tmaze({(n, a): [1.0] for n in (100, 10, 30) for a in ("amago-gru", "amago")})
    frame = summary(root, "laptop", TMAZE, agents=["amago"])
    assert [task.rsplit("-")[-1] for task in frame["task"]] == ["10", "30", "100"]
    assert summary(root, "paper", TMAZE).empty and summary(root, task="meta_rl/*").empty
    assert summary(root, task="*/passive-30")["agent"].tolist() == ["amago", "amago-gru"]


def test_protocols_and_tiers_never_share_a_cell(write_tmaze, write_run):
    root = write_tmaze({(10, "amago"): [1.0, 1.0]}, protocol="aaaaaaaa")
    task = "long_term_memory/tmaze/passive-10"
    write_run(task, "amago", 2, 0.0, protocol="bbbbbbbb")
    write_run(task, "amago", 0, 0.5, tier="smoke", protocol="aaaaaaaa")
    frame = summary(root, task=TMAZE)
    assert frame[["tier", "protocol", "n", "mean"]].to_numpy().tolist() == [
        ["laptop", "aaaaaaaa", 2, 1.0],
        ["laptop", "bbbbbbbb", 1, 0.0],
        ["smoke", "aaaaaaaa", 1, 0.5],
    ]


def test_unfinished_runs_and_tuning_seeds(write_tmaze, write_run):
    root = write_tmaze({(10, "amago"): [1.0]})
    write_run("long_term_memory/tmaze/passive-10", "amago", 1, 0.3, status="running", best=0.9)
    write_run("long_term_memory/tmaze/passive-10", "amago", frames.FIRST_TUNING_SEED, 0.1)
    row = summary(root, "laptop", TMAZE).iloc[0]
    assert (row["n"], row["unfinished"], row["mean"], row["best"]) == (1, 1, 1.0, 1.0)
    assert "1 (+1 unfinished)" in render(summary(root, "laptop", TMAZE))


def test_a_finished_run_without_final_evaluation_counts_as_failed(write_tmaze, write_run):
    root = write_tmaze({(10, "amago"): [1.0]})
    write_run("long_term_memory/tmaze/passive-10", "amago", 1, NAN, status="finished", best=1.0)
    row = summary(root, "laptop", TMAZE).iloc[0]
    assert (row["n"], row["failed"], row["best"]) == (2, 1, 1.0)


def test_all_seeds_failed(write_tmaze):
    root = write_tmaze({(10, "amago"): [NAN, NAN]})
    row = summary(root, "laptop", TMAZE).iloc[0]
    assert (row["n"], row["failed"], row["interval"], row["solved"]) == (2, 2, "empty", 0.0)
    assert render(summary(root, "laptop", TMAZE)).splitlines()[1].split()[5:8] == ["2", "2", "-"]


def test_success_is_another_metric(write_tmaze):
    frame = summary(write_tmaze({(10, "amago"): [-0.5, 0.5]}), "laptop", TMAZE, metric="success")
    assert frame["mean"].tolist() == [0.25]
    with pytest.raises(UserError, match="unknown metric 'reward'"):
        summary(metric="reward")


def test_the_interval_of_a_success_ends_at_0_and_1(write_run, tmp_path):
    for seed, score in enumerate([1.0, 0.5]):
        write_run("meta_rl/other", "amago", seed, score)
    row = summary(tmp_path, metric="success").iloc[0]
    assert (row["interval"], row["low"], row["high"]) == ("t", 0.0, 1.0)


def test_what_n_is_1_means_is_said_where_some_n_is_1(write_tmaze):
    root = write_tmaze({(10, "amago"): [0.1, 0.2, 0.3]})
    assert "n is 1" not in render(summary(root))


def test_a_row_without_an_agent_is_an_error_in_one_line(write_run, tmp_path):
    write_run("meta_rl/other", "amago", 0, 1.0)
    folder = tmp_path / "reference" / "laptop"
    folder.mkdir(parents=True)
    for file in tmp_path.glob("runs/**/*.csv"):
        (folder / file.name).write_text(file.read_text().replace(",amago,", ",,").replace(":amago:", "::"))
    shutil.rmtree(tmp_path / "runs")
    with pytest.raises(UserError, match=r"names no task or no agent"):
        summary(tmp_path)


def test_a_metric_that_a_task_lacks_is_no_failed_run(write_tmaze, write_run):
    root = write_tmaze({(10, "amago"): [1.0, 0.5, NAN]}, success=None)
    row = summary(root, "laptop", metric="success").iloc[0]
    assert (row["n"], row["failed"], row["interval"]) == (3, 1, "undefined") and math.isnan(row["mean"])
    assert row["solved"] == pytest.approx(1 / 3)  # by the return, whatever the metric
    assert "undefined" in render(summary(root, metric="success"), metric="success").splitlines()[1]


def test_csv_gives_the_numbers_back(write_tmaze):
    frame = summary(write_tmaze({(10, "amago"): [0.1, 0.2, 0.7], (30, "amago"): [1.0]}), "laptop", TMAZE)
    text = render(frame, "csv")
    again = pd.read_csv(io.StringIO(text), keep_default_na=False, na_values={"low": "", "high": ""})
    pd.testing.assert_frame_equal(again, frame, check_dtype=False)
    assert text == render(frame, "csv")


def test_seeds_with_one_training_count_once_and_are_named(write_run, tmp_path):
    for seed, stream in enumerate(["aa", "aa", "bb", "aa", "", ""]):
        write_run("meta_rl/other", "amago", seed, 0.5, stream=stream)
        write_run("meta_rl/other", "random", seed, 0.1 * seed, stream="cc", updates=0)
    write_run("meta_rl/other", "amago-gru", 0, 0.5, stream="aa")
    frame = summary(tmp_path).set_index("agent")
    assert frame["n"].to_dict() == {"amago": 4, "amago-gru": 1, "random": 6}
    said = "training equal bit for bit, counted once: amago on meta_rl/other, seeds 1, 3 of seed 0."
    assert [line for line in render(summary(tmp_path)).splitlines() if "bit for bit" in line] == [said]


def test_text_and_markdown(write_tmaze):
    frame = summary(write_tmaze({(10, "amago"): [1.0] * 5}), "laptop", TMAZE)
    text, markdown = render(frame), render(frame, "markdown")
    assert "1.000         degenerate  1.000   1.000 [0.478, 1.000]" in text
    assert "max in training" in text and "final return " in text and "(20 rollouts each)" in " ".join(text.split())
    assert ">= 0.95 (long_term_memory/tmaze/passive-10)" in text
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len(lines) == 3 and len({line.count("|") for line in lines}) == 1
    assert render(frame.iloc[:0]) == "no runs match\n"
    with pytest.raises(UserError, match="unknown format 'html'"):
        render(frame, "html")


def test_no_zero_has_a_sign_and_no_mean_is_outside_its_interval():
    assert text.number(-1e-9) == "0.000" and text.interval(-1e-4, -2e-4, 2e-4) == "0.000 [0.000, 0.000]"
    assert text.interval(0.994, 0.991, 0.997) == "0.994 [0.991, 0.997]"  # with two digits 0.994 is not in [0.99, 1.00]


def test_the_compact_table_keeps_what_tells_rows_apart(write_tmaze, write_run):
    root = write_tmaze({(10, "amago"): [1.0, 0.5], (30, "amago-memoryless"): [0.5, 0.6]})
    shown = render(summary(root), wide=False)
    assert max(map(len, shown.splitlines())) <= 120 and "Tasks are below long_term_memory/tmaze/." in shown
    head, first, second, *_ = (line.split() for line in shown.splitlines())
    assert head == ["task", "tier", "agent", "n", "final", "return", "solved", "[95%]"]
    assert (first[0], second[0]) == ("passive-10", "passive-30")
    write_run("long_term_memory/tmaze/passive-10", "amago", 2, NAN, protocol="bbbbbbbb")
    head = render(summary(root), wide=False).splitlines()[0].split()
    assert {"protocol", "config", "failed"} <= set(head)


def test_agents_may_be_patterns(write_tmaze):
    root = write_tmaze({(10, agent): [1.0] for agent in ("amago", "amago@lr=1e-3", "amago@lr=1e-4", "amago-gru")})
    shown = summary(root, agents=["amago@*", "amago-gru"])["agent"]
    assert sorted(shown) == ["amago-gru", "amago@lr=1e-3", "amago@lr=1e-4"]
    assert len(summary(root)) == 4
