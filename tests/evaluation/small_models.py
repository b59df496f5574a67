"""Small models with known answers."""

import math

import numpy as np
import torch
from torch import nn
from torch.distributions import Bernoulli, Independent, Normal

from vmivae.model import CodeDistribution, LatentSpec

SHAPE = (1, 2, 3)
PIXELS = 6


class LinearGaussian(nn.Module):
    """`z ~ N(0, I)`, `x = Wz + b + σε`, W with orthogonal columns, so that the exact posterior is factorised.

    `shrink` other than 1 makes the posterior's standard deviation wrong by that factor.
    """

    def __init__(self, units: int = 2, noise: float = 0.3, shrink: float = 1.0) -> None:
        super().__init__()
        self.latents = LatentSpec(continuous=units)
        basis = np.linalg.qr(np.random.default_rng(3).normal(size=(PIXELS, units)))[0]
        self.weight = torch.from_numpy(basis) * torch.linspace(0.4, 0.8, units, dtype=torch.float64)
        self.bias = torch.linspace(0.2, 0.6, PIXELS, dtype=torch.float64)
        self.noise = noise
        self.shrink = shrink

    @property
    def prior(self):
        return CodeDistribution(
            torch.zeros(self.latents.continuous, dtype=torch.float64),
            torch.ones(self.latents.continuous, dtype=torch.float64),
        )

    def likelihood(self, codes):
        mean = (codes @ self.weight.T + self.bias).view(-1, *SHAPE)
        return Independent(Normal(mean, self.noise, validate_args=False), 3, validate_args=False)

    def posterior(self, images):
        precision = 1 + self.weight.square().sum(0) / self.noise**2
        mean = (images.double().flatten(1) - self.bias) @ self.weight / self.noise**2 / precision
        return CodeDistribution(mean, self.shrink * precision.rsqrt().expand_as(mean))

    def log_prob(self, images):
        covariance = self.weight @ self.weight.T + self.noise**2 * torch.eye(PIXELS, dtype=torch.float64)
        normal = torch.distributions.MultivariateNormal(self.bias, covariance)
        return normal.log_prob(torch.from_numpy(images).flatten(1).float().div(255).double())


class Categorical:
    """One unit of K classes, a Bernoulli probability for each class and pixel, and the exact posterior."""

    def __init__(self, classes: int = 3) -> None:
        self.latents = LatentSpec(discrete=(classes,))
        self.probs = torch.from_numpy(np.random.default_rng(4).uniform(0.05, 0.95, (classes, PIXELS)))

    @property
    def prior(self):
        empty = torch.zeros(0, dtype=torch.float64)
        return CodeDistribution(empty, empty, [torch.zeros(self.latents.discrete[0], dtype=torch.float64)])

    def likelihood(self, codes):
        assert ((codes == 0) | (codes == 1)).all(), "codes are exact, never relaxed"
        assert (codes.sum(-1) == 1).all()
        return Independent(Bernoulli((codes @ self.probs).view(-1, *SHAPE)), 3)

    def joint(self, images):
        pixels = images.double().flatten(1)[:, None]
        log_likelihood = (pixels * self.probs.log() + (1 - pixels) * (1 - self.probs).log()).sum(-1)
        return log_likelihood - math.log(len(self.probs))

    def posterior(self, images):
        empty = torch.zeros(len(images), 0, dtype=torch.float64)
        return CodeDistribution(empty, empty, [self.joint(images)])

    def log_prob(self, images):
        return self.joint(torch.from_numpy(images) / 255).logsumexp(-1)


def grey(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, *SHAPE), dtype=np.uint8)


def binary(count, seed=0):
    return 255 * np.random.default_rng(seed).integers(0, 2, (count, *SHAPE), dtype=np.uint8)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)
