"""The demo: an interactive page about action gaps, with the operators of this package translated to JavaScript."""
