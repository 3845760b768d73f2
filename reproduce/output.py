"""Standard output, which only shows what is being done: losing it never ends a training."""

from __future__ import annotations

import io
import os
import sys
import warnings

import click


def say(line: str) -> None:
    """Prints a line. If that fails (`| head`, a full disk), warns once and drops all output from then on."""
    try:
        click.echo(line)
    except (OSError, ValueError) as error:  # ValueError: it is closed
        silence()
        warnings.warn(f"standard output cannot be written ({error}); the command goes on without it", stacklevel=2)


def silence() -> None:
    """Sends standard output nowhere from now on, what is still buffered included."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):  # it has no file descriptor
        sys.stdout = io.StringIO()


def accept_any_text() -> None:
    """Characters that the terminal's encoding lacks are written as escapes; they are no error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
