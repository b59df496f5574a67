"""`log p_r(x̃)` and `log p_r(x̃|z_A)` by importance sampling, bracketed from both sides. All in nats.

With weights `w_k = r(z_k) p(x̃|z_k) / S(z_k|x̃)`, S the proposal, the mean of K of them estimates `p_r(x̃)`
without bias. Its logarithm is too low in expectation when all codes come from S (Burda et al. 2016), and too
high when the code that made `x̃` is one of them (Sobolev & Vetrov 2019; Brekelmans et al. 2022).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from vmivae.checkpoint import NO_CHECKPOINT, Checkpoint
from vmivae.model.protocol import LatentVariableModel
from vmivae.mutual_information.pairs import DECODE_BLOCK, in_blocks, wide
from vmivae.mutual_information.proposals import Proposer
from vmivae.progress import Progress

FEWEST_TOGETHER = 64
"""Images whose proposals are decoded in one block, at least."""


@dataclass(frozen=True)
class LogEvidence:
    """`log (1/K) Σ_k w_k` of M images at K = 1, 2, 4, …, and how the weights are spread.

    Attributes:
        proposals: the values of K.
        low: over K proposals, `(len(proposals), M)`: in expectation at most `log p_r`, and non-decreasing
            in K.
        high: over the true code and the first K − 1 of the same proposals: in expectation at least `log p_r`,
            and non-increasing in K.
        effective: effective sample size `(Σw)²/Σw²` of the last K proposals, `(M,)`.
        largest: share of the largest of their weights, `(M,)`.
    """

    proposals: list[int]
    low: Tensor
    high: Tensor
    effective: Tensor
    largest: Tensor


def doublings(proposals: int) -> list[int]:
    """`1, 2, 4, …` up to and including `proposals`."""
    return [*(2**i for i in range(proposals.bit_length()) if 2**i < proposals), proposals]


def log_evidence(
    model: LatentVariableModel,
    proposer: Proposer,
    codes: Tensor,
    images: Tensor,
    proposals: int,
    known: Collection[str] = (),
    generator: torch.Generator | None = None,
    progress: Progress | None = None,
    checkpoint: Checkpoint = NO_CHECKPOINT,
    name: str = "weighing proposals",
) -> LogEvidence:
    """Bracket `log p_r(x̃|z_A)` of each image; with no unit known, `log p_r(x̃)`.

    Weights are `r(z) p(x̃|z) / (r(z_A) S(z_B|z_A, x̃))`, with proposals for the units B that are not in A.

    Args:
        model: its likelihood.
        proposer: of S, for codes from `r(z)`.
        codes: the codes that the images were drawn from, `(M, size)`.
        images: `x̃ ~ p(x|z)`, `(M, *event)`.
        proposals: the largest K, at least 1. Memory does not grow with it.
        known: A, the units that keep the value they have in `codes`.
        generator: of the proposals.
        progress: as in `estimate`; counts decoded codes.
        checkpoint: images that are done are taken from there, under `name`.
    """
    # Few proposals need many images to fill a block, and many proposals few.
    together = max(FEWEST_TOGETHER, DECODE_BLOCK // proposals)
    targets = doublings(proposals)

    def of(block: slice) -> tuple[Tensor, ...]:
        found = _log_evidence(model, proposer, codes[block], images[block], proposals, known, generator)
        return found.low, found.high, found.effective, found.largest

    def decoded(done: int) -> None:
        if progress:
            progress("weighing proposals", done * proposals, len(codes) * proposals, "")

    blocks = in_blocks(of, len(codes), together, generator, codes.device, -1, decoded, checkpoint, name)
    return LogEvidence(targets, *blocks)


def log_likelihood(model: LatentVariableModel, codes: Tensor, images: Tensor) -> Tensor:
    """`log p(x̃|z)` of pairs `(M, size)`, `(M, *event)`: `(M,)`, in double precision."""
    blocks = zip(torch.split(codes, DECODE_BLOCK), torch.split(images, DECODE_BLOCK), strict=True)
    return wide(torch.cat([model.likelihood(code).log_prob(image) for code, image in blocks]))


def completed(codes: Tensor, columns: list[int], parts: Tensor) -> Tensor:
    """Codes `(M, size)` with `parts` `(k, M, n)` in the n columns: `(k, M, size)`."""
    whole = codes.expand(len(parts), -1, -1).clone()
    whole[..., columns] = parts
    return whole


def log_likelihood_of_each(model: LatentVariableModel, codes: Tensor, images: Tensor) -> Tensor:
    """`log p(x̃|z)` of k codes for each image, `(k, M, size)` and `(M, *event)`: `(k, M)`."""
    rows = max(1, DECODE_BLOCK // len(images))
    return torch.cat(
        [
            log_likelihood(
                model, block.flatten(0, 1), images.expand(len(block), *images.shape).flatten(0, 1)
            ).reshape(len(block), len(images))
            for block in torch.split(codes, rows)
        ]
    )


def _log_evidence(
    model: LatentVariableModel,
    proposer: Proposer,
    codes: Tensor,
    images: Tensor,
    proposals: int,
    known: Collection[str],
    generator: torch.Generator | None,
) -> LogEvidence:
    """The same for images that are decoded together."""
    latents, count = proposer.latents, len(codes)
    fixed = latents.columns_of(known)
    free = [column for column in range(latents.size) if column not in fixed]
    targets = doublings(proposals)
    if not free:
        exact = log_likelihood(model, codes, images).expand(len(targets), -1)
        return LogEvidence(targets, exact, exact, torch.full_like(exact[0], proposals), exact[0] * 0)
    proposal = proposer.propose(codes, images, known, generator)

    def log_weights(parts: Tensor) -> Tensor:
        """Of codes of the free units, `(k, count, len(free))`: `(k, count)`."""
        return log_likelihood_of_each(model, completed(codes, free, parts), images) + proposal.log_ratio(
            parts
        )

    true = log_weights(codes[:, free][None])[0]
    running = _RunningSum(count, codes.device)
    low, high, done = [], [], 0
    for target in targets:
        while done < target:
            times = min(target - done, max(1, DECODE_BLOCK // count))
            weights = log_weights(proposal.sample((times,), generator))
            done += times
            # The true code stands in for the last proposal of the K.
            running.add(weights[:-1])
            without_last = running.log_sum
            running.add(weights[-1:])
        high.append(torch.logaddexp(without_last, true) - math.log(target))
        low.append(running.log_sum - math.log(target))
    return LogEvidence(targets, torch.stack(low), torch.stack(high), running.effective, running.largest)


class _RunningSum:
    """Sum, sum of squares and maximum of weights, on the logarithmic scale, for `count` images."""

    def __init__(self, count: int, device: torch.device) -> None:
        nothing = wide(torch.full((count,), -math.inf, device=device))
        self.log_sum = self._log_squares = self._log_largest = nothing

    def add(self, log_weights: Tensor) -> None:
        """Add weights `(k, count)`; k may be 0."""
        self.log_sum = torch.logaddexp(self.log_sum, log_weights.logsumexp(0))
        self._log_squares = torch.logaddexp(self._log_squares, (2 * log_weights).logsumexp(0))
        if len(log_weights):
            self._log_largest = torch.maximum(self._log_largest, log_weights.amax(0))

    @property
    def effective(self) -> Tensor:
        """`(Σw)²/Σw²`."""
        return (2 * self.log_sum - self._log_squares).exp()

    @property
    def largest(self) -> Tensor:
        """`max w / Σw`."""
        return (self._log_largest - self.log_sum).exp()
