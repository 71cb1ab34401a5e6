"""Knows what one more measurement is worth: how much better the advice would be for it.

That is the knowledge gradient: on average over what the measurement may turn out to be. With posterior mean m_z of the
logarithm of the value of setting z, less its price, covariances S as they are believed (`Belief`), and noise sigma,

    gain(x) = max_k (E_t max_z exp(a_z - b_z^2 / 2 + t b_z) / max_z exp(a_z) - 1) / k,
    a_z     = m_z + S_zz / 2,    b_z(x) = S_zx / sqrt(S_xx + sigma^2 / k),    t ~ N(0, 1),

of k measurements in a row, for where noise is great none would change the advice by itself (Frazier and Powell 2010,
"Paradoxes in learning and the marginal value of information"). Correlations that the number of draws cannot tell from
none count as none. A measurement of what is hopeless still counts when it tells something about what is not: a few
threads show what one connection can do.
"""

from __future__ import annotations

import numpy as np

from penstock.models.model import Array, Belief

# Standard deviations: what is not the best though it were so much better and the best so much worse.
_HOPELESS = 3.0
_AHEAD_COUNTS = (1, 3, 10)  # measurements that the gradient looks ahead
_NODE_COUNT = 11  # of the quadrature over t
# What a standard deviation of belief is worth by itself, when no measurement would change the advice, as a share of
# what is expected of the setting: nobody is curious about what is hopeless.
_CURIOSITY = 1e-3


def knowledge_gradient(belief: Belief, sigma: float) -> Array:
    """Expected relative improvement of the advice from one measurement of each setting.

    Where no single measurement would change the advice a few of them may: what each of those adds counts.
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
