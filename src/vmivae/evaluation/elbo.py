"""The ELBO of each image and its parts, the importance-weighted log-likelihood, and which units are in use.

Everything is kept per image, so that every mean is over all images and has a standard error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Distribution

from vmivae.model import CodeDistribution, LatentVariableModel
from vmivae.model.fixed import measured
from vmivae.progress import Progress

ACTIVE = 0.01
"""Above this a unit counts as active: a variance for real units, nats for categorical ones."""

_BATCH = 512
_BATCH_PIXELS = 2**23


class EncodingModel(LatentVariableModel, Protocol):
    """A latent-variable model that also encodes images."""

    def posterior(self, images: Tensor) -> CodeDistribution:
        """`q(z|x)` for images `(B, C, H, W)` in [0, 1], with batch shape `(B,)`."""
        ...


@dataclass(frozen=True)
class ElboParts:
    """The parts of `ELBO = E_q[log p(x|z)] − KL(q(z|x) ‖ p(z))` (3.3) for each of N images.

    Attributes:
        posterior: `q(z|x)`, batch shape `(N,)`.
        distortion: `−log p(x|z)` summed over pixels, at one exact sample `z ~ q(z|x)`: `(N,)`, nats. Its mean
            over images is an unbiased estimate.
        rate_per_unit: `KL(q(z_j|x) ‖ p(z_j))` in closed form: `(N, D + J)`, nats.
        squared_error: squared difference between x and `E[x|z]`, averaged over pixels, at the same z: `(N,)`.
        in_support: whether the likelihood can produce x: `(N,)`. If not (grey pixels under a Bernoulli), the
            distortion is a cross-entropy and no likelihood.
    """

    posterior: CodeDistribution
    distortion: Tensor
    rate_per_unit: Tensor
    squared_error: Tensor
    in_support: Tensor

    @property
    def rate(self) -> Tensor:
        """`KL(q(z|x) ‖ p(z))`, summed over units: `(N,)`, nats."""
        return self.rate_per_unit.sum(-1)

    @property
    def elbo(self) -> Tensor:
        """`−distortion − rate`: `(N,)`, nats."""
        return -self.distortion - self.rate


def elbo_parts(
    model: EncodingModel,
    images: NDArray[np.uint8],
    generator: torch.Generator,
    progress: Progress | None = None,
    what: str = "ELBO",
) -> ElboParts:
    """Encode every image, decode one exact sample of its code, and keep the parts of the ELBO.

    Args:
        model: measured in evaluation mode and left as it was.
        images: `(N, C, H, W)`, pixels `x = value / 255`.
        generator: source of the codes' randomness; its device is the one that is used.
        progress: called after each batch.
        what: the name under which progress is told.

    Returns:
        The parts for all N images, float64 on the CPU.
    """
    encoded: list[CodeDistribution] = []
    parts: list[tuple[Tensor, ...]] = []
    with measured(model, str(generator.device)) as device, torch.inference_mode():
        for batch, done in _batches(images, _images_per_batch(images), device):
            posterior = model.posterior(batch)
            likelihood = model.likelihood(posterior.sample(generator=generator))
            parts.append(
                (
                    -likelihood.log_prob(batch),
                    posterior.kl_per_unit(model.prior),
                    (likelihood.mean - batch).square().flatten(1).mean(-1),
                    _in_support(likelihood, batch),
                )
            )
            encoded.append(posterior)
            if progress:
                progress(what, done, len(images), "")
    distortion, rate_per_unit, squared_error, in_support = (
        torch.cat(part).cpu() for part in zip(*parts, strict=True)
    )
    posterior = CodeDistribution(
        torch.cat([q.mean for q in encoded]).cpu().double(),
        torch.cat([q.stddev for q in encoded]).cpu().double(),
        [torch.cat(blocks).cpu().double() for blocks in zip(*(q.log_probs for q in encoded), strict=True)],
    )
    return ElboParts(
        posterior, distortion.double(), rate_per_unit.double(), squared_error.double(), in_support
    )


def log_likelihood(
    model: EncodingModel,
    images: NDArray[np.uint8],
    importance_samples: int,
    generator: torch.Generator,
    progress: Progress | None = None,
    decodes: int = _BATCH,
) -> Tensor:
    """Importance-weighted estimate of `log p(x)` (Burda et al. 2016, equation 8), per image.

    `log (1/K) Σ_k p(z_k) p(x|z_k) / q(z_k|x)` with exact `z_k ~ q(z|x)`; its expectation rises with K and
    is at most `log p(x)`. It is a log-likelihood only for images in the likelihood's support.

    Args:
        model: measured in evaluation mode and left as it was.
        images: `(N, C, H, W)`, pixels `x = value / 255`.
        importance_samples: K, at least 1. Memory does not grow with it.
        generator: source of the codes' randomness; its device is the one that is used.
        progress: called after each batch of images.
        decodes: the most codes that are decoded at once.

    Returns:
        `(N,)`, nats, float64 on the CPU.
    """
    decodes = min(decodes, _images_per_batch(images))
    estimates = []
    with measured(model, str(generator.device)) as device, torch.inference_mode():
        for batch, done in _batches(images, max(1, decodes // importance_samples), device):
            posterior = model.posterior(batch)
            total = torch.full((len(batch),), -math.inf, dtype=torch.float64)
            left = importance_samples
            while left:
                count = min(left, max(1, decodes // len(batch)))
                log_weights = _log_weights(model, batch, posterior, count, generator).cpu().double()
                total = torch.logaddexp(total, log_weights.logsumexp(0))
                left -= count
            estimates.append(total - math.log(importance_samples))
            if progress:
                progress("log-likelihood", done, len(images), "")
    return torch.cat(estimates)


def active_units(posterior: CodeDistribution) -> tuple[Tensor, Tensor]:
    """How much each unit's posterior differs from image to image, and whether that makes it active.

    A real unit is active if `Var_x(E_q[z_j|x]) > 0.01` (Burda et al. 2016, section 5.1: `A_u = Cov_x(E[u])`).
    That criterion is not defined for a categorical unit; its counterpart here is the information that the
    class carries about the image, `I_q(x; c_j) = H(mean_x π_j) − mean_x H(π_j) > 0.01` nats.

    Args:
        posterior: `q(z|x)` of N images, batch shape `(N,)`.

    Returns:
        The measure of each unit `(D + J,)` and whether it is active `(D + J,)`.
    """
    entropies = posterior.entropy_per_unit().mean(0)[posterior.mean.shape[-1] :]
    mean_probs = [block.mean(0) for block in posterior.probs]
    information = [
        torch.special.entr(mean).sum() - entropy for mean, entropy in zip(mean_probs, entropies, strict=True)
    ]
    mean = posterior.mean
    variance = (mean - mean.mean(0)).square().sum(0) / (len(mean) - 1)
    activity = torch.cat([variance, torch.as_tensor(information, dtype=mean.dtype)])
    return activity, activity > ACTIVE


def _log_weights(
    model: EncodingModel, images: Tensor, posterior: CodeDistribution, count: int, generator: torch.Generator
) -> Tensor:
    """`log p(x, z_k) − log q(z_k|x)` of `count` exact codes for each of B images: `(count, B)`."""
    codes = posterior.sample((count,), generator)
    repeated = images.expand(count, *images.shape).flatten(0, 1)
    log_likelihoods = model.likelihood(codes.flatten(0, 1)).log_prob(repeated).view(count, len(images))
    return log_likelihoods + model.prior.log_prob(codes) - posterior.log_prob(codes)


def _in_support(likelihood: Distribution, images: Tensor) -> Tensor:
    support: Any = likelihood.support
    inside: Tensor = support.check(images)
    return inside


def _images_per_batch(images: NDArray[np.uint8]) -> int:
    return max(1, min(_BATCH, _BATCH_PIXELS // math.prod(images.shape[1:])))


def _batches(images: NDArray[np.uint8], size: int, device: torch.device) -> Iterator[tuple[Tensor, int]]:
    """Images in [0, 1] in batches, the last one as small as it is, and how many there have been."""
    for start in range(0, len(images), size):
        batch = torch.from_numpy(np.array(images[start : start + size])).to(device)
        yield batch.float() / 255, start + len(batch)
