"""Operators of one's own: try `actiongap prove examples/operators.py:NAME`, or give one to any command's `--operator`."""

from actiongap import maximum, minimum, where


def halfway_persistent(b):
    """Proved: persistent advantage learning at alpha = 0.5, spelled out."""
    return maximum(b.bellman - 0.5 * b.gap, b.repeat)


def capped(b):
    """Proved with alpha = 0.5: advantage learning that never takes more than one unit of reward."""
    return b.bellman - 0.5 * minimum(b.gap, 2.0)


def consistent_and_persistent(b):
    """Proved with alpha = gamma: the consistent operator, softened where repeating the action is no worse."""
    return maximum(minimum(b.bellman, b.again), b.repeat)


def half_of_the_discounts(b):
    """Refuted, but proved with `--gamma 0.4`: takes more than the gap once gamma exceeds one half."""
    return b.bellman - 2 * b.gamma * b.gap


def mixture(b):
    """Refuted with a witness: mixing the two backups, as one library's "persistent Q-learning" does, devalues even the best action."""
    return 0.5 * b.bellman + 0.5 * b.repeat


def interpolated_only(b):
    """Refuted under Q-value interpolation: T'_QVI may exceed T_QVI, which is why the paper takes the lesser of the two."""
    return b.again


def next_gap_only(b):
    """Refuted with a witness: devalues by the next state's gap even where this state has none."""
    return b.bellman - 0.5 * b.next_gap


def averaged(b):
    """Violates both conditions and yet converges to Q*: they are sufficient, not necessary."""
    return 0.9 * b.q + 0.1 * b.bellman


def stubborn(b):
    """Proved only with alpha = 1, by the extension of the theorem: gives up the whole gap whenever the action would not overtake."""
    return where(b.bellman <= b.v, b.bellman - b.gap, b.bellman)
