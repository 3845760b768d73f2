"""What the executor for Slurm tells submitit and Slurm, and makes of their answers; both are stand-ins here."""

import os
import signal
import subprocess
import sys
import types

import pytest

from benchmarks.places import open_place, queue
from benchmarks.places.local import Alone
from benchmarks.places.slurm import Slurm, Start, minutes
from benchmarks.places.slurm_queue import queued, submitted
from benchmarks.places.sweep import sweep
from benchmarks.runs.job import Job
from results.errors import UserError

TASK = "long_term_memory/tmaze/passive-10"
JOBS = [Job(TASK, "random", seed=seed) for seed in range(3)]


class Submitit:
    """Takes the place of the package: the arrays that were submitted, and with which parameters."""

    def __init__(self):
        self.arrays, self.parameters = [], []
        self.helpers = types.SimpleNamespace(DelayedSubmission=lambda *call: call)

    def SlurmExecutor(self, folder, starts, python):
        folder.mkdir(parents=True, exist_ok=True)
        return self

    def update_parameters(self, **parameters):
        self.parameters.append(parameters)

    def map_array(self, function, records):
        self.arrays.append(records)
        array = f"{len(self.arrays)}0"
        ids = [f"{array}_{i}" for i in range(len(records))] if len(records) > 1 else [array]
        return [types.SimpleNamespace(job_id=id) for id in ids]


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """`queue` is what squeue prints, "" when nothing is queued; `asked` are the command lines of squeue and scancel."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = """#!/bin/sh
        echo "$(basename "$0") $*" >>"{0}/asked"
        if [ -e "{0}/broken" ]; then echo no answer >&2; exit 1; fi
    """
    for name, last in {"squeue": 'cat "{0}/queue"', "scancel": ""}.items():
        (folder / name).write_text((script + last).format(folder))
        (folder / name).chmod(0o755)
    (folder / "queue").touch()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setitem(sys.modules, "submitit", Submitit())
    return types.SimpleNamespace(
        submitit=sys.modules["submitit"],
        queue=(folder / "queue").write_text,
        break_down=(folder / "broken").touch,
        asked=lambda: (folder / "asked").read_text().splitlines(),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90", 90), ("90:30", 91), ("4:00:00", 240), ("0:05:01", 6), ("2-0", 2880), ("1-12:30", 2190), ("1-0:0:1", 1441)],
)
def test_time_limits_are_read_as_slurm_reads_them(text, expected):
    assert minutes(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "1:2:3:4", "-5", "1h", "2-"])
def test_what_is_no_time_limit_is_refused(text):
    with pytest.raises(UserError, match="is no time limit"):
        minutes(text)


def test_a_limit_in_which_no_run_gets_anywhere_is_refused():
    with pytest.raises(UserError, match="too short: a start needs at least 5 minutes"):
        minutes("4:59")


def test_an_array_has_one_run_a_task_and_what_the_user_asks_for(cluster, tmp_path):
    slurm = Slurm(partition="gpu", time="2-00:00:00", gpus=1, memory="16G", slurm={"account": "lab"})
    slurm.submit(JOBS, tmp_path)
    ((records,), (parameters,)) = cluster.submitit.arrays, cluster.submitit.parameters
    assert [Job.from_json(record) for record in records] == JOBS
    assert parameters["time"] == 2880
    assert (parameters["partition"], parameters["mem"], parameters["gpus_per_node"]) == ("gpu", "16G", 1)
    assert parameters["cpus_per_task"] == 1
    assert parameters["additional_parameters"] == {"requeue": True, "account": "lab"}
    assert slurm.cancel_command == "scancel 10"


def test_what_the_user_does_not_say_is_left_to_the_cluster(cluster, tmp_path):
    Slurm().submit(JOBS, tmp_path)
    assert not {"partition", "mem", "gpus_per_node"} & cluster.submitit.parameters[0].keys()


def test_runs_have_as_many_cores_as_threads_unless_more_are_asked_for(cluster, tmp_path):
    Slurm().submit([Job(TASK, "amago", threads=3)], tmp_path / "a")
    Slurm(cpus=5).submit([Job(TASK, "amago", threads=3)], tmp_path / "b")
    assert [parameters["cpus_per_task"] for parameters in cluster.submitit.parameters] == [3, 5]


def test_more_runs_than_an_array_holds_are_several_arrays(cluster, tmp_path):
    slurm = Slurm()
    slurm.submit([Job(TASK, "random", seed=seed) for seed in range(2001)], tmp_path)
    assert [len(records) for records in cluster.submitit.arrays] == [1000, 1000, 1]
    assert slurm.cancel_command == "scancel 10 20 30"


def test_what_is_queued_or_running_is_followed_and_not_submitted(cluster, tmp_path):
    Slurm().submit(JOBS[:2], tmp_path)
    cluster.queue("10_0 RUNNING\n10_1 PENDING\n")
    again = Slurm()
    again.submit(JOBS, tmp_path)
    assert [[Job.from_json(record) for record in records] for records in cluster.submitit.arrays] == [
        JOBS[:2],
        JOBS[2:],
    ]
    cluster.queue("10_0 RUNNING\n10_1 PENDING\n20 CONFIGURING\n")
    assert again.poll() == {JOBS[0]: "running", JOBS[1]: "queued", JOBS[2]: "running"}


def test_a_run_that_has_left_the_queue_is_submitted_again(cluster, tmp_path):
    Slurm().submit(JOBS, tmp_path)
    cluster.queue("10_1 PENDING\n")
    assert submitted(tmp_path) == {JOBS[1].run_id: ("10_1", JOBS[1], "queued")}
    Slurm().submit(JOBS, tmp_path)
    assert [Job.from_json(record) for record in cluster.submitit.arrays[1]] == [JOBS[0], JOBS[2]]


def test_status_counts_what_waits_in_slurms_queue(cluster, tmp_path):
    Slurm().submit(JOBS, tmp_path)
    cluster.queue("10_0 RUNNING\n10_1 PENDING\n10_2 COMPLETING\n")
    assert queue.queued(tmp_path) == [JOBS[1]]
    cluster.break_down()
    assert queue.queued(tmp_path) == []


def test_only_jobs_of_ours_are_asked_for(cluster):
    queued()
    assert " -n amago-bench " in cluster.asked()[0]


def test_nothing_is_asked_of_slurm_where_nothing_was_submitted(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "")
    assert submitted(tmp_path) == {}


def test_while_slurm_does_not_answer_all_stands_as_before(cluster, tmp_path):
    slurm = Slurm()
    slurm.submit(JOBS, tmp_path)
    cluster.queue("10_0 RUNNING\n10_1 PENDING\n")
    before = slurm.poll()
    assert before == {JOBS[0]: "running", JOBS[1]: "queued", JOBS[2]: "ended"}
    cluster.break_down()
    assert slurm.poll() == before
    with pytest.raises(UserError, match=r"^squeue: no answer$"):
        queued()


def test_cancelling_names_the_jobs_that_have_not_ended(cluster, tmp_path):
    slurm = Slurm()
    slurm.submit(JOBS, tmp_path)
    cluster.queue("10_0 RUNNING\n10_1 PENDING\n")
    slurm.poll()
    slurm.cancel()
    assert cluster.asked()[-1] == "scancel 10_0 10_1"


def test_the_sweep_leaves_its_jobs_alone_after_ctrl_c(cluster, tmp_path):
    def stop(states):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(JOBS, tmp_path, Slurm(), stop)
    assert not any(line.startswith("scancel") for line in cluster.asked())


def test_what_became_of_a_run_is_the_last_line_of_its_log(cluster, tmp_path):
    slurm = Slurm()
    slurm.submit(JOBS, tmp_path)
    JOBS[0].log(tmp_path).parent.mkdir(parents=True)
    JOBS[0].log(tmp_path).write_text("Traceback\nMemoryError: too large\n\n")
    assert slurm.collect(JOBS[0]) == ("failed", "MemoryError: too large")
    assert slurm.collect(JOBS[1]).status == "lost"


def test_what_is_replaced_is_discarded_once_and_not_at_each_start(cluster, tmp_path):
    job = Job(TASK, "random", replace=True)
    job.folder(tmp_path).mkdir(parents=True)
    (job.folder(tmp_path) / "config.json").write_text("{}")
    Slurm().submit([job], tmp_path)
    assert not (job.folder(tmp_path) / "config.json").exists()
    assert not Job.from_json(cluster.submitit.arrays[0][0]).replace


def test_a_start_makes_the_run_and_a_next_one_finds_it_made(cluster, tmp_path):
    handler = signal.getsignal(signal.SIGTERM)
    try:
        start = Start(tmp_path)
        start(JOBS[0].to_json())
        function, record = start.checkpoint(JOBS[0].to_json())
        function(record)
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert "is finished already" in JOBS[0].log(tmp_path).read_text()


def test_a_run_that_fails_fails_its_job_with_its_last_line(cluster, tmp_path):
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(RuntimeError, match="unknown task 'nowhere'"):
            Start(tmp_path)(Job("nowhere", "random").to_json())
    finally:
        signal.signal(signal.SIGTERM, handler)


def test_how_a_run_ended_that_could_say_nothing_is_in_its_log(cluster, tmp_path, monkeypatch):
    handler = signal.getsignal(signal.SIGTERM)
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    start = Start(tmp_path)
    monkeypatch.setattr(start, "_alone", Alone(lambda job, root: [sys.executable, "-c", code]))
    try:
        with pytest.raises(RuntimeError, match=r"^killed by SIGKILL$"):
            start(JOBS[0].to_json())
    finally:
        signal.signal(signal.SIGTERM, handler)
    slurm = Slurm()
    slurm.submit(JOBS, tmp_path)
    assert slurm.collect(JOBS[0]) == ("failed", "killed by SIGKILL")


def test_the_warning_of_slurm_does_not_end_the_process_of_a_run(tmp_path):
    code = (
        "import os, signal; from benchmarks.runs import job\n"
        "job.make = lambda *_: os.kill(os.getpid(), signal.SIGUSR2)\n"
        f"job.main({JOBS[0].to_json()!r}, {str(tmp_path)!r})"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_without_submitit_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(UserError, match=r"^--on slurm needs submitit: pip install 'amago-bench\[slurm\]'$"):
        open_place("slurm")


def test_what_sbatch_objects_to_is_one_line(cluster, tmp_path, monkeypatch):
    def refuse(function, records):
        raise RuntimeError("sbatch: error: invalid partition\nsbatch: error: Batch job submission failed")

    monkeypatch.setattr(cluster.submitit, "map_array", refuse)
    with pytest.raises(UserError, match=r"^Slurm did not take the jobs: sbatch: error: invalid partition "):
        Slurm(partition="nowhere").submit(JOBS, tmp_path)


def test_away_from_a_cluster_one_line_says_so(cluster, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match=r"^there is no Slurm here: the command squeue is missing"):
        queued()


def test_a_share_of_a_gpu_is_refused():
    with pytest.raises(UserError, match=r"^--gpus 0.5: Slurm gives a run whole GPUs only$"):
        open_place("slurm", gpus=0.5)


@pytest.mark.parametrize(("place", "option"), [("local", "partition"), ("slurm", "address"), ("ray", "time")])
def test_an_option_of_another_place_is_refused(place, option):
    with pytest.raises(UserError, match=f"^--{option} means nothing for --on {place}"):
        open_place(place, **{option: "x"})
