"""The mutual information gap (Chen et al. 2018, section 4.1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vmivae.evaluation.disentanglement.representation import Table, gap


def mutual_information_gap(information: Table, entropies: NDArray[np.float64]) -> float:
    """`MIG = mean_k (I(z_a; v_k) − I(z_b; v_k)) / H(v_k)`, a and b the two units that know most of factor k.

    Args:
        information: `I(unit; factor)` `(units, factors)`, nats, for codes drawn from the posteriors.
        entropies: `H(v_k)` `(factors,)`, nats, positive.

    Example:
        >>> mutual_information_gap(np.array([[0.75, 0.0], [0.25, 0.5]]), np.array([1.0, 1.0]))
        0.5
    """
    return gap(information / entropies)
