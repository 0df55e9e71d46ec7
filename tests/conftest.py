"""Fixtures that several modules share."""

import os
import tempfile
from collections import Counter

import pytest

# Compiling takes most of the time of tests that use JAX or Numba, and less of it so; programs that tests start inherit it.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("NUMBA_OPT", "1")
# There is a worker for every core. More threads would wait for each other, and PyTorch's do so by keeping a core busy.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What was compiled once in this run of the tests is not compiled again, whichever test, worker or program asks for it.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    compiled = tempfile.TemporaryDirectory(prefix="compiled-", ignore_cleanup_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = compiled.name
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    os.environ["JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES"] = "none"

LONGEST = (
    "lab/test_ray",
    "tools/test_golden",
    "test_differential",
    "dqn/test_atari",
    "paper/test_paper",
    "dqn/test_population",
    "docs/test_docs",
    "paper/test_bicycle",
    "test_sb3",
    "planning/test_jax_sweeps",
    "planning/test_rollouts",
    "cli/test_plan",
    "envs/test_atari_emulators",
    "planning/test_plan",
    "lab/test_processes",
    "dqn/test_host",
    "benchmarks/test_benchmarks",
    "proof/test_proof",
    "planning/test_interpolation",
    "reporting/test_page",
    "envs/minatar/test_parity",
    "mdp/test_solve",
    "interactive/test_demo",
    "lab/kinds/test_train",
    "envs/minatar/test_env",
    "test_td",
    "docs/test_site",
    "paper/test_atari",
)
"""The modules that take longest, the longest first. Begun last, one of them would keep a single worker busy while the others wait."""

LONG_EXAMPLES = ("actiongap.dqn.atari.AtariPopulation",)
"""Docstrings whose examples compile for long, and whose subjects have shorter tests."""


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="run every test: also those marked long, and every case of those marked every(n)")
    parser.addoption("--most", type=int, help="with --long, at most this number of cases of each test that has many, evenly spread")


def pytest_configure(config):
    config.addinivalue_line("markers", "long: skip without --long")
    config.addinivalue_line("markers", "every(n): without --long, run every n-th case only")
    # Several workers would begin with the modules that have most tests, and those are quick ones.
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--long"):
        cases: Counter[tuple] = Counter()
        for item in items:
            left_out = item.get_closest_marker("long") is not None or item.name in LONG_EXAMPLES
            if every := item.get_closest_marker("every"):
                family = item.path, item.originalname
                left_out |= cases[family] % every.args[0] > 0
                cases[family] += 1
            if left_out:
                item.add_marker(pytest.mark.skip(reason="long: run make test-all or pytest --long"))
    rank = {f"{name}.py": k for k, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.as_posix().rpartition("/tests/")[2], len(rank)))


@pytest.fixture
def run(capsys):
    """Run a command in this process: its exit code, output and error output."""
    # Not before the environment is as it should be, which libraries look at once.
    from actiongap.cli import main

    def call(*arguments):
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return left.value.code, captured.out, captured.err

    return call
