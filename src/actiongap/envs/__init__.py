"""Environments and simulators: the bicycle, classic control, MinAtar, Atari, and any environment of Gymnasium.

Importing this package registers our environments with Gymnasium: the bicycle as `gymnasium.make("actiongap/Bicycle-v0")` and the MinAtar
games as `gymnasium.make("actiongap/MinAtar-Breakout-v0")`; so too Asterix, Freeway, Seaquest and SpaceInvaders. In one go it is
`gymnasium.make("actiongap.envs:actiongap/MinAtar-Breakout-v0")`.
"""

import gymnasium

for _name in ("asterix", "breakout", "freeway", "seaquest", "space_invaders"):
    _id = f"actiongap/MinAtar-{_name.title().replace('_', '')}-v0"
    # A module that is loaded again must not register again: Gymnasium warns of that.
    if _id not in gymnasium.registry:
        gymnasium.register(
            _id,
            entry_point="actiongap.envs.minatar.env:MinAtar",
            vector_entry_point="actiongap.envs.minatar.env:MinAtars",
            kwargs={"game": _name},
        )

if "actiongap/Bicycle-v0" not in gymnasium.registry:
    gymnasium.register(
        "actiongap/Bicycle-v0",
        entry_point="actiongap.envs.bicycle_env:Bicycle",
        vector_entry_point="actiongap.envs.bicycle_env:Bicycles",
        max_episode_steps=100_000,
    )
