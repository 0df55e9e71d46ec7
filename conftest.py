"""Skip the doctests of modules that need a package which is not installed."""

from importlib.util import find_spec

NEEDS = {"src/actiongap/sb3.py": "stable_baselines3"}
collect_ignore = [path for path, package in NEEDS.items() if find_spec(package) is None]
