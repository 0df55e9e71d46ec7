"""Custom operators: try `actiongap prove examples/operators.py:NAME`, or pass one to `--operator` of any command."""

from actiongap import maximum, minimum, where


def halfway_persistent(b):
    """Proved: persistent advantage learning at alpha = 0.5, written out."""
    return maximum(b.bellman - 0.5 * b.gap, b.repeat)


def capped(b):
    """Proved with alpha = 0.5: advantage learning that subtracts at most one unit of reward."""
    return b.bellman - 0.5 * minimum(b.gap, 2.0)


def consistent_and_persistent(b):
    """Proved with alpha = gamma: the consistent operator, which subtracts less if repeating the action is not worse."""
    return maximum(minimum(b.bellman, b.again), b.repeat)


def half_of_the_discounts(b):
    """Refuted, but proved with `--gamma 0.4`: subtracts more than the gap if gamma exceeds one half."""
    return b.bellman - 2 * b.gamma * b.gap


def mixture(b):
    """Refuted with a witness: mixing the two backups, as one library's "persistent Q-learning" does, lowers even the best action."""
    return 0.5 * b.bellman + 0.5 * b.repeat


def interpolated_only(b):
    """Refuted under Q-value interpolation: T'_QVI may exceed T_QVI. The paper therefore takes the smaller of the two."""
    return b.again


def next_gap_only(b):
    """Refuted with a witness: subtracts the next state's gap even if this state has none."""
    return b.bellman - 0.5 * b.next_gap


def averaged(b):
    """Proved as an average, with eta = 0.1: violates both conditions and converges to Q*."""
    return 0.9 * b.q + 0.1 * b.bellman


def stubborn(b):
    """Proved only with alpha = 1, by the extension of the theorem: subtracts the whole gap unless the action's backup exceeds V."""
    return where(b.bellman <= b.v, b.bellman - b.gap, b.bellman)
