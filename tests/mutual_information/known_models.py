"""Small models with known answers, and one that records what it is asked to decode."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, MultivariateNormal, Normal

from vmivae.model.latents import CodeDistribution, LatentSpec
from vmivae.model.reference import LinearGaussian


def orthogonal(features: int, lengths: list[float], scale: float = 1.0, seed: int = 0) -> LinearGaussian:
    """Linear-Gaussian model whose columns are orthogonal and of the given lengths."""
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(features, len(lengths), generator=generator))[0]
    return LinearGaussian(basis * torch.tensor(lengths), scale)


def correlated(features: int, units: int, scale: float = 1.0, seed: int = 0) -> LinearGaussian:
    """Linear-Gaussian model with a random map, so that its exact posterior has dependent units."""
    generator = torch.Generator().manual_seed(seed)
    return LinearGaussian(torch.randn(features, units, generator=generator) / features**0.5 * 2, scale)


def drawn(model: LinearGaussian, count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Codes from the prior, and an image of each."""
    generator = torch.Generator().manual_seed(seed)
    codes = model.prior.sample((count,), generator)
    noise = torch.randn(count, len(model.weight), generator=generator)
    return codes, codes @ model.weight.T + model.scale * noise


def exact_evidence(model: LinearGaussian, images: Tensor) -> Tensor:
    """`log p(x)` in closed form."""
    covariance = model.weight @ model.weight.T + model.scale**2 * torch.eye(len(model.weight))
    return MultivariateNormal(torch.zeros(len(model.weight)), covariance).log_prob(images).double()


@dataclass
class Table:
    """Images are rows of a table, chosen by one categorical unit, with normal noise; real units are ignored.

    Args:
        rows: `(K, *event)`.
        scale: of the noise.
        continuous: number of ignored real units.
    """

    rows: Tensor
    scale: float
    continuous: int = 0
    decoded: list[Tensor] = field(default_factory=list)

    @property
    def latents(self) -> LatentSpec:
        return LatentSpec(self.continuous, (len(self.rows),))

    @property
    def prior(self) -> CodeDistribution:
        return CodeDistribution.prior(self.latents)

    def likelihood(self, codes: Tensor) -> Distribution:
        self.decoded.append(codes)
        mean = torch.einsum("bk,k...->b...", codes[:, self.continuous :], self.rows)
        return Independent(
            Normal(mean, self.scale, validate_args=False), self.rows.ndim - 1, validate_args=False
        )

    def posterior(self, images: Tensor) -> CodeDistribution:
        size = len(images)
        distance = (images[:, None] - self.rows).flatten(2).square().sum(-1)
        return CodeDistribution(
            torch.zeros(size, self.continuous), torch.ones(size, self.continuous), [-0.5 * distance]
        )


@dataclass(frozen=True)
class NarrowEncoder:
    """A linear-Gaussian model whose encoder maps every image to `N(m, s² I)`: case 5 of the known answers."""

    decoder: LinearGaussian
    mean: float
    stddev: float

    @property
    def latents(self) -> LatentSpec:
        return self.decoder.latents

    @property
    def prior(self) -> CodeDistribution:
        return self.decoder.prior

    def likelihood(self, codes: Tensor) -> Distribution:
        return self.decoder.likelihood(codes)

    def posterior(self, images: Tensor) -> CodeDistribution:
        shape = len(images), self.latents.continuous
        return CodeDistribution(torch.full(shape, self.mean), torch.full(shape, self.stddev))

    def information(self) -> float:
        """Exact `I_r(z; x)` with `r = N(m, s² I)`: that of the map `sW` with standard normal codes."""
        return float(LinearGaussian(self.stddev * self.decoder.weight, self.decoder.scale).information())


@dataclass(frozen=True)
class Apart:
    """Real and categorical units that show in different pixels, `x = (Wz, 5c) + ε`: information adds.

    Args:
        decoder: of the real units.
        classes: K; with noise of scale 1 the classes, 7 apart, are hardly ever confused.
    """

    decoder: LinearGaussian
    classes: int

    @property
    def latents(self) -> LatentSpec:
        return LatentSpec(self.decoder.latents.continuous, (self.classes,))

    @property
    def prior(self) -> CodeDistribution:
        return CodeDistribution.prior(self.latents)

    def likelihood(self, codes: Tensor) -> Distribution:
        real, (onehot,) = self.latents.split(codes)
        return Independent(Normal(torch.cat([real @ self.decoder.weight.T, 5 * onehot], -1), 1.0), 1)


class Exact:
    """A Q that is the model's own posterior."""

    def __init__(self, model: LinearGaussian) -> None:
        self.model = model

    def __call__(self, images: Tensor) -> CodeDistribution:
        return self.model.posterior(images)

    def proposal(self, images: Tensor, codes: Tensor, known: tuple[str, ...] = ()) -> CodeDistribution:
        return self(images).marginal([unit for unit in self.model.latents.units if unit not in known])


class Wide(Exact):
    """A poor Q: the posterior, shifted and twice as wide."""

    def __call__(self, images: Tensor) -> CodeDistribution:
        q = super().__call__(images)
        return CodeDistribution(q.mean + 0.5 * q.stddev, 2 * q.stddev)
