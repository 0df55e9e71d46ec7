"""Environments and simulators: the bicycle, classic control, MinAtar, Atari, and any environment of Gymnasium.

Importing this package registers its environments with Gymnasium: `actiongap/Bicycle-v0`, and `actiongap/MinAtar-Breakout-v0` with the other
MinAtar games Asterix, Freeway, Seaquest and SpaceInvaders. It loads nothing but Gymnasium. Gymnasium imports it when the id names it:
`gymnasium.make("actiongap.envs:actiongap/MinAtar-Breakout-v0")`.
"""

import gymnasium

for _name in ("asterix", "breakout", "freeway", "seaquest", "space_invaders"):
    _id = f"actiongap/MinAtar-{_name.title().replace('_', '')}-v0"
    # Gymnasium warns if a reloaded module registers its environments again.
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
