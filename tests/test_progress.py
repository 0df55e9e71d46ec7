"""Progress of calls in Python: after two seconds, on a terminal, and only of the outermost call."""

import re
import subprocess
import sys

import pytest

from actiongap import _progress
from actiongap._progress import Delayed, StepProgress
from terminal import terminal_output

CALLS = """
import time
import actiongap as ag
from actiongap import _progress
from sklearn.dummy import DummyRegressor
import rich.console, rich.progress

_progress.SHOW_AFTER = {after}

class Slow(DummyRegressor):
    def fit(self, x, y):
        time.sleep(0.05)
        return super().fit(x, y)

def slow(b):
    time.sleep(0.05)
    return b.bellman

mdp = ag.gridworld(4)
batch = ag.collect(mdp, steps=20000, seed=0, progress={progress})
ag.solve(mdp, slow, max_sweeps=10, throw=False, engine="arrays", progress={progress})
ag.policy_iteration(ag.gridworld(60), progress={progress})
ag.q_learning(mdp, steps=20000, seed=0, progress={progress})
ag.sarsa(mdp, steps=20000, seed=0, progress={progress})
ag.fitted_q_iteration(batch, "al:0.5", Slow(), gamma=0.9, iterations=3, actions=4, progress={progress})
ag.prove("baird:0.5", progress={progress})
"""
SHOWN = ("collect: step", "solve gridworld:4,4: sweep", "policy iteration on gridworld:60,60: iteration", "Q-learning: step", "SARSA: step")
SHOWN += ("fitted Q-iteration: iteration", "prove baird:0.5: ")


def test_calls_longer_than_the_limit_show_progress_on_a_terminal():
    written = re.sub(r"\s+", " ", terminal_output(["-c", CALLS.format(after=0.02, progress=None)]))
    assert [text for text in SHOWN if text not in written] == []


@pytest.mark.every(2)
@pytest.mark.parametrize(("after", "progress"), [(0.0001, False), (100.0, None)])
def test_progress_that_is_turned_off_or_not_due_writes_nothing_to_a_terminal(after, progress):
    assert terminal_output(["-c", CALLS.format(after=after, progress=progress)]) == ""


@pytest.mark.long
def test_nothing_is_written_to_a_pipe():
    program = CALLS.format(after=0.0001, progress=True)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("outer", [True, None, False])
def test_only_the_outermost_call_shows_progress(outer, monkeypatch):
    monkeypatch.setattr(_progress, "SHOW_AFTER", 1e-9)
    shown = []
    one, two = Delayed(lambda: shown.append(1), outer), Delayed(lambda: shown.append(2), None)
    one.start()
    two.start()
    assert not two.stop()
    one.stop()
    assert 2 not in shown
    three = Delayed(lambda: shown.append(3), None)
    three.start()
    assert three._timer is not None
    three._timer.join()
    assert three.stop()
    assert shown[-1] == 3


def test_a_bar_that_is_not_shown_starts_no_thread(monkeypatch):
    monkeypatch.setattr(_progress, "is_watched", lambda: False)
    with StepProgress("solve", None) as progress:
        assert progress._delayed._timer is None
        progress("sweep 1", 0.5)


def test_a_bar_counts_as_closed_after_an_error():
    with pytest.raises(KeyboardInterrupt), StepProgress("solve", None):
        raise KeyboardInterrupt
    assert Delayed._open == 0


@pytest.mark.parametrize("stderr", [None, "closed"])
def test_standard_error_may_be_absent_or_closed(stderr, monkeypatch, tmp_path):
    file = (tmp_path / "log").open("w")
    file.close()
    monkeypatch.setattr(sys, "stderr", file if stderr else None)
    assert not _progress.is_watched()
