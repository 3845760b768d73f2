"""The command, called in this process."""

import pytest

from reproduce.cli import main


@pytest.fixture
def command(capsys):
    """Calls `amago-bench`: (exit code, output, errors)."""

    def run(*arguments):
        with pytest.raises(SystemExit) as end:
            main(arguments)
        written = capsys.readouterr()
        return end.value.code, written.out, written.err

    return run
