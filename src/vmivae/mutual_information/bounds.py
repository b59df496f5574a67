"""Means with standard errors, the Barber–Agakov bound, and what no estimate can be. All in nats."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor

from vmivae.errors import ImpossibleEstimateError

TOLERANCE = 1e-3
"""Round-off allowed beside the standard error, in nats."""


class Mean(NamedTuple):
    """A Monte Carlo mean and its standard error."""

    value: float
    se: float


def mean(values: Tensor) -> Mean:
    """Mean of independent draws `(S,)`, and its standard error `s / √S` with the `S − 1` variance."""
    values = values.detach().cpu().double()
    return Mean(float(values.mean()), float(values.std(correction=1) / math.sqrt(values.numel())))


def barber_agakov(log_q: Tensor, log_r: Tensor) -> Mean:
    """`H_r(z) + E[log Q(z|x̃)] ≤ I_r(z; x̃)` (4.4, 4.8; Barber & Agakov 2003).

    Args:
        log_q: `log Q(z|x̃)` of fresh pairs, `(S,)`.
        log_r: `log r(z)` of the same codes under the distribution that they were drawn from, `(S,)`.
            The mean of the difference needs no entropy in closed form, and is less noisy than two means.
    """
    return mean(log_q - log_r)


def require_possible(what: str, estimate: Mean, lowest: float = -math.inf, highest: float = math.inf) -> None:
    """Stop at a value that only a fault can explain. Noise within four standard errors passes as it is.

    Raises:
        ImpossibleEstimateError: `estimate` is not a number, or lies more than four standard errors below
            `lowest` or above `highest`.
    """
    value, se = estimate
    slack = 4 * se + TOLERANCE
    if not (math.isfinite(value) and math.isfinite(se)):
        raise ImpossibleEstimateError(f"{what}: {value} ± {se} nats is not a finite number")
    if value < lowest - slack:
        raise ImpossibleEstimateError(
            f"{what}: {value:.4f} ± {se:.4f} nats is more than four standard errors below {lowest:.4f}, "
            "the least it can be"
        )
    if value > highest + slack:
        raise ImpossibleEstimateError(
            f"{what}: {value:.4f} ± {se:.4f} nats is more than four standard errors above {highest:.4f}, "
            "the most it can be"
        )
