"""Simulators to plan on: the bicycle, and Gymnasium's classic control.

Importing this package makes the bicycle known to Gymnasium, as `gymnasium.make("actiongap/Bicycle-v0")`, or in one go as
`gymnasium.make("actiongap.domains:actiongap/Bicycle-v0")`. What `actiongap.arena` makes known comes with it.
"""

import actiongap.arena  # noqa: F401 - registers our environments with Gymnasium
