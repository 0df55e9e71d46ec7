"""`python -m actiongap.cli`."""

from actiongap.cli import main

main()
