"""The 60 Atari 2600 games of the paper, emulated on the host by the Arcade Learning Environment."""
