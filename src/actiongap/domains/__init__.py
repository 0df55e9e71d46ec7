"""Simulators to plan on: the bicycle, and Gymnasium's classic control.

Importing this package makes the bicycle known to Gymnasium, as `gymnasium.make("actiongap/Bicycle-v0")`, or in one go as
`gymnasium.make("actiongap.domains:actiongap/Bicycle-v0")`. What `actiongap.arena` makes known comes with it.
"""

import gymnasium

import actiongap.arena  # noqa: F401 - whoever asks for one of our environments finds all of them

# A module that is loaded again must not register again: Gymnasium warns of that.
if "actiongap/Bicycle-v0" not in gymnasium.registry:
    gymnasium.register(
        "actiongap/Bicycle-v0",
        entry_point="actiongap.domains.environment:Bicycle",
        vector_entry_point="actiongap.domains.environment:Bicycles",
        max_episode_steps=100_000,
    )
