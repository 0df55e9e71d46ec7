"""The environments that deep agents meet: MinAtar on the device, and any Gymnasium environment on the host.

Importing this package makes our MinAtar games known to Gymnasium, as `gymnasium.make("actiongap/MinAtar-Breakout-v0")`, or in one go as
`gymnasium.make("actiongap.arena:actiongap/MinAtar-Breakout-v0")`; so too Asterix, Freeway, Seaquest and SpaceInvaders.
"""

import gymnasium

for _name in ("asterix", "breakout", "freeway", "seaquest", "space_invaders"):
    _id = f"actiongap/MinAtar-{_name.title().replace('_', '')}-v0"
    # A module that is loaded again must not register again: Gymnasium warns of that.
    if _id not in gymnasium.registry:
        gymnasium.register(
            _id,
            entry_point="actiongap.arena.gymnasium:MinAtar",
            vector_entry_point="actiongap.arena.gymnasium:MinAtars",
            kwargs={"game": _name},
        )
