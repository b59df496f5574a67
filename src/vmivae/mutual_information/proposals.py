"""What proposes codes for the sandwich: Q alone, or Q together with the aggregate posterior. All in nats."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from vmivae.model.latents import CodeDistribution, LatentSpec
from vmivae.model.q_network import Proposal, QNetwork
from vmivae.mutual_information.aggregate import BLOCK_ELEMENTS, AggregatePosterior
from vmivae.mutual_information.pairs import CodeSource, wide

SHARPNESS = (0.5, 0.75, 1.0)
"""Powers of Q's evidence that are tried: below one where Q is surer than it should be."""
CALIBRATION_ELEMENTS = 2**20
"""(image, component) pairs that each sharpness is tried on, about."""
FEWEST_CALIBRATION, MOST_CALIBRATION = 64, 512
COMPONENTS_PER_DECODE = 128
"""Components that are weighed in the time of one decode, roughly."""


class WeightedProposal(Protocol):
    """`S(z_B|z_A, x̃)` for a batch of B images, and its importance ratio."""

    def sample(self, shape: tuple[int, ...] = ..., generator: torch.Generator | None = ...) -> Tensor:
        """Exact codes of the free units, `(*shape, B, n)`."""
        ...

    def log_ratio(self, parts: Tensor) -> Tensor:
        """`log r(z) − log r(z_A) − log S(z_B|z_A, x̃)` of codes of the free units `(k, B, n)`: `(k, B)`."""
        ...


class Proposer(Protocol):
    """Reads images and proposes the codes that may have made them."""

    name: str

    @property
    def latents(self) -> LatentSpec:
        """The units of a code."""
        ...

    @property
    def setup(self) -> int:
        """What reading an image costs, in decoder evaluations that take as long."""
        ...

    @property
    def decodes(self) -> int:
        """Decoder evaluations that reading an image takes."""
        ...

    def propose(
        self,
        codes: Tensor,
        images: Tensor,
        known: Collection[str] = (),
        generator: torch.Generator | None = None,
    ) -> WeightedProposal:
        """The proposal for images `(B, *event)`, whose codes `(B, size)` are known in the units A.

        It depends on the images, the known units and the generator's draws alone: never on the other units.
        """
        ...


class QProposer:
    """`S = Q`.

    Args:
        source: `r(z)`.
        network: Q.
    """

    name = "q_network"
    setup = 0
    decodes = 0

    def __init__(self, source: CodeSource, network: QNetwork) -> None:
        self._source, self._network = source, network

    @property
    def latents(self) -> LatentSpec:
        """The units of a code."""
        return self._source.latents

    def propose(
        self,
        codes: Tensor,
        images: Tensor,
        known: Collection[str] = (),
        generator: torch.Generator | None = None,
    ) -> WeightedProposal:
        """`Q(z_B|z_A, x̃)`."""
        return _QProposal(self._source, self._network.proposal(images, codes, known), codes, known)


class _QProposal:
    def __init__(self, source: CodeSource, q: Proposal, codes: Tensor, known: Collection[str]) -> None:
        self._source, self._q, self._codes = source, q, codes
        fixed = source.latents.columns_of(known)
        self._free = [column for column in range(source.latents.size) if column not in fixed]
        self._log_r_known = (
            wide(source.marginal(tuple(known)).log_prob(codes[:, fixed]))
            if known
            else wide(codes.new_zeros(len(codes)))
        )

    def sample(self, shape: tuple[int, ...] = (), generator: torch.Generator | None = None) -> Tensor:
        return self._q.sample(shape, generator)

    def log_ratio(self, parts: Tensor) -> Tensor:
        whole = self._codes.expand(len(parts), -1, -1).clone()
        whole[..., self._free] = parts
        return wide(self._source.log_prob(whole)) - self._log_r_known - wide(self._q.log_prob(parts))


class TiltedProposer:
    """`S(z|x̃) = q̄(z) f(z; x̃) / Z(x̃)`: the aggregate posterior, tilted by what Q reads of the image.

    The posteriors of N images are so many narrow spikes, which a smooth Q misses. S has them exactly: with a
    factorised `f` it is again a mixture of N normal × categorical distributions, the n-th with the share
    `Z_n(x̃) = ∫ q(z|x_n) f(z; x̃) dz` in closed form, and `Z = (1/N) Σ Z_n`. The importance weight is
    `q̄(z) p(x̃|z) / S(z|x̃) = Z(x̃) p(x̃|z) / f(z; x̃)`: the mixture's density is not needed for it.

    Where the units A are known, `r(z_B|z_A)` is a mixture of the same components with shares proportional to
    `q(z_A|x_n)`, and takes the place of q̄.

    `f` is Q over a smooth fit of q̄, as evidence over the prior would be, to the power `sharpness`: for each
    real unit `exp(b (z − a) − ½ λ (z − a)²)`, with a precision `λ ≥ 0`, so that S is proper.

    Args:
        source: q̄.
        network: Q; with dependent units, its unit heads.
        sharpness: positive.
    """

    name = "aggregate_posterior"
    decodes = 0

    def __init__(self, source: AggregatePosterior, network: QNetwork, sharpness: float = 1.0) -> None:
        self.sharpness = sharpness
        self._source, self._network = source, network
        components = source.components
        self._mean = components.mean.mean(0)
        self._variance = ((components.mean - self._mean) ** 2 + components.stddev**2).mean(0)
        self._class_log_probs = [
            probs.mean(0).clamp(min=torch.finfo(probs.dtype).tiny).log() for probs in components.probs
        ]

    @property
    def latents(self) -> LatentSpec:
        """The units of a code."""
        return self._source.latents

    @property
    def setup(self) -> int:
        """N components are weighed."""
        return len(self._source) // COMPONENTS_PER_DECODE

    def propose(
        self,
        codes: Tensor,
        images: Tensor,
        known: Collection[str] = (),
        generator: torch.Generator | None = None,
    ) -> TiltedProposal:
        """`S(z_B|z_A, x̃)`."""
        latents = self.latents
        free = [unit for unit in latents.units if unit not in known]
        components = self._source.components.marginal(free)
        tilt = self._tilt(self._network(images), set(known))
        shares = None
        if known:
            fixed = self._source.marginal(tuple(known))
            shares = fixed.log_responsibilities(codes[:, latents.columns_of(known)])
        return TiltedProposal(components, tilt, shares)

    def _tilt(self, q: CodeDistribution, known: set[str]) -> Tilt:
        latents = self.latents
        real = [i for i, unit in enumerate(latents.continuous_units) if unit not in known]
        blocks = [j for j, unit in enumerate(latents.discrete_units) if unit not in known]
        precision = (q.stddev**-2 - 1 / self._variance).clamp(min=0)
        slope = (q.mean - self._mean) / self._variance
        # Where Q is no surer than q̄ itself, it says nothing.
        slope = torch.where(precision > 0, slope, 0.0)
        return Tilt(
            q.mean[:, real],
            self.sharpness * slope[:, real],
            self.sharpness * precision[:, real],
            [self.sharpness * (q.log_probs[j] - self._class_log_probs[j]) for j in blocks],
        )


@dataclass(frozen=True)
class Tilt:
    """`f(z; x̃)` of B images: `exp(b (z − a) − ½ λ (z − a)²)` for each real unit, `f_k` for each categorical.

    Attributes:
        anchor, slope, precision: a, b, λ; `(B, D)`.
        log_classes: `log f_k` of each categorical unit, `(B, K_j)`.
    """

    anchor: Tensor
    slope: Tensor
    precision: Tensor
    log_classes: list[Tensor]

    def __getitem__(self, rows: slice) -> Tilt:
        """The same of some of the images."""
        return Tilt(
            self.anchor[rows], self.slope[rows], self.precision[rows], [b[rows] for b in self.log_classes]
        )

    def log_value(self, codes: Tensor) -> Tensor:
        """`log f(z; x̃)` of exact codes `(*shape, B, size)`: `(*shape, B)`."""
        real, rest = codes.tensor_split([self.anchor.shape[-1]], dim=-1)
        offset = real - self.anchor
        value = (self.slope * offset - 0.5 * self.precision * offset**2).sum(-1)
        for block in self.log_classes:
            code, rest = rest.tensor_split([block.shape[-1]], dim=-1)
            value = value + (code * block).sum(-1)
        return value

    def log_integrals(self, components: CodeDistribution) -> Tensor:
        """`log Z_n = log ∫ q(z|x_n) f(z; x̃) dz` of N components: `(B, N)`."""
        total = self.anchor.new_zeros(len(self.anchor), len(components.mean))
        for d in range(self.anchor.shape[-1]):
            variance = components.stddev[:, d] ** 2
            a, b, precision = (part[:, d, None] for part in (self.anchor, self.slope, self.precision))
            offset = components.mean[:, d] - a
            growth = precision * variance + 1
            exponent = offset * (b - 0.5 * precision * offset) + 0.5 * b**2 * variance
            total += exponent / growth - 0.5 * growth.log()
        for log_classes, probs in zip(self.log_classes, components.probs, strict=True):
            highest = log_classes.amax(-1, keepdim=True)
            sums = (log_classes - highest).exp() @ probs.T
            total += sums.clamp(min=torch.finfo(sums.dtype).tiny).log() + highest
        return total

    def product(self, components: CodeDistribution) -> CodeDistribution:
        """`q(z|x_n) f(z; x̃) / Z_n` of one component for each image, batch `(*shape, B)`."""
        variance = components.stddev**2
        growth = 1 + self.precision * variance
        pull = self.slope - self.precision * (components.mean - self.anchor)
        return CodeDistribution(
            components.mean + variance * pull / growth,
            components.stddev / growth.sqrt(),
            [block + tilt for block, tilt in zip(components.log_probs, self.log_classes, strict=True)],
        )


class TiltedProposal:
    """`S(z|x̃)` of B images.

    Args:
        components: `q(z|x_n)` of the free units, batch `(N,)`.
        tilt: `f(z; x̃)`.
        log_shares: logarithm of the components' shares, `(B, N)`; None where all are `1/N`.
    """

    def __init__(self, components: CodeDistribution, tilt: Tilt, log_shares: Tensor | None = None) -> None:
        self._components, self.tilt, self._given = components, tilt, log_shares
        count, images = len(components.mean), len(tilt.anchor)
        rows = max(1, BLOCK_ELEMENTS // count)
        joint = torch.cat(
            [tilt[start : start + rows].log_integrals(components) for start in range(0, images, rows)]
        )
        joint = joint - math.log(count) if log_shares is None else joint + log_shares.to(joint.dtype)
        self._log_total = wide(joint.logsumexp(-1))
        self._shares = joint.softmax(-1)

    def sample(self, shape: tuple[int, ...] = (), generator: torch.Generator | None = None) -> Tensor:
        """A component, then a code of its product with `f`: exact codes `(*shape, B, n)`."""
        drawn = torch.multinomial(self._shares, math.prod(shape), replacement=True, generator=generator)
        chosen = self._components[drawn.T.reshape(*shape, len(drawn))]
        return self.tilt.product(chosen).sample((), generator)

    def retilted(self, tilt: Tilt) -> TiltedProposal:
        """The same components with another `f`."""
        return TiltedProposal(self._components, tilt, self._given)

    def log_ratio(self, parts: Tensor) -> Tensor:
        """`log Z(x̃) − log f(z; x̃)`, `(k, B)`."""
        return self._log_total - wide(self.tilt.log_value(parts))


@dataclass(frozen=True)
class Defended:
    """`S = α S_1 + (1 − α) S_2`: weights are at most `1/α` times those of `S_1`, however narrow `S_2` is.

    Attributes:
        safe, fitted: `S_1` and `S_2`, for the same images and `r`.
        share: α.
    """

    safe: WeightedProposal
    fitted: WeightedProposal
    share: float

    def sample(self, shape: tuple[int, ...] = (), generator: torch.Generator | None = None) -> Tensor:
        """Exact codes of the free units, `(*shape, B, n)`."""
        safe, fitted = self.safe.sample(shape, generator), self.fitted.sample(shape, generator)
        chosen = torch.rand(fitted.shape[:-1], generator=generator, device=fitted.device) < self.share
        return torch.where(chosen[..., None], safe, fitted)

    def log_ratio(self, parts: Tensor) -> Tensor:
        """`−log(α S_1/r + (1 − α) S_2/r)`, `(k, B)`."""
        return -torch.logaddexp(
            math.log(self.share) - self.safe.log_ratio(parts),
            math.log1p(-self.share) - self.fitted.log_ratio(parts),
        )


def best_proposer(source: CodeSource, network: QNetwork, codes: Tensor, images: Tensor) -> Proposer:
    """The proposer with the greatest mean `log S(z|x̃)` of pairs `(S, size)`, `(S, *event)`.

    The pairs must not be used again: chosen on them, their bound is too high.
    """
    candidates: list[Proposer] = [QProposer(source, network)]
    if isinstance(source, AggregatePosterior):
        candidates += [TiltedProposer(source, network, sharpness) for sharpness in SHARPNESS]
    if len(candidates) == 1:
        return candidates[0]
    return max(
        candidates, key=lambda proposer: -float(proposer.propose(codes, images).log_ratio(codes[None]).mean())
    )


def calibration_pairs(source: CodeSource) -> int:
    """How many pairs `best_proposer` should see."""
    components = len(source) if isinstance(source, AggregatePosterior) else 1
    return min(MOST_CALIBRATION, max(FEWEST_CALIBRATION, CALIBRATION_ELEMENTS // components))
