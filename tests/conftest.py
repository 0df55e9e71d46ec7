"""Fixtures that several modules share."""

import pytest

from actiongap.cli import main


@pytest.fixture
def run(capsys):
    """Run a command in this process: its exit code, output and error output."""

    def call(*arguments):
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return left.value.code, captured.out, captured.err

    return call
