"""Environments by name: `minatar/breakout` runs on the device, `atari/pong` and `gym/CartPole-v1` on the host."""

from __future__ import annotations

from actiongap._suggest import nearest
from actiongap.envs.atari import GAMES as ATARI_GAMES
from actiongap.envs.atari import AtariGame, atari_game, check_game
from actiongap.envs.functional import FunctionalEnv
from actiongap.envs.gym import GymEnv, gym_env
from actiongap.envs.minatar import GAMES
from actiongap.mdp.gym import gym_names


def load_environment(name: str) -> FunctionalEnv | GymEnv | AtariGame:
    """Return the environment with this name.

    Examples
    --------
    >>> load_environment("minatar/freeway").actions, load_environment("gym/CartPole-v1").actions
    (('stay', 'up', 'down'), ('0', '1'))
    >>> load_environment("CartPole-v1")
    Traceback (most recent call last):
    ValueError: unknown environment 'CartPole-v1': did you mean gym/CartPole-v1?
    """
    group, _, rest = name.partition("/")
    if group == "gym" and rest:
        return gym_env(rest)
    if group == "atari" and rest:
        return atari_game(rest)
    if group != "minatar" or rest not in GAMES:
        small = [f"minatar/{game}" for game in GAMES]
        choices = (
            f"choose from {', '.join(small)}, atari/ROM for an Atari game such as atari/pong, "
            "or gym/ID for a Gymnasium environment with discrete actions"
        )
        # The group may be missing. A game of both MinAtar and Atari is suggested from MinAtar, which needs no other package.
        known = [*gym_names(), *(f"atari/{game}" for game in ATARI_GAMES), *small]
        names = {full.partition("/")[2]: full for full in known}
        near = nearest(rest or group, names)
        raise ValueError(f"unknown environment {name!r}: {f'did you mean {names[near]}?' if near else choices}")
    return GAMES[rest]


def check_environment(name: str) -> None:
    """Raise ValueError if there is no environment with this name. Does not start an emulator, which would be slow.

    Examples
    --------
    >>> check_environment("atari/pong")
    """
    group, _, rest = name.partition("/")
    if group == "atari" and rest:
        check_game(rest)
    else:
        load_environment(name)
