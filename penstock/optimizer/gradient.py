"""Knows the worth of one more measurement: how much better the advice is expected to become with it.

This is the knowledge gradient, an average over the possible results of the measurement. With the posterior mean m_z of
the logarithm of the value of setting z less its price, the covariance S of all settings (`Belief`), and noise sigma,

    gain(x) = max_k (E_t max_z exp(a_z - b_z^2 / 2 + t b_z) / max_z exp(a_z) - 1) / k,
    a_z     = m_z + S_zz / 2,    b_z(x) = S_zx / sqrt(S_xx + sigma^2 / k),    t ~ N(0, 1),

for k measurements in a row, because a single one changes nothing where noise is great (Frazier and Powell 2010,
"Paradoxes in learning and the marginal value of information"). Correlations that so few draws cannot tell from chance
are shrunk to zero. Measuring a hopeless setting is worth something if it tells about others: a few threads show what
one connection can do.
"""

from __future__ import annotations

import numpy as np

from penstock.models.model import Array, Belief

# Standard deviations: a setting is hopeless if it cannot be the best though it were so much better and the best so much
# worse.
_HOPELESS = 3.0
_AHEAD_COUNTS = (1, 3, 10)  # measurements that the gradient looks ahead
_NODE_COUNT = 11  # of the quadrature over t
# The worth of a standard deviation of belief by itself, for when no measurement would change the advice. It is a share
# of what is expected of the setting, so that hopeless settings are worth little.
_CURIOSITY = 1e-3


def knowledge_gradient(belief: Belief, sigma: float) -> Array:
    """The expected relative improvement of the advice from measuring each setting: shape (settings,).

    If a single measurement would change nothing but several might, it is the improvement from several, per measurement.
    """
    nodes, masses = np.polynomial.hermite_e.hermegauss(_NODE_COUNT)
    masses = masses / masses.sum()
    variance = belief.variance + 1e-12
    level = belief.mean + 0.5 * variance
    level -= level.max()
    away = _HOPELESS * np.sqrt(variance)
    may_be_best = level + away >= (level - away).max()
    shared, gains = belief.covariance[:, may_be_best], np.zeros(len(level))
    for count in _AHEAD_COUNTS:
        moves = shared / np.sqrt(variance + sigma**2 / count)[:, None]
        base = level[may_be_best] - 0.5 * moves**2
        after = np.exp([(base + node * moves).max(axis=1) for node in nodes])
        gains = np.maximum(gains, (masses @ after - 1.0) / count)
    return np.asarray(gains + _CURIOSITY * np.sqrt(variance) * np.exp(level), dtype=np.float64)
