"""The operators that deep agents learn with: the paper's three kinds, and its alphas."""

BELLMAN = "bellman"
FAMILIES = ("al", "pal-dqn")
ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
"""The paper's. The theorem speaks of those below 1."""
USUAL = 0.9
"""What is shown where there is room for one alpha."""
SWEPT = {f"{family}:{alpha:g}": (family, alpha) for family in FAMILIES for alpha in ALPHAS}
"""The family and the alpha of each operator."""
OPERATORS = (BELLMAN, *SWEPT)
FEW = (BELLMAN, *(f"{family}:{USUAL:g}" for family in FAMILIES))
"""One of each kind."""
