"""Memory limits of a process, with and without a container."""

import pytest

from actiongap import _system as machine


@pytest.mark.parametrize(
    ("limit", "stat", "free"),
    [("8000", "anon 5000\ninactive_file 1500\n", 2500), ("8000", "", 1000), ("6000", "", 0), ("max", "inactive_file 1500\n", None)],
)
def test_memory_that_a_container_uses_is_not_free(limit, stat, free, tmp_path, monkeypatch):
    for name, text in {"memory.max": limit, "memory.current": "7000", "memory.stat": stat}.items():
        (tmp_path / name).write_text(f"{text}\n")
    without = machine.free_memory()
    monkeypatch.setattr(machine, "GROUP", tmp_path)
    assert machine.free_memory() == free if free is not None else machine.free_memory() > without / 2 > 8000


def test_without_a_cgroup_limit_free_memory_is_the_machine_s(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "GROUP", tmp_path)
    assert machine.free_memory() > 8000
