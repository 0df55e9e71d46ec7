"""Examples of modules that are about a package are tried where it is installed."""

from importlib.util import find_spec

ABOUT = {"src/actiongap/sb3/agent.py": "stable_baselines3", "src/actiongap/sb3/dqn.py": "stable_baselines3"}
ABOUT |= {"src/actiongap/sb3/qrdqn.py": "sb3_contrib"}
collect_ignore = [path for path, package in ABOUT.items() if find_spec(package) is None]
