"""Proposals fitted to each image: what the decoder itself says of the codes around Q. All in nats."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from vmivae.model.latents import CodeDistribution, LatentSpec
from vmivae.model.protocol import LatentVariableModel
from vmivae.model.q_network import Proposal, QNetwork
from vmivae.mutual_information.evidence import completed, log_likelihood_of_each
from vmivae.mutual_information.pairs import wide
from vmivae.mutual_information.proposals import QProposer, WeightedProposal

ROUNDS = 6
DRAWS_PER_COEFFICIENT = 1.7
"""Codes decoded in each round, for each coefficient of the fit."""
FEWEST_DRAWS = 32
MOST_COEFFICIENTS = 256
"""Of a fit that is worth its decodes: twenty real units and a few classes."""
EFFECTIVE_PER_COEFFICIENT = 1.5
"""Weights are flattened until their effective sample size is this many times the coefficients."""
DEGREES_OF_FREEDOM = 8
DEFENCE = 0.1
"""Share of Q in the proposal, which bounds the weights where the fit is too narrow."""
CLASS_DEFENCE = 0.05
FARTHEST = 6.0
"""Standard deviations of Q that the fitted mean may lie away from Q's."""
FITTED_TOGETHER = 16


class AdaptedProposer:
    """`S(z_B|z_A, x̃)`: for the real units a Student t around the mode of `p(z_A, z_B, x̃)`, and a share of Q.

    Codes drawn from Q are decoded, and `log p(x̃|z)` is fitted by a quadratic function of the real units, by
    least squares weighted by (flattened) importance weights; with the normal prior it gives a mean and a full
    covariance, which a Q with independent units lacks. Codes from the result improve the fit, round by round
    (adaptive importance sampling; Cappé et al. 2008). None of these draws is used for a bound, and they
    depend on `x̃` alone, so both bounds hold as for every proposal.

    Args:
        model: its likelihood.
        prior: `r(z)`, batch shape ().
        network: Q.
    """

    name = "adapted"

    def __init__(self, model: LatentVariableModel, prior: CodeDistribution, network: QNetwork) -> None:
        self._model, self._prior, self._network = model, prior, network
        self._plain = QProposer(prior, network)

    @staticmethod
    def suits(latents: LatentSpec) -> bool:
        """Whether a fit for such codes is worth its decodes."""
        return latents.continuous > 0 and _coefficients(latents) <= MOST_COEFFICIENTS

    @property
    def latents(self) -> LatentSpec:
        """The units of a code."""
        return self._prior.latents

    @property
    def decodes(self) -> int:
        """Decoder evaluations that reading an image takes."""
        return ROUNDS * _draws(self.latents)

    @property
    def setup(self) -> int:
        """What reading an image costs, in decoder evaluations that take as long."""
        return self.decodes

    def propose(
        self,
        codes: Tensor,
        images: Tensor,
        known: Collection[str] = (),
        generator: torch.Generator | None = None,
    ) -> WeightedProposal:
        """`S(z_B|z_A, x̃)`; without a real unit in B, that of Q."""
        free = [unit for unit in self.latents.units if unit not in known]
        prior, heads = self._prior.marginal(free), self._network(images).marginal(free)
        if not prior.latents.continuous:
            return self._plain.propose(codes, images, known)
        q = self._network.proposal(images, codes, known)
        columns = self.latents.columns_of(free)
        density: Proposal = q
        seen: list[tuple[Tensor, Tensor, Tensor]] = []
        for _ in range(ROUNDS):
            parts = density.sample((_draws(prior.latents),), generator)
            log_p = log_likelihood_of_each(self._model, completed(codes, columns, parts), images)
            log_weights = log_p + wide(prior.log_prob(parts)) - wide(density.log_prob(parts))
            seen.append((parts, log_p, log_weights))
            fits = [
                _fit(prior, heads[rows], *(torch.cat(column)[:, rows] for column in zip(*seen, strict=True)))
                for rows in _slices(len(images))
            ]
            density = DefendedProposal(q, StudentT.joined(fits))
        return _Weighted(prior, density)


@dataclass(frozen=True)
class _Weighted:
    prior: CodeDistribution
    density: Proposal

    def sample(self, shape: tuple[int, ...] = (), generator: torch.Generator | None = None) -> Tensor:
        return self.density.sample(shape, generator)

    def log_ratio(self, parts: Tensor) -> Tensor:
        return wide(self.prior.log_prob(parts)) - wide(self.density.log_prob(parts))


@dataclass(frozen=True)
class StudentT:
    """Multivariate t for the real units, independent categorical ones; B images.

    Attributes:
        mean: `(B, D)`.
        factor: Cholesky factor of the scale matrix, `(B, D, D)`.
        log_probs: of the classes of each categorical unit, `(B, K_j)`.
    """

    mean: Tensor
    factor: Tensor
    log_probs: list[Tensor]

    @classmethod
    def joined(cls, parts: list[StudentT]) -> StudentT:
        """Those of all images, from those of some each."""
        blocks = zip(*(part.log_probs for part in parts), strict=True)
        return cls(
            torch.cat([part.mean for part in parts]),
            torch.cat([part.factor for part in parts]),
            [torch.cat(block) for block in blocks],
        )

    def sample(self, shape: tuple[int, ...] = (), generator: torch.Generator | None = None) -> Tensor:
        """Exact codes `(*shape, B, size)`."""
        like = self.mean
        standard = CodeDistribution(torch.zeros_like(like), torch.ones_like(like), self.log_probs)
        normal, classes = standard.sample(shape, generator).tensor_split([like.shape[-1]], dim=-1)
        squares = torch.randn(
            *normal.shape[:-1], DEGREES_OF_FREEDOM, generator=generator, device=like.device, dtype=like.dtype
        ).square()
        heavy = normal * squares.mean(-1, keepdim=True).rsqrt()
        real = like + torch.einsum("bij,...bj->...bi", self.factor, heavy)
        return torch.cat([real, classes], dim=-1)

    def log_prob(self, codes: Tensor) -> Tensor:
        """Log-density of exact codes `(*shape, B, size)`: `(*shape, B)`, in double precision."""
        units, freedom = self.mean.shape[-1], DEGREES_OF_FREEDOM
        real, rest = codes.tensor_split([units], dim=-1)
        factor = wide(self.factor)
        whitening = torch.linalg.inv(factor).to(real.dtype)
        white = torch.einsum("bij,...bj->...bi", whitening, real - self.mean)
        constant = (
            math.lgamma((freedom + units) / 2)
            - math.lgamma(freedom / 2)
            - units / 2 * math.log(freedom * math.pi)
        )
        log_scale = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        distance = wide(white.square().sum(-1)) / freedom
        total: Tensor = constant - log_scale - (freedom + units) / 2 * distance.log1p()
        for block in self.log_probs:
            code, rest = rest.tensor_split([block.shape[-1]], dim=-1)
            total = total + (code * block).sum(-1)
        return total


@dataclass(frozen=True)
class DefendedProposal:
    """A mixture of Q, with the share `DEFENCE`, and a fit."""

    q: Proposal
    fit: StudentT

    def sample(self, shape: tuple[int, ...] = (), generator: torch.Generator | None = None) -> Tensor:
        """Exact codes `(*shape, B, size)`."""
        safe, fitted = self.q.sample(shape, generator), self.fit.sample(shape, generator)
        chosen = torch.rand(fitted.shape[:-1], generator=generator, device=fitted.device) < DEFENCE
        return torch.where(chosen[..., None], safe, fitted)

    def log_prob(self, codes: Tensor) -> Tensor:
        """Log-density of exact codes `(*shape, B, size)`: `(*shape, B)`."""
        return torch.logaddexp(
            math.log(DEFENCE) + wide(self.q.log_prob(codes)), math.log1p(-DEFENCE) + self.fit.log_prob(codes)
        )


def _fit(
    prior: CodeDistribution, heads: CodeDistribution, parts: Tensor, log_p: Tensor, log_weights: Tensor
) -> StudentT:
    """The fit of B images to codes `(n, B, size)` that were drawn for them.

    Args:
        prior: of these units, batch ().
        heads: Q of each unit, batch `(B,)`: the scale that the fit is made on.
        parts: the codes.
        log_p: `log p(x̃|z)` of each, `(n, B)`.
        log_weights: of each, `(n, B)`.
    """
    device, dtype = parts.device, parts.dtype
    # Small problems in double precision, which not every device has.
    parts, log_p, log_weights = (part.cpu().double() for part in (parts, log_p, log_weights))
    prior, heads = prior.to("cpu"), heads.to("cpu")
    real, blocks = prior.latents.split(parts)
    centre, scale = heads.mean.double(), heads.stddev.double()
    offset = (real - centre) / scale
    units = offset.shape[-1]
    first, second = torch.triu_indices(units, units)
    design = torch.cat(
        [
            torch.ones_like(offset[..., :1]),
            offset,
            offset[..., first] * offset[..., second],
            *[block[..., 1:] for block in blocks],
        ],
        dim=-1,
    )
    weights = _flattened(log_weights, EFFECTIVE_PER_COEFFICIENT * design.shape[-1])
    coefficients = _least_squares(design, log_p - (weights * log_p).sum(0), weights)
    slope = coefficients[:, 1 : 1 + units]
    products = coefficients[:, 1 + units : 1 + units + len(first)]
    curvature = products.new_zeros(len(products), units, units)
    curvature[:, first, second] = products
    values, vectors = torch.linalg.eigh(-curvature - curvature.mT)
    # Codes of higher density on every side are no mode: there the prior alone bounds them.
    likelihood = vectors @ (values.clamp(min=0)[..., None] * vectors.mT)
    prior_precision = (scale / prior.stddev.double()) ** 2
    precision = likelihood + torch.diag_embed(prior_precision)
    pull = slope + prior_precision * (prior.mean.double() - centre) / scale
    mode = torch.linalg.solve(precision, pull[..., None])[..., 0].clamp(-FARTHEST, FARTHEST)
    factor = scale[..., None] * torch.linalg.cholesky(torch.linalg.inv(precision))
    log_probs = [
        ((1 - CLASS_DEFENCE) * (weights[..., None] * block).sum(0) + CLASS_DEFENCE * probs.double()).log()
        for block, probs in zip(blocks, heads.probs, strict=True)
    ]
    return StudentT(
        (centre + scale * mode).to(device, dtype),
        factor.to(device, dtype),
        [block.to(device, dtype) for block in log_probs],
    )


def _least_squares(design: Tensor, values: Tensor, weights: Tensor) -> Tensor:
    """Coefficients `(B, P)` of values `(n, B)` on a design `(n, B, P)`, with weights `(n, B)`."""
    design, values, weights = design.transpose(0, 1), values.T[..., None], weights.T[..., None]
    normal = design.mT @ (weights * design)
    # A class or a direction that no draw shows gets the coefficient 0.
    ridge = 1e-6 * normal.diagonal(dim1=-2, dim2=-1).mean(-1) + 1e-10
    normal = normal + torch.diag_embed(ridge[:, None].expand(-1, normal.shape[-1]))
    solution: Tensor = torch.linalg.solve(normal, design.mT @ (weights * values))
    return solution[..., 0]


def _flattened(log_weights: Tensor, effective: float) -> Tensor:
    """Weights `w^τ / Σ w^τ`, `(n, B)`, with the largest `τ ≤ 1` that makes so many of them effective."""
    wanted = min(effective, 0.9 * len(log_weights))

    def enough(power: Tensor) -> Tensor:
        powered = log_weights * power
        return 2 * powered.logsumexp(0) - (2 * powered).logsumexp(0) >= math.log(wanted)

    low, high = torch.zeros_like(log_weights[0]), torch.ones_like(log_weights[0])
    for _ in range(20):
        middle = (low + high) / 2
        low, high = torch.where(enough(middle), middle, low), torch.where(enough(middle), high, middle)
    power = torch.where(enough(torch.ones_like(low)), 1.0, low)
    return (log_weights * power).softmax(0)


def _coefficients(latents: LatentSpec) -> int:
    units = latents.continuous
    return 1 + units + units * (units + 1) // 2 + sum(classes - 1 for classes in latents.discrete)


def _draws(latents: LatentSpec) -> int:
    return max(FEWEST_DRAWS, math.ceil(DRAWS_PER_COEFFICIENT * _coefficients(latents)))


def _slices(count: int) -> list[slice]:
    return [slice(start, start + FITTED_TOGETHER) for start in range(0, count, FITTED_TOGETHER)]
