"""The command as a user meets it."""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from reproduce import cli as module
from reproduce.cli import cli, main
from reproduce.commands import doctor

TASK = "long_term_memory/tmaze/passive-10"
LONG = "long_term_memory/tmaze/passive-10000"  # without a laptop budget
RUN_ID = f"smoke:{TASK}:random:0"

BROKEN = """
import os, time
from benchmarks.agents.random import Random
from benchmarks.agents.protocol import Progress

class Raises(Random):
    def learn(self, envs, seeds):
        raise RuntimeError("broken on purpose")

class Dies(Random):
    def learn(self, envs, seeds):
        os._exit(3)

class Endless(Random):
    def learn(self, envs, seeds):
        while True:
            time.sleep(0.05)
            envs.reset()
            envs.step(envs.action_space.sample())
            yield Progress()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("AMAGO_BENCH_RESULTS", str(tmp_path / "results"))
    monkeypatch.delenv("AMAGO_BENCH_DEBUG", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_list_fits_a_terminal_unless_it_is_to_be_wide():
    narrow, wide = (CliRunner().invoke(cli, ["list", *more]).output for more in ([], ["--wide"]))
    assert max(map(len, narrow.splitlines())) <= 120 and TASK in narrow and "high from" not in narrow
    assert "high from" in wide


def test_the_version():
    assert re.fullmatch(
        r"amago-bench(, from a checkout .*| \d+\.\d+\.\d+\S*)\n", CliRunner().invoke(cli, ["--version"]).output
    )


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [
        (["lst"], "list"),
        (["run", "--tsk", TASK], "--task"),
        (["run", "--task", "long_term_memory/tmaze/pasive-10"], TASK),
        (["run", "--task", TASK, "--agent", "amagoo"], "amago"),
        (["run", "--task", TASK, "--tier", "lapptop"], "laptop"),
        (["run", "--env", "CartPol-v1"], "CartPole-v1"),
        (["sweep", "--task", "long_term_memory/tmase/*", "--agent", "random"], "long_term_memory/tmaze/"),
        (["sweep", "--task", TASK, "--agent", "randm"], "random"),
        (["figure", "passive-maze"], "passive-tmaze"),
        (["evaluate", RUN_ID], "status"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_unknown_gets_one_line_with_the_nearest_names(command, arguments, nearest):
    code, out, err = command(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("amago-bench: ")
    assert nearest in err.removeprefix("amago-bench")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run"], "either --task or --env"),
        (["run", "--task", ""], "either --task or --env"),
        (["run", "--task", TASK, "--env", "CartPole-v1"], "either --task or --env"),
        (["run", "--task", TASK, "--set", "lr"], "key=value"),
        (["run", "--task", TASK, "--agent", ":A"], "module:Class"),
        (["run", "--task", TASK, "--agent", "random@foo=1"], "random has no hyper-parameters; leave foo out"),
        (["sweep", "--task", TASK, "--agent", "oracle@x=1"], "oracle has no hyper-parameters; leave x out"),
        (["run", "--task", TASK, "--seed", "-1"], "--seed"),
        (["sweep", "--task", TASK, "--agent", "random", "--seeds", "4-0"], "0-4, or 0,1"),
        (["sweep", "--task", TASK, "--agent", "random", "--workers", "0"], "--workers"),
        (["run", "--task", TASK, "--agent", "random", "--tracker", "wanb"], "unknown tracker 'wanb'; known: "),
        (["run", "--task", TASK, "--agent", "amago", "--set", "lr=1e-4,3e-4"], "key=value"),
        (
            ["sweep", "--task", LONG, "--agent", "random", "--tier", "laptop", "--seeds", "1"],
            "no budget for tier 'laptop'",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(command, arguments, said):
    code, _, err = command(*arguments)
    assert (code, err.count("\n")) == (2, 1)
    assert said in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import os\nA = nothing\n", "NameError: name 'nothing' is not defined ({file}, line 2)"),
        ("class A\n", "SyntaxError: expected ':' (wrong.py, line 1)"),
        ("import nothing_at_all\n", "No module named 'nothing_at_all' ({file}, line 1)"),
        (
            "\n\nclass A:\n    def __init__(self): pass\n",
            "agent wrong:A ({file}, line 3): it cannot be built from a spec",
        ),
        ("A = 3\n", "it cannot be built from a spec"),
        ("B = 3\n", "module wrong has no 'A'"),
    ],
)
def test_a_fault_in_an_agents_module_is_one_line_with_its_place(command, folder, monkeypatch, text, said):
    (folder / "wrong.py").write_text(text)
    monkeypatch.delitem(sys.modules, "wrong", raising=False)
    code, _, err = command("run", "--task", TASK, "--agent", "wrong:A", "--quiet")
    assert (code, err.count("\n")) == (2, 1)
    assert said.format(file=folder / "wrong.py") in err


def test_a_bug_keeps_its_traceback(monkeypatch):
    """Only errors that our own code raised on purpose are a user's; `int` raising inside a library is not."""
    monkeypatch.setattr(module.cli, "main", lambda **_: json.loads("{"))
    with pytest.raises(json.JSONDecodeError):
        main(["list"])


def test_a_librarys_error_is_a_bug_even_where_it_is_installed_beside_us(monkeypatch, tmp_path):
    """In site-packages, or in an environment inside the checkout."""
    monkeypatch.setattr(module, "HOME", tmp_path)
    (tmp_path / "library.py").write_text("def f(**_):\n    raise ValueError\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(module.cli, "main", importlib.import_module("library").f)
    with pytest.raises(ValueError):
        main(["list"])


def test_debug_shows_the_traceback_of_a_users_error(command, monkeypatch):
    monkeypatch.setenv("AMAGO_BENCH_DEBUG", "1")
    assert "Traceback" in command("run", "--task", "nothing")[2]


def test_list_shows_the_scale_of_a_task(command):
    code, out, _ = command("list", "*/passive-10", "--wide")
    head, row = out.splitlines()[:2]
    assert code == 0
    assert head.split() == ["task", "random", "high", "horizon", "tiers", "high", "from"]
    assert row.split() == [TASK, "-0.75", "1", "11", "smoke", "laptop", "paper", "oracle"]


def test_run_status_table_and_evaluate_tell_the_same(command):
    assert command("run", "--task", TASK, "--agent", "random", "--quiet") == (0, "", "")
    lines = command("status", "--tier", "smoke")[1].splitlines()
    assert lines[1].split()[:2] == [RUN_ID, "finished"]
    assert f"smoke:{TASK}:amago:0" in [line.split()[0] for line in lines if "missing" in line]
    rows = command("table", "--tier", "smoke", "--format", "csv")[1].splitlines()
    mean = float(dict(zip(rows[0].split(","), rows[1].split(","), strict=True))["mean"])
    assert f"mean return {mean:.4f}" in command("evaluate", RUN_ID)[1]
    assert "is finished" in command("run", "--task", TASK, "--agent", "random")[1]


def test_a_sweep_leaves_out_what_no_agent_of_it_can_play(command):
    repeat, battleship = (f"long_term_memory/popgym/{name}Easy" for name in ("RepeatPrevious", "Battleship"))
    code, out, _ = command("sweep", "--task", repeat, "--task", battleship, "--agent", "oracle", "--agent", "random")
    assert (code, out.count("finished smoke:")) == (0, 3)
    assert "left out, without such a policy: oracle on long_term_memory/popgym/BattleshipEasy\n" in out
    code, _, err = command("sweep", "--task", battleship, "--agent", "oracle")
    assert code == 2 and "there is no run to make" in err


def test_a_sweep_lists_what_failed_and_how_to_run_only_that_again(command, folder):
    (folder / "broken.py").write_text(BROKEN)
    sweep = ["sweep", "--task", TASK, "--agent", "random", "--agent", "broken:Raises", "--agent", "broken:Dies"]
    code, out, err = command(*sweep, "--seeds", "0,1", "--workers", "2")
    assert (code, out.count("finished smoke:")) == (1, 2)
    assert "4 of 6 runs failed" in err
    assert "broken on purpose" in err
    again = [line.split() for line in err.splitlines() if line.startswith("  amago-bench run")]
    assert [words[words.index("--agent") + 1] for words in again] == ["broken:Raises", "broken:Dies"] * 2
    assert "2 of 6 runs are finished, 4 to make" in command(*sweep, "--seeds", "0,1")[1]
    code, out, _ = command("sweep", "--task", TASK, "--agent", "random", "--seeds", "0-1")
    assert (code, out) == (0, "nothing to run: all 2 runs are finished\n")


def test_a_dry_run_lists_what_a_sweep_would_make(command, folder):
    command("run", "--task", TASK, "--agent", "random", "--quiet")
    sweep = ["sweep", "--task", TASK, "--agent", "amago", "--set", "lr=1e-4,3e-4", "--set", "discounts=(0.9,0.97)"]
    ids = [f"smoke:{TASK}:amago@discounts=0.9+0.97,lr={lr}:{seed}" for seed in (0, 1) for lr in ("1e-4", "3e-4")]
    assert command(*sweep, "--seeds", "2", "--dry-run") == (
        0, "0 of 4 runs are finished, 4 to make:\n" + "".join(f"  {run_id}\n" for run_id in ids), ""
    )  # fmt: skip
    code, out, _ = command("sweep", "--task", TASK, "--agent", "random", "--seeds", "0-1", "--dry-run")
    assert (code, out) == (0, f"1 of 2 runs are finished, 1 to make:\n  smoke:{TASK}:random:1\n")
    assert not list((folder / "results/runs/smoke").rglob("amago*"))


def test_what_ends_with_the_command_cannot_be_left_alone(command):
    code, _, err = command("sweep", "--task", TASK, "--agent", "random", "--detach")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("amago-bench: --detach: runs on local end with this command")


def test_an_option_of_another_place_is_one_line(command):
    code, _, err = command("sweep", "--task", TASK, "--agent", "random", "--partition", "gpu")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("amago-bench: --partition means nothing for --on local")


def test_what_is_only_submitted_is_not_followed(command, monkeypatch):
    """Stopped at once, or never begun to be followed: the runs go on, and the user is told how to end them."""
    monkeypatch.setattr("benchmarks.places.slurm.Slurm", Lasting)
    sweep = ("sweep", "--task", TASK, "--agent", "random", "--on", "slurm")
    assert command(*sweep, "--detach")[:2] == (
        0,
        "0 of 1 runs are finished, 1 to make\n"
        "submitted; `end them` ends them, the same command (without --detach) follows them\n",
    )
    code, out, _ = command(*sweep)
    assert code == 130
    assert out.endswith("the runs go on; `end them` ends them, the same command (without --detach) follows them\n")


class Lasting:
    """An executor whose jobs go on; the user does not want to see it."""

    workers, poll_s, cancel_command = None, 0.0, "end them"

    def submit(self, jobs, root):
        pass

    def poll(self):
        raise KeyboardInterrupt

    def cancel(self):
        raise AssertionError


@pytest.mark.parametrize(("text", "seeds"), [("3", [0, 1, 2]), ("7-7", [7]), ("0,2", [0, 2]), ("1-2,7", [1, 2, 7])])
def test_seeds_mean_the_same_everywhere(command, monkeypatch, text, seeds):
    made = []
    monkeypatch.setattr("reproduce.commands.play.make_all", lambda todo, *rest, **options: made.append(todo) or todo)
    command("sweep", "--task", TASK, "--agent", "random", "--seeds", text)
    command("reproduce", "--figure", "passive-tmaze", "--seeds", text)
    assert [list(dict.fromkeys(job.seed for job in todo)) for todo in made] == [seeds, seeds]


@pytest.mark.parametrize("text", ["0", "x", "1,,2", "-1"])
def test_seeds_of_another_form_are_refused(command, text):
    code, _, err = command("sweep", "--task", TASK, "--agent", "random", "--seeds", text)
    assert (code, err.count("\n")) == (2, 1)
    assert "one alone is 7-7" in err


def test_a_sweep_takes_trackers(command, folder):
    code, _, err = command("sweep", "--task", TASK, "--agent", "random", "--tracker", "wanb")
    assert code == 2 and err.endswith("unknown tracker 'wanb'; known: tensorboard, wandb, or module:Class\n")
    tracker = "class Mine:\n  def __init__(self, run): open(run.folder / 'mine', 'w').close()\n"
    tracker += "  def scalars(self, values, env_steps): raise RuntimeError('no')\n  def close(self): pass\n"
    (folder / "mine_tracks.py").write_text(tracker)
    sweep = ["sweep", "--task", TASK, "--agent", "random", "--seeds", "1", "--tracker", "mine_tracks:Mine"]
    assert command(*sweep)[0] == 0
    run = folder / "results/runs/smoke" / TASK / "random/seed-0"
    assert (run / "mine").exists() and not (run / "tensorboard").exists()
    assert "tracker mine_tracks:Mine failed" in (run / "log.txt").read_text()


def test_status_knows_what_waits_and_what_is_lost(command, folder):
    from benchmarks.places.queue import announcing
    from benchmarks.runs.job import Job

    command("run", "--task", TASK, "--agent", "random", "--quiet")
    run = folder / "results/runs/smoke" / TASK / "random/seed-0"
    (run / "SHA256SUMS").unlink()
    rows = (run / "runs.csv").read_text().splitlines()
    (run / "runs.csv").write_text("\n".join(rows[:2]) + "\n")  # as a kill leaves it
    with announcing(folder / "results") as announce:
        announce([Job(TASK, "random", seed=1)])
        lines = command("status")[1].splitlines()
    assert [line.split()[:2] for line in lines[1:3]] == [[RUN_ID, "lost"], [RUN_ID[:-1] + "1", "queued"]]
    assert "1 lost, 1 queued" in lines[-1]


def test_a_sweep_makes_runs_of_another_configuration_anew_only_with_replace(command, folder):
    agent = "from benchmarks.agents.random import Random\nclass Mine(Random):\n"
    (folder / "mine.py").write_text(f"{agent}    def learn(self, envs, seeds): open('missing')\n")
    command("run", "--task", TASK, "--agent", "mine:Mine", "--threads", "2", "--quiet")
    (folder / "mine.py").write_text(f"{agent}    pass\n")
    sweep = ["sweep", "--task", TASK, "--agent", "mine:Mine"]
    code, _, err = command(*sweep)
    assert (code, err.count("\n")) == (2, 1)
    assert "was made with another threads: 2 -> 1; give --replace" in err
    assert "0 of 1 runs are finished, 1 to make" in command(*sweep, "--replace")[1]
    assert command(*sweep, "--replace")[:2] == (0, "nothing to run: all 1 runs are finished\n")


def test_the_commands_to_run_again_name_the_results_folder(command, folder):
    (folder / "broken.py").write_text(BROKEN)
    err = command("sweep", "--task", TASK, "--agent", "broken:Raises", "--results", str(folder / "elsewhere"))[2]
    (again,) = (line for line in err.splitlines() if line.startswith("  amago-bench run"))
    assert again.endswith(f" --results {folder / 'elsewhere'}")


def test_results_that_are_a_file_are_refused(command, folder, monkeypatch):
    monkeypatch.setenv("AMAGO_BENCH_RESULTS", str(folder / "file"))
    (folder / "file").touch()
    assert command("status")[::2] == (
        2, f"amago-bench: AMAGO_BENCH_RESULTS is {folder / 'file'}, which is a file; set it to a folder\n"
    )  # fmt: skip


def test_status_marks_runs_of_another_commit(command, monkeypatch):
    command("run", "--task", TASK, "--agent", "random", "--quiet")
    assert " older" not in command("status")[1]
    monkeypatch.setattr("benchmarks.runs.record.git_state", lambda: ("f" * 40, False))
    (line,) = (line for line in command("status")[1].splitlines() if line.startswith(RUN_ID))
    assert " older " in line


TUNED = """
from benchmarks.agents.random import Random

class Tuned(Random):
    def __init__(self, spec):
        super().__init__(spec)
        self.a, self.b = spec.settings["a"], spec.settings["b"]
"""


def test_a_misspelt_variable_is_refused_with_the_nearest_one(command, monkeypatch):
    monkeypatch.setenv("AMAGO_BENCH_WORKER", "0")
    line = (
        "amago-bench: nothing reads the environment variable AMAGO_BENCH_WORKER; correct or unset it "
        "(did you mean AMAGO_BENCH_WORKERS"
    )
    code, _, err = command("list")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(line)


def test_a_setting_in_an_agents_name_and_one_given_apart_are_the_same_run(command, folder):
    (folder / "tuned.py").write_text(TUNED)
    named = ["--task", TASK, "--agent"]
    assert command("run", *named, "tuned:Tuned", "--set", "b=2", "--set", "a=1", "--quiet")[0] == 0
    code, out, _ = command("sweep", *named, "tuned:Tuned@a=1,b=2")
    assert (code, out) == (0, "nothing to run: all 1 runs are finished\n")


def test_ctrl_c_leaves_a_row_and_the_same_command_goes_on(folder):
    (folder / "broken.py").write_text(BROKEN)
    arguments = ["sweep", "--task", TASK, "--agent", "broken:Endless", "--workers", "1"]
    repository = module.HOME
    process = subprocess.Popen(
        [sys.executable, "-c", "from reproduce.cli import main; main()", *arguments],
        stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(repository)},
    )  # fmt: skip
    run = folder / "results/runs/smoke" / TASK / "broken:Endless/seed-0"
    deadline = time.monotonic() + 120
    while not (run / "progress.json").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 130
    assert "the same command resumes it" in process.stderr.read()
    assert (run / "runs.csv").read_text().splitlines()[-1].count("interrupted") >= 1


def test_doctor_finds_a_results_folder_that_cannot_be_written(command, folder, monkeypatch):
    (folder / "file").touch()
    code, out, _ = command("doctor", "--results", str(folder / "file/results"))
    assert code == 1
    assert next(line for line in out.splitlines() if line.startswith("!")).startswith("! results")
    monkeypatch.setattr(doctor, "NEEDED_GB", dict.fromkeys(doctor.NEEDED_GB, 0.0))  # this machine may be full
    assert command("doctor")[0] == 0


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_help(name):
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: cli {name}")
