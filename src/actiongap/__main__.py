"""`python -m actiongap`: the command line."""

from actiongap.cli import main

main()
