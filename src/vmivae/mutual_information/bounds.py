"""The Barber–Agakov bound, the importance-weighted sandwich, and what no estimate can be. All in nats."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from vmivae.checkpoint import NO_CHECKPOINT, Checkpoint
from vmivae.errors import ImpossibleEstimateError
from vmivae.model.protocol import LatentVariableModel
from vmivae.mutual_information.evidence import log_evidence, log_likelihood
from vmivae.mutual_information.pairs import wide
from vmivae.mutual_information.proposals import Proposer
from vmivae.progress import Progress

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


@dataclass(frozen=True)
class Sandwich:
    """Bounds of the pointwise information of M images at K = 1, 2, 4, …; their means bound `I_r(z; x̃)`.

    Attributes:
        proposals: the values of K.
        lower: `L_K`, `log p(x̃|z_1) − log (1/K) Σ w_k` with the true code `z_1` among the K,
            `(len(proposals), M)`. Non-decreasing in K in expectation; the first row is the Barber–Agakov
            bound of the proposal.
        upper: `U_K`, the same with all K codes proposed: non-increasing in K in expectation.
        effective, largest: spread of the weights, as in `LogEvidence`.
        control: a control variate, `(M,)`: something cheap whose mean is known from many more images.
        below: the sandwich of the same images by a cheaper proposer; None where there is none.
    """

    proposals: list[int]
    lower: Tensor
    upper: Tensor
    effective: Tensor
    largest: Tensor
    control: Tensor
    below: Sandwich | None = None

    @property
    def gap(self) -> Tensor:
        """`U_K − L_K`, `(len(proposals), M)`."""
        return self.upper - self.lower


def sandwich(
    model: LatentVariableModel,
    proposer: Proposer,
    codes: Tensor,
    images: Tensor,
    proposals: int,
    control: Tensor | None = None,
    generator: torch.Generator | None = None,
    progress: Progress | None = None,
    checkpoint: Checkpoint = NO_CHECKPOINT,
    name: str = "sandwich",
) -> Sandwich:
    """`L_K` and `U_K` of each image, both from the same proposals.

    Arguments as in `log_evidence`; without a `control`, it is `L_1`.
    """
    evidence = log_evidence(
        model,
        proposer,
        codes,
        images,
        proposals,
        generator=generator,
        progress=progress,
        checkpoint=checkpoint,
        name=name,
    )
    log_p = log_likelihood(model, codes, images)
    lower, upper = log_p - evidence.high, log_p - evidence.low
    return Sandwich(
        evidence.proposals,
        lower,
        upper,
        evidence.effective,
        evidence.largest,
        lower[0] if control is None else wide(control),
    )
