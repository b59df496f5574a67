"""Distributions of a pixel given the decoder's logit."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Distribution, Independent, constraints
from torch.nn import functional as F

# Below this |logit| the closed forms of the continuous Bernoulli cancel; their series are then exact to 1e-8.
SERIES_BELOW = 0.3


class ContinuousBernoulli(Distribution):
    """Density on [0, 1] proportional to `exp(λ x)`, `λ` the logit (Loaiza-Ganem & Cunningham 2019).

    torch.distributions.ContinuousBernoulli clamps the probability to 1 ± 1e-7, so beyond |logit| 16 its
    density no longer integrates to 1 and its gradient is wrong: decoders of images on black do get there.

    Args:
        logits: any shape.

    Example:
        >>> pixels = ContinuousBernoulli(torch.zeros(3))
        >>> pixels.log_prob(torch.tensor([0.0, 0.5, 1.0]))
        tensor([0., 0., 0.])
    """

    arg_constraints = {"logits": constraints.real}  # noqa: RUF012 - the attribute torch.distributions reads
    support = constraints.unit_interval

    def __init__(self, logits: Tensor, validate_args: bool | None = False) -> None:
        self.logits = logits
        super().__init__(logits.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """`1 / (1 − e^−λ) − 1 / λ`."""
        near, far, centred = self._branches()
        exact = -1 / torch.expm1(-far) - 1 / far
        series = 0.5 + near * (1 / 12 - near**2 * (1 / 720 - near**2 / 30240))
        return torch.where(centred, series, exact)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-density at pixels in [0, 1], in nats: the log-normaliser minus the cross-entropy."""
        cross_entropy = F.softplus(self.logits) - value * self.logits
        return self.log_normalizer() - cross_entropy

    def log_normalizer(self) -> Tensor:
        """`log (λ / tanh(λ/2))`; log 2 at `λ = 0`."""
        near, far, centred = self._branches()
        exact = (far / torch.tanh(far / 2)).log()
        square = near**2
        series = math.log(2) + square * (1 / 12 - square * (7 / 1440 - square * 31 / 90720))
        return torch.where(centred, series, exact)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Pixels `(*sample_shape, *batch)`, by inverting the distribution function."""
        with torch.no_grad():
            shape = self._extended_shape(torch.Size(sample_shape))
            return self.from_uniform(torch.rand(shape, dtype=self.logits.dtype, device=self.logits.device))

    def from_uniform(self, uniform: Tensor) -> Tensor:
        """Pixels made from uniform noise in [0, 1) of the same shape, with a gradient in the logits."""
        rate = self.logits.abs().clamp_min(1e-6)
        falling = (-torch.log1p(uniform * torch.expm1(-rate)) / rate).clamp(0, 1)
        return torch.where(self.logits > 0, 1 - falling, falling)

    def _branches(self) -> tuple[Tensor, Tensor, Tensor]:
        """Logits safe for the series, logits safe for the closed form, and where the series is meant.

        Each branch sees only values at which it is finite: `where` passes NaN gradients from the other side.
        """
        centred = self.logits.abs() < SERIES_BELOW
        near = torch.where(centred, self.logits, 0.0)
        far = torch.where(centred, 1.0, self.logits)
        return near, far, centred


def pixels_from_uniform(likelihood: Distribution, uniform: Tensor) -> Tensor:
    """Images `x̃ ~ p(x|z)` made from uniform noise in [0, 1), with a gradient in the decoder's output.

    Grey values are reparameterised. Black or white pixels, which have no derivative, get that of their means
    (straight-through, Bengio et al. 2013): for training only.

    Args:
        likelihood: as `VAE.likelihood` gives it, batch `(B,)`, event `(C, H, W)`.
        uniform: `(B, C, H, W)`.
    """
    pixel = likelihood.base_dist if isinstance(likelihood, Independent) else likelihood
    if isinstance(pixel, Bernoulli):
        sample = (uniform < pixel.probs).to(uniform.dtype)
        return sample + (pixel.probs - pixel.probs.detach())
    if isinstance(pixel, ContinuousBernoulli):
        return pixel.from_uniform(uniform)
    # The inverse of a normal's distribution function is infinite at 0.
    return pixel.icdf(uniform.clamp_min(torch.finfo(uniform.dtype).eps / 4))
