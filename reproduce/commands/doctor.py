"""The command doctor: is this machine ready, and what would a run record about it?"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

from reproduce import options

LOCK = Path(__file__).resolve().parents[2] / "requirements.lock"  # only in a checkout
AUDITED = ("long_term_memory/tmaze/passive-10", "amago")  # a run that uses every stream there is
NEEDED_GB = {"memory": 2.0, "disk": 2.0}  # for one laptop run


@click.command()
@click.option("--seeds", is_flag=True, help="Audit the random streams of a run instead.")
@options.results
def doctor(seeds: bool, root: Path | None) -> None:
    """Check whether this machine is ready for runs.

    Checks Python, packages, cores, memory, disk, attention and the results folder. Exits with 1 if something is wrong.
    With --seeds it makes a small run of `amago`, prints every random stream that it used, with its first value, and
    exits with 1 if two are equal.

    \b
    amago-bench doctor
    amago-bench doctor --seeds
    """
    from results.store import results_root

    if seeds:
        return audit_seeds()
    wrong = 0
    for name, value, problem in _checks(root or results_root()):
        wrong += bool(problem)
        click.echo(f"{'!' if problem else ' '} {name:<10} {value}" + (f"  <- {problem}" if problem else ""))
    if wrong:
        raise click.exceptions.Exit(1)


def audit_seeds() -> None:
    """Print the streams; exit 1 if two have the same first value, or one seeded two generators."""
    heard = _streams()
    first: dict[int, str] = {}
    equal = 0
    for name, value in heard:
        twin = first.get(value)
        first.setdefault(value, name)
        equal += twin is not None
        click.echo(f"{' ' if twin is None else '!'} {value:016x}  {name}" + (f"  <- equal to {twin}" if twin else ""))
    click.echo(f"{len(heard)} streams, {equal} equal to another")
    if equal:
        raise click.exceptions.Exit(1)


def _streams() -> list[tuple[str, int]]:
    """All streams of a run, as (name, first value): those that it uses, and those of the analysis."""
    from inspect import signature

    import numpy as np

    from amago_core.seeding import listening
    from analysis.stats import bootstrap, permutation_test
    from benchmarks.runs.job import Job, make

    with listening() as heard, tempfile.TemporaryDirectory() as folder:
        make(Job(*AUDITED, trackers=()), Path(folder), say=lambda line: None)
    streams = [(" / ".join(map(str, name)), value) for name, value in heard]
    for function in (bootstrap, permutation_test):
        seed = np.random.SeedSequence(signature(function).parameters["seed"].default)
        streams.append((f"analysis / {function.__name__}", int(seed.generate_state(1, np.uint64)[0])))
    return streams


Check = tuple[str, str, str]  # what, its value, what is wrong with it


def _checks(root: Path) -> Iterator[Check]:
    yield "python", sys.version.split()[0], "" if sys.version_info >= (3, 11) else "3.11 or newer is needed"
    yield from _torch()
    yield from _machine(root)
    if LOCK.exists():
        yield "packages", _packages(), ""
    yield "results", str(root), _unwritable(root)


def _torch() -> Iterator[Check]:
    try:
        import torch
        from torch.backends import mkldnn

        from amago_core.nets.attention import choose
    except ImportError as error:
        yield "torch", "missing", f"{error}; pip install torch"
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    named = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    yield "torch", f"{torch.__version__}, {torch.get_num_threads()} threads, device {named}", ""
    backend, _ = choose("auto", device, 32)
    _, why = choose("flash", device, 32)
    yield "attention", f"{backend}" + (f" ({why})" if why else ""), ""
    yield "bfloat16", "yes" if device == "cuda" or mkldnn.is_available() else "slow", ""


def _machine(root: Path) -> Iterator[Check]:
    from benchmarks.places.cores import available_cores

    yield "cores", f"{available_cores()} of {os.cpu_count()}", ""
    if hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
        yield "memory", f"{free:.1f} GiB free", _too_little("memory", free)
    free = shutil.disk_usage(_existing(root)).free / 2**30
    yield "disk", f"{free:.1f} GiB free", _too_little("disk", free)


def _too_little(what: str, free: float) -> str:
    return "" if free >= NEEDED_GB[what] else f"a run may need {NEEDED_GB[what]:.0f} GiB"


def _packages() -> str:
    """How many packages have their locked version, and the first that does not."""
    pins = re.findall(r"^([\w.-]+)==(\S+)$", LOCK.read_text(), re.MULTILINE)
    other = [f"{name} {found}, locked {pin}" for name, pin in pins if (found := _version(name)) != pin]
    return f"{len(pins) - len(other)} of {len(pins)} as locked" + (f"; {other[0]}" if other else "")


def _version(name: str) -> str:
    try:
        return version(name).partition("+")[0]
    except PackageNotFoundError:
        return "missing"


def _unwritable(root: Path) -> str:
    try:
        with tempfile.TemporaryFile(dir=_existing(root)):
            return ""
    except OSError as error:
        return f"cannot write there: {error.strerror}"


def _existing(root: Path) -> Path:
    """The folder itself, or the one in which the first run will make it."""
    return next(folder for folder in (root, *root.absolute().parents) if folder.exists())


COMMANDS = (doctor,)
