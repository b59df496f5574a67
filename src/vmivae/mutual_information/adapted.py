"""Proposals fitted to each image: what the decoder itself says of the codes around Q. All in nats.

Codes proposed for an image are decoded, and `log p(x̃|z)` is fitted by a quadratic function of the real units,
by least squares weighted by (flattened) importance weights. The fit gives a better proposal, whose codes
improve the fit, round by round (adaptive importance sampling; Cappé et al. 2008). None of these draws is used
for a bound, and they depend on `x̃` alone: both bounds hold as for every proposal.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from vmivae.model.latents import CodeDistribution, LatentSpec
from vmivae.model.protocol import LatentVariableModel
from vmivae.model.q_network import Proposal, QNetwork
from vmivae.mutual_information.evidence import completed, log_likelihood_of_each
from vmivae.mutual_information.pairs import wide
from vmivae.mutual_information.proposals import (
    Defended,
    Proposer,
    QProposer,
    Tilt,
    TiltedProposal,
    TiltedProposer,
    WeightedProposal,
)

FEWEST_DRAWS = 32
"""Codes decoded in each round, at least."""
MOST_COEFFICIENTS = 256
"""Of a fit that is worth its decodes."""
EFFECTIVE_PER_COEFFICIENT = 1.5
"""Weights are flattened until their effective sample size is this many times the coefficients."""
DEGREES_OF_FREEDOM = 8
DEFENCE = 0.25
"""Share of what proposed the first codes."""
CLASS_DEFENCE = 0.05
FARTHEST = 6.0
"""Standard deviations of Q that the fitted mode may lie away from Q's mean."""
LEAST_PRECISION = 0.25
"""Of the fitted tilt, as a share of the precision of Q's."""
FITTED_TOGETHER = 16


@dataclass(frozen=True)
class Draws:
    """Codes of the free units that were decoded for B images, on the scale of the fit.

    Attributes:
        heads: Q of each unit, batch `(B,)`; its means and standard deviations are the scale.
        parts: `(n, B, size)`.
        log_p: `log p(x̃|z)` of each, `(n, B)`.
        log_weights: importance weights, `(n, B)`.
    """

    heads: CodeDistribution
    parts: Tensor
    log_p: Tensor
    log_weights: Tensor

    def __getitem__(self, rows: slice) -> Draws:
        """Those of some of the images, on the CPU in double precision: the problems are small."""
        parts, log_p, log_weights = (
            tensor[:, rows].cpu().double() for tensor in (self.parts, self.log_p, self.log_weights)
        )
        return Draws(self.heads[rows].to("cpu"), parts, log_p, log_weights)

    @property
    def offsets(self) -> Tensor:
        """The real units, less Q's mean, in standard deviations of Q: `(n, B, D)`."""
        real = self.heads.latents.split(self.parts)[0]
        return (real - self.heads.mean.double()) / self.heads.stddev.double()

    @property
    def onehots(self) -> list[Tensor]:
        """The categorical units, `(n, B, K_j)`."""
        return self.heads.latents.split(self.parts)[1]

    def regress(self, products: list[Tensor]) -> tuple[Tensor, list[Tensor], Tensor]:
        """Fit `log p(x̃|z)` by a constant, the offsets, `products` and the classes.

        Returns:
            Coefficients of the offsets, `(B, D)`, and of each block of products; and the weights, `(n, B)`.
        """
        offsets = self.offsets
        blocks = [offsets, *products]
        constant = torch.ones_like(self.log_p)[..., None]
        design = torch.cat([*blocks, constant, *[block[..., 1:] for block in self.onehots]], dim=-1)
        weights = flattened(self.log_weights, EFFECTIVE_PER_COEFFICIENT * design.shape[-1])
        found = least_squares(design, self.log_p - (weights * self.log_p).sum(0), weights)
        sizes = [block.shape[-1] for block in blocks]
        slope, *others = torch.split(found[:, : sum(sizes)], sizes, dim=-1)
        return slope, others, weights


class Family(Protocol):
    """Proposals that can be fitted to images."""

    rounds: int

    @property
    def base(self) -> Proposer:
        """What proposes the first codes."""
        ...

    def coefficients(self, latents: LatentSpec) -> int:
        """Of the fit, for these units."""
        ...

    def draws(self, latents: LatentSpec) -> int:
        """Codes decoded in each round, for these units."""
        ...

    def fitted(self, first: Any, draws: Draws, known: Collection[str]) -> WeightedProposal:
        """The proposal for the units B that are not known; `first` is that of the base for these images."""
        ...


class AdaptedProposer:
    """`S(z_B|z_A, x̃)`: a proposal of the family fitted to each image, and a share of the one it began with.

    Args:
        model: its likelihood.
        network: Q, whose unit heads are the scale of the fit.
        family: what is fitted.
    """

    def __init__(self, model: LatentVariableModel, network: QNetwork, family: Family) -> None:
        self._model, self._network, self._family = model, network, family
        self.name = f"adapted_{family.base.name}"

    @property
    def worthwhile(self) -> bool:
        """Whether a fit for such codes is worth its decodes."""
        latents = self.latents
        return latents.continuous > 0 and self._family.coefficients(latents) <= MOST_COEFFICIENTS

    @property
    def latents(self) -> LatentSpec:
        """The units of a code."""
        return self._family.base.latents

    @property
    def decodes(self) -> int:
        """Decoder evaluations that reading an image takes."""
        return self._family.rounds * self._family.draws(self.latents)

    @property
    def setup(self) -> int:
        """What reading an image costs, in decoder evaluations that take as long."""
        return self.decodes + (self._family.rounds + 1) * self._family.base.setup

    def propose(
        self,
        codes: Tensor,
        images: Tensor,
        known: Collection[str] = (),
        generator: torch.Generator | None = None,
    ) -> WeightedProposal:
        """`S(z_B|z_A, x̃)`; without a real unit in B, that of the family's base."""
        first = self._family.base.propose(codes, images, known, generator)
        free = [unit for unit in self.latents.units if unit not in known]
        heads = self._network(images).marginal(free)
        if not heads.latents.continuous:
            return first
        columns, draws = self.latents.columns_of(free), self._family.draws(heads.latents)
        proposal: WeightedProposal = first
        seen: list[tuple[Tensor, Tensor, Tensor]] = []
        for _ in range(self._family.rounds):
            parts = proposal.sample((draws,), generator)
            log_p = log_likelihood_of_each(self._model, completed(codes, columns, parts), images)
            seen.append((parts, log_p, log_p + proposal.log_ratio(parts)))
            together = Draws(heads, *(torch.cat(column) for column in zip(*seen, strict=True)))
            proposal = Defended(first, self._family.fitted(first, together, known), DEFENCE)
        return proposal


class StudentFamily:
    """For a prior `r = p(z)`: a multivariate t around the mode of `p(z_B) p(x̃|z)`.

    With the normal prior the quadratic fit gives a mean and a full covariance, which a Q with independent
    units lacks.

    Args:
        prior: `r(z)`, batch shape ().
        network: Q.
    """

    rounds = 6

    def __init__(self, prior: CodeDistribution, network: QNetwork) -> None:
        self._prior = prior
        self.base = QProposer(prior, network)

    def coefficients(self, latents: LatentSpec) -> int:
        """A constant, slopes, all products, classes."""
        units = latents.continuous
        return 1 + units + units * (units + 1) // 2 + sum(classes - 1 for classes in latents.discrete)

    def draws(self, latents: LatentSpec) -> int:
        """Codes decoded in each round."""
        return max(FEWEST_DRAWS, math.ceil(1.7 * self.coefficients(latents)))

    def fitted(self, first: WeightedProposal, draws: Draws, known: Collection[str]) -> WeightedProposal:
        """The fit, for the units B that are not known."""
        prior = self._prior.marginal([unit for unit in self._prior.latents.units if unit not in known])
        fits = [student_t(prior.to("cpu"), draws[rows]) for rows in _slices(len(draws.heads.mean))]
        return Weighted(prior, StudentT.joined(fits, like=draws.parts))


class TiltFamily:
    """For an aggregate posterior: `q̄(z) f(z; x̃) / Z(x̃)` with `f` fitted to `p(x̃|z)` in place of Q.

    Args:
        base: tilted by Q.
    """

    rounds = 4

    def __init__(self, base: TiltedProposer) -> None:
        self.base = base

    def coefficients(self, latents: LatentSpec) -> int:
        """A constant, slopes, squares, classes."""
        return 1 + 2 * latents.continuous + sum(classes - 1 for classes in latents.discrete)

    def draws(self, latents: LatentSpec) -> int:
        """Codes decoded in each round."""
        return max(FEWEST_DRAWS, 4 * self.coefficients(latents))

    def fitted(self, first: TiltedProposal, draws: Draws, known: Collection[str]) -> TiltedProposal:
        """The fit, for the units B that are not known; Q says which classes are likely."""
        fits = [_quadratic(draws[rows]) for rows in _slices(len(draws.heads.mean))]
        slope, fitted = (torch.cat(part).to(draws.parts) for part in zip(*fits, strict=True))
        # A tilt without precision would lead to the farthest posteriors.
        precision = torch.maximum(fitted, LEAST_PRECISION * first.tilt.precision)
        farthest = FARTHEST * draws.heads.stddev * precision
        slope = slope.clamp(-farthest, farthest)
        return first.retilted(Tilt(draws.heads.mean, slope, precision, first.tilt.log_classes))


@dataclass(frozen=True)
class Weighted:
    """A density as a proposal for codes from a prior."""

    prior: CodeDistribution
    density: Proposal

    def sample(self, shape: tuple[int, ...] = (), generator: torch.Generator | None = None) -> Tensor:
        """Exact codes `(*shape, B, n)`."""
        return self.density.sample(shape, generator)

    def log_ratio(self, parts: Tensor) -> Tensor:
        """`log r(z_B) − log S(z_B|x̃)`, `(k, B)`."""
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
    def joined(cls, parts: list[StudentT], like: Tensor) -> StudentT:
        """Those of all images, from those of some each; device and precision as `like`."""
        blocks = zip(*(part.log_probs for part in parts), strict=True)
        return cls(
            torch.cat([part.mean for part in parts]).to(like),
            torch.cat([part.factor for part in parts]).to(like),
            [torch.cat(block).to(like) for block in blocks],
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


def student_t(prior: CodeDistribution, draws: Draws) -> StudentT:
    """Mode and curvature of `p(z_B) p(x̃|z)`, and the weighted shares of the classes."""
    units = prior.latents.continuous
    first, second = torch.triu_indices(units, units)
    offsets = draws.offsets
    slope, (products,), weights = draws.regress([offsets[..., first] * offsets[..., second]])
    curvature = products.new_zeros(len(products), units, units)
    curvature[:, first, second] = products
    values, vectors = torch.linalg.eigh(-curvature - curvature.mT)
    # A likelihood that grows on both sides has no mode: there the prior alone bounds it.
    likelihood = vectors @ (values.clamp(min=0)[..., None] * vectors.mT)
    centre, scale = draws.heads.mean.double(), draws.heads.stddev.double()
    prior_precision = (scale / prior.stddev.double()) ** 2
    precision = likelihood + torch.diag_embed(prior_precision)
    pull = slope + prior_precision * (prior.mean.double() - centre) / scale
    mode = torch.linalg.solve(precision, pull[..., None])[..., 0].clamp(-FARTHEST, FARTHEST)
    factor = scale[..., None] * torch.linalg.cholesky(torch.linalg.inv(precision))
    log_probs = [
        ((1 - CLASS_DEFENCE) * (weights[..., None] * block).sum(0) + CLASS_DEFENCE * probs.double()).log()
        for block, probs in zip(draws.onehots, draws.heads.probs, strict=True)
    ]
    return StudentT(centre + scale * mode, factor, log_probs)


def least_squares(design: Tensor, values: Tensor, weights: Tensor) -> Tensor:
    """Coefficients `(B, P)` of values `(n, B)` on a design `(n, B, P)`, with weights `(n, B)`."""
    design, values, weights = design.transpose(0, 1), values.T[..., None], weights.T[..., None]
    normal = design.mT @ (weights * design)
    # A class or a direction that no draw shows gets the coefficient 0.
    ridge = 1e-6 * normal.diagonal(dim1=-2, dim2=-1).mean(-1) + 1e-10
    normal = normal + torch.diag_embed(ridge[:, None].expand(-1, normal.shape[-1]))
    solution: Tensor = torch.linalg.solve(normal, design.mT @ (weights * values))
    return solution[..., 0]


def flattened(log_weights: Tensor, effective: float) -> Tensor:
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


def _quadratic(draws: Draws) -> tuple[Tensor, Tensor]:
    """Slope at Q's mean and precision of `log p(x̃|z)` along each real unit, `(B, D)`."""
    slope, (squares,), _ = draws.regress([draws.offsets**2])
    scale = draws.heads.stddev.double()
    return slope / scale, (-2 * squares / scale**2).clamp(min=0)


def _slices(count: int) -> list[slice]:
    return [slice(start, start + FITTED_TOGETHER) for start in range(0, count, FITTED_TOGETHER)]
