"""Fixtures that several modules share."""

import os

import pytest

from actiongap.cli import main

# Compiling takes most of the time of tests that use JAX, and less of it so; programs that tests start inherit it.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")


@pytest.fixture
def run(capsys):
    """Run a command in this process: its exit code, output and error output."""

    def call(*arguments):
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return left.value.code, captured.out, captured.err

    return call
