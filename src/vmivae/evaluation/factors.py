"""The known-factor table: what each unit knows about each generative factor, in nats."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vmivae.evaluation.labels import Labels, label_information
from vmivae.model import CodeDistribution


def factor_information(posterior: CodeDistribution, factors: Labels) -> NDArray[np.float64]:
    """`I(unit; factor)` for every pair, for a code drawn from the posteriors of the given images.

    Exact for the empirical distribution over these images, as `label_information` is.

    Args:
        posterior: `q(z|x)` of N images, batch shape `(N,)`.
        factors: `(N, F)`, the index of each factor's value.

    Returns:
        `(units, F)`, nats.
    """
    columns = [list(label_information(posterior, column).values()) for column in factors.T]
    return np.array(columns).T


def factor_entropies(factors: Labels) -> NDArray[np.float64]:
    """`H(factor)` of the given images, `(F,)`, in nats: the most that can be known of it."""
    shares = [np.unique(column, return_counts=True)[1] / len(column) for column in factors.T]
    return np.array([-(share @ np.log(share)) for share in shares]) + 0.0
