"""The interventional robustness score (Suter et al. 2019, section 3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vmivae.evaluation.disentanglement.representation import Representation, Table

QUANTILE = 0.99
"""Of the deviations, in place of the largest one, which a single image decides."""


def irs(representation: Representation) -> float:
    """How little each unit moves, at most, while its best factor is fixed and all others change.

    The mean over units of `max_f robustness(unit, factor)`, weighted by how far a unit moves at all in units
    of its standard deviation, so that the scale of a code plays no part.
    """
    spread = _spread(representation)
    largest = _quantile(_deviations(representation)) / np.where(spread > 0, spread, np.inf)
    if not largest.any():
        return 0.0
    return float(np.average(robustness(representation).max(axis=1), weights=largest))


def robustness(representation: Representation) -> Table:
    """`1 − E_v[deviation given v] / deviation overall` `(units, factors)`; 0 for a unit that never moves.

    A deviation is the 0.99 quantile of the distances from the mean: `|z − E z|` for a real unit, half the
    L1 distance of the one-hot code from the class probabilities for a categorical one.
    """
    overall = _quantile(_deviations(representation))
    table = np.zeros((representation.units, representation.factors.shape[1]))
    for factor, column in enumerate(representation.factors.T):
        values = np.unique(column)
        within = sum(
            _quantile(_deviations(representation.select(np.flatnonzero(column == value)))) for value in values
        )
        table[:, factor] = 1 - within / len(values) / np.where(overall > 0, overall, np.inf)
    table[overall == 0] = 0.0
    return table


def _deviations(representation: Representation) -> NDArray[np.float64]:
    """Distance of each image's units from their mean: `(N, units)`."""
    distances = [abs(representation.real - representation.real.mean(axis=0))]
    for unit, size in enumerate(representation.sizes):
        classes = representation.categories[:, unit]
        shares = np.bincount(classes, minlength=size) / len(classes)
        # Half of Σ|one-hot − shares| is what the image's own class leaves to the others.
        distances.append(1 - shares[classes][:, None])
    return np.concatenate(distances, axis=1)


def _spread(representation: Representation) -> NDArray[np.float64]:
    """Standard deviation of each unit, `(units,)`; of a categorical one, that of its one-hot code."""
    spread = [representation.real.std(axis=0)]
    for unit, size in enumerate(representation.sizes):
        shares = np.bincount(representation.categories[:, unit], minlength=size) / len(representation)
        spread.append(np.sqrt([shares @ (1 - shares)]))
    return np.concatenate(spread)


def _quantile(deviations: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = np.quantile(deviations, QUANTILE, axis=0)
    return found
