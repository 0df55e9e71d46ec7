"""The server of commands, and folders for it."""

from __future__ import annotations

import importlib.util

import pytest

from faults import samples
from faults.cases import Cases
from faults.commands import Server, need, remove, sandbox


@pytest.fixture(scope="session")
def server():
    """Runs commands in forked processes."""
    folder = sandbox()
    started = Server(folder)
    yield started
    started.stop()
    remove(folder)


@pytest.fixture
def place():
    """A folder that the commands can write to."""
    folder = sandbox()
    yield folder
    remove(folder)


@pytest.fixture(scope="session")
def originals(server):
    """A study, a plan and what belongs to them, finished and unfinished, to be copied."""
    folder = sandbox()
    samples.make_all(server, folder)
    yield folder
    remove(folder)


@pytest.fixture(scope="session")
def agent(server):
    """A trained agent and its weights."""
    need(importlib.util.find_spec("jax") is not None, "agents need JAX: pip install 'actiongap[jax]'")
    folder = sandbox()
    samples.make_agent(server, folder)
    yield folder
    remove(folder)


@pytest.fixture
def thorough(request):
    """Whether every test is run."""
    return request.config.getoption("--long")


@pytest.fixture
def cases(request, thorough):
    """The cases of a test."""
    return Cases(request.node, thorough, request.config.getoption("--most"))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """Fail a test once, with all of its cases that failed."""
    result = yield
    if "cases" in pyfuncitem.funcargs:
        pyfuncitem.funcargs["cases"].finish()
    return result
