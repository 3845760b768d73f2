"""The command `amago-bench`: its group, and how errors reach a user."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from traceback import walk_tb
from typing import NoReturn

import click

from benchmarks.runs.stop import CALL_AGAIN, Stopped, stop_at_signals
from benchmarks.variables import DEBUG, refuse_unknown
from reproduce import output
from reproduce.commands import bench, doctor, inspect, play, report, show
from reproduce.commands.play import INTERRUPTED
from reproduce.shadows import HOME, PACKAGES
from results.errors import UserError

USAGE = 2
_said: set[str] = set()  # notes already shown


def _version(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    if asked:
        from importlib.metadata import PackageNotFoundError, version

        try:
            click.echo(f"amago-bench {version('amago-bench')}")
        except PackageNotFoundError:
            click.echo("amago-bench, from a checkout that is not installed")
        ctx.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
def cli() -> None:
    """A benchmark and reproduction suite for AMAGO, the in-context reinforcement learning agent.

    \b
    amago-bench list                                    what can be run
    amago-bench run --task T --agent A --tier smoke     one run
    amago-bench sweep --task 'T*' --agent A --agent B   many runs
    amago-bench table                                   results with intervals
    amago-bench COMMAND --help                          more, with examples
    """


for _module in (inspect, show, play, report, doctor, bench):
    for _command in _module.COMMANDS:
        cli.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command and exit.

    The codes: 0 done, 1 something failed, 2 an error that the user can correct, 75 stopped by a signal (call it again
    to go on), 130 stopped by Ctrl-C.
    """
    warnings.showwarning = _note
    output.accept_any_text()
    stop_at_signals()
    try:
        refuse_unknown()
        code = cli.main(args=arguments, prog_name="amago-bench", standalone_mode=False)
    except click.Abort as error:
        code = CALL_AGAIN if isinstance(error.__cause__, Stopped) else INTERRUPTED
        _fail("stopped; the same command resumes it", code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(USAGE)
    except click.ClickException as error:
        _fail(error.format_message())
    except BrokenPipeError:  # `amago-bench table | head`
        output.silence()
        sys.exit(1)
    except (UserError, OSError) as error:
        _fail(str(error))
    except (ValueError, ImportError) as error:
        if not _is_ours(error):
            raise
        hint = "; install the project, see README.md" if isinstance(error, ModuleNotFoundError) else ""
        _fail(f"{error}{hint}")
    sys.exit(code if isinstance(code, int) else 0)


def _note(message: Warning | str, *where: object, **more: object) -> None:
    """Shows a warning as one line, and only once however many tables it concerns."""
    line = f"amago-bench: note: {' '.join(str(message).split())}"
    if line not in _said:
        _said.add(line)
        with contextlib.suppress(OSError, ValueError):  # nobody can be told
            click.echo(line, err=True)


def _is_ours(error: BaseException) -> bool:
    """Whether our own code raised it on purpose; from a library it is a bug, and needs its traceback."""
    *_, (frame, _line) = walk_tb(error.__traceback__)
    file = Path(frame.f_code.co_filename)
    return any(file.is_relative_to(HOME / name) for name in PACKAGES)  # HOME may hold the libraries too


def _fail(message: str, code: int = USAGE) -> NoReturn:
    if os.environ.get(DEBUG) and sys.exc_info()[0]:
        import traceback

        traceback.print_exc()
    click.echo("amago-bench: " + " ".join(message.split()), err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
