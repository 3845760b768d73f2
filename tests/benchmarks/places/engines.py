"""A real Slurm and a real Ray, each with two nodes of one core on this machine, one of which can be lost.

Both live in a temporary folder under the processes of the test and end with it. A test that asks for one is skipped,
with the reason, where it is not installed or does not start.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

START_S = 60.0
PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"  # the daemons are there
SLURM_CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
# A requeued job waits until the credential of its first start has expired: 2 minutes by default, 5 s at least.
AuthInfo=socket={folder}/munge.socket,cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ReturnToService=2
KillWait=5
"""


@dataclass(frozen=True)
class Slurm:
    """`environment` is what a process needs to use it; `nodes` are the daemons of its nodes, by name."""

    environment: Mapping[str, str]
    nodes: Mapping[str, subprocess.Popen[bytes]]

    def ask(self, *command: str) -> str:
        done = subprocess.run(command, env=os.environ | self.environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{command} answered {done.stderr}"
        return done.stdout.strip()

    def warn(self, job: str) -> None:
        """Tells a job that its time is up. `scancel` may complain, since the job ends meanwhile."""
        subprocess.run(["scancel", "--signal=USR2", job], env=os.environ | self.environment)

    def running(self) -> dict[str, str]:
        """The node of every running job, by its id."""
        return dict(line.split() for line in self.ask("squeue", "-h", "-r", "-t", "R", "-o", "%i %N").splitlines())

    def processes(self, **variables: str) -> list[int]:
        """Those of its daemons' and jobs' processes that have these environment variables."""
        wanted = {f"{name}={value}".encode() for name, value in {**self.environment, **variables}.items()}
        return [process for process in processes() if wanted <= set(_read(process, "environ").split(b"\0"))]

    def lose(self, node: str) -> None:
        """Kills the node's daemon and all processes of its jobs, as a power cut does; the controller is told."""
        lost = self.processes(SLURMD_NODENAME=node)
        stewards = {_parent(process) for process in lost} - set(lost)  # they would report how their jobs ended
        for process in (self.nodes[node].pid, *filter(_is_steward, stewards), *lost):
            _kill(process)
        self.ask("scontrol", "update", f"nodename={node}", "state=down", "reason=lost")


@contextlib.contextmanager
def slurm(nodes: tuple[str, ...] = ("a", "b")) -> Iterator[Slurm]:
    if absent := [name for name in ("munged", "slurmctld", "slurmd", "sbatch") if not shutil.which(name, path=PATH)]:
        pytest.skip(f"{absent[0]} is not installed (on Debian: apt-get install slurm-wlm munge)")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True)))
        environment = {"SLURM_CONF": str(_configure(folder, nodes))}
        start = lambda *command: stack.enter_context(_daemon(folder, environment, *command))  # noqa: E731
        files = {"key-file": "key", "socket": "munge.socket"}
        files |= {f"{kind}-file": f"munged.{kind}" for kind in ("pid", "log", "seed")}
        start("munged", "--force", "--foreground", *(f"--{name}={folder / file}" for name, file in files.items()))
        _wait_until((folder / "munge.socket").exists, "munged", folder)
        start("slurmctld", "-D")
        engine = Slurm(environment, {node: start("slurmd", "-D", "-N", node) for node in nodes})
        _wait_until(lambda: _idle(engine) == len(nodes), "Slurm", folder)
        stack.callback(_end_jobs, engine)
        yield engine


def _configure(folder: Path, nodes: tuple[str, ...]) -> Path:
    host = platform.node().partition(".")[0]
    lines = [SLURM_CONF.format(folder=folder, host=host, user=getpass.getuser(), port=_free_port())]
    for node in nodes:
        (folder / node).mkdir()
        lines.append(f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={_free_port()} RealMemory=2000")
    lines.append(f"PartitionName=main Nodes={','.join(nodes)} Default=YES MaxTime=INFINITE State=UP\n")
    (folder / "state").mkdir()
    (folder / "key").write_bytes(os.urandom(1024))
    (folder / "key").chmod(0o400)
    (folder / "slurm.conf").write_text("\n".join(lines))
    return folder / "slurm.conf"


def _idle(engine: Slurm) -> int:
    asked = subprocess.run(
        ["sinfo", "-h", "-N", "-t", "idle"], env=os.environ | engine.environment, capture_output=True
    )
    return len(asked.stdout.splitlines())


def _end_jobs(engine: Slurm) -> None:
    for process in engine.processes():
        if b"SLURM_JOB_ID=" in _read(process, "environ") or _is_steward(process):
            _kill(process)


@dataclass(frozen=True)
class Ray:
    """`address` is what `ray.init` takes. `lose` kills the daemon of the node that is not the head, `daemon`."""

    address: str
    daemon: int
    lose: Callable[[], None]

    def hosts(self, process: int) -> bool:
        """Whether a process runs on that node."""
        while process > 1 and process != self.daemon:
            process = _parent(process)
        return process == self.daemon


@contextlib.contextmanager
def ray() -> Iterator[Ray]:
    cluster_utils = pytest.importorskip("ray.cluster_utils", reason="ray is not installed (pip install ray)")
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        node = {"num_cpus": 1, "object_store_memory": 100 << 20, "temp_dir": folder}
        cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
        try:
            other = cluster.add_node(**node)
            daemon = other.all_processes["raylet"][0].process.pid
            yield Ray(cluster.address, daemon, lambda: cluster.remove_node(other, allow_graceful=False))
        finally:
            cluster.shutdown()


@contextlib.contextmanager
def _daemon(folder: Path, environment: Mapping[str, str], *command: str) -> Iterator[subprocess.Popen[bytes]]:
    with open(folder / "daemons.log", "ab") as log:
        variables = os.environ | environment | {"PATH": PATH}
        process = subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until(condition: Callable[[], object], what: str, folder: Path) -> None:
    deadline = time.monotonic() + START_S
    while not condition():
        if time.monotonic() > deadline:
            last = (folder / "daemons.log").read_text(errors="replace").splitlines()[-1:]
            pytest.skip(f"{what} did not start in {START_S:.0f} s: {' '.join(last)}")
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def processes(*words: str) -> list[int]:
    """The processes of this machine whose command line has all of these words as parts."""
    found = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    return [process for process in found if all(word.encode() in _read(process, "cmdline") for word in words)]


def _read(process: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{process}/{name}").read_bytes()
    except OSError:  # it has ended, or is not ours
        return b""


def _parent(process: int) -> int:
    """0 if the process has ended."""
    return int((_read(process, "stat").rpartition(b")")[2].split() or (b"", b"0"))[1])


def _is_steward(process: int) -> bool:
    return _read(process, "comm").startswith(b"slurmstepd")


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
