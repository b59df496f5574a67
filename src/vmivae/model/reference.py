"""Models whose information is known: they show what `estimate` needs, and check it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, MultivariateNormal, Normal

from vmivae.model.latents import CodeDistribution, LatentSpec


@dataclass(frozen=True)
class LinearGaussian:
    """`z ~ N(0, I_D)`, `x = Wz + σε`, `ε ~ N(0, I_F)`.

    Args:
        weight: `W`, `(F, D)`.
        scale: `σ > 0`.

    Example:
        >>> model = LinearGaussian(torch.eye(3, 2), scale=1.0)
        >>> round(float(model.information()), 4)  # ½ log 2 for each of two units
        0.6931
    """

    weight: Tensor
    scale: float

    @property
    def latents(self) -> LatentSpec:
        """`D` real units."""
        return LatentSpec(continuous=self.weight.shape[1])

    @property
    def prior(self) -> CodeDistribution:
        """`N(0, I_D)`, batch shape ()."""
        return CodeDistribution.prior(self.latents, self.weight.device)

    def likelihood(self, codes: Tensor) -> Distribution:
        """`N(Wz, σ² I)` for codes `(B, D)`: batch `(B,)`, event `(F,)`."""
        return Independent(Normal(codes @ self.weight.T, self.scale), 1)

    def posterior(self, images: Tensor) -> CodeDistribution:
        """Best factorised approximation of `p(z|x)`, exact for orthogonal columns: batch `(B,)`."""
        precision = self.precision
        mean = torch.linalg.solve(precision, self.weight.T @ images.T / self.scale**2).T
        return CodeDistribution(mean, precision.diagonal().rsqrt().expand_as(mean))

    @property
    def precision(self) -> Tensor:
        """Precision of the exact posterior, `I + WᵀW/σ²`, `(D, D)`."""
        identity = torch.eye(self.weight.shape[1], dtype=self.weight.dtype, device=self.weight.device)
        return identity + self.weight.T @ self.weight / self.scale**2

    def information(self) -> Tensor:
        """`I(z; x) = ½ log det(I + WᵀW/σ²)`, in nats."""
        return 0.5 * self.precision.logdet()

    def unit_information(self) -> Tensor:
        """`I(z_j; x) = −½ log [(I + WᵀW/σ²)⁻¹]_jj` of each unit, `(D,)`, in nats."""
        return -0.5 * self.precision.inverse().diagonal().log()


@dataclass(frozen=True)
class GaussianMixture:
    """A categorical unit that chooses one of K normal distributions (2.15–2.18).

    The fields are those of a fitted scikit-learn GaussianMixture with full covariances, as tensors:
    `weights_`, `means_` and `covariances_`.

    Args:
        weights: `π`, `(K,)`, summing to 1.
        means: `(K, F)`.
        covariances: `(K, F, F)`.
    """

    weights: Tensor
    means: Tensor
    covariances: Tensor

    @property
    def latents(self) -> LatentSpec:
        """One categorical unit of K classes."""
        return LatentSpec(discrete=(len(self.weights),))

    @property
    def prior(self) -> CodeDistribution:
        """`Cat(π)`, batch shape ()."""
        nothing = self.weights.new_zeros(0)
        return CodeDistribution(nothing, nothing, [self.weights.log()])

    def likelihood(self, codes: Tensor) -> Distribution:
        """`N(μ_k, Σ_k)` for one-hot codes `(B, K)`: batch `(B,)`, event `(F,)`."""
        component = codes.argmax(-1)
        return MultivariateNormal(
            self.means[component], scale_tril=torch.linalg.cholesky(self.covariances)[component]
        )

    def posterior(self, images: Tensor) -> CodeDistribution:
        """Exact responsibilities `p(k|x)` (2.17): batch `(B,)`, for images `(B, F)`."""
        each: Distribution = MultivariateNormal(
            self.means, scale_tril=torch.linalg.cholesky(self.covariances)
        )
        nothing = images.new_zeros(len(images), 0)
        return CodeDistribution(nothing, nothing, [each.log_prob(images[:, None]) + self.weights.log()])

    def pointwise_information(self, images: Tensor) -> Tensor:
        """`H(π) − H(p(k|x))`, `(B,)`, in nats: its mean over images of the model is `I(z; x)`."""
        return self.prior.entropy() - self.posterior(images).entropy()
