"""What a latent-variable model must offer to have its information measured."""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

from torch import Tensor
from torch.distributions import Distribution

from vmivae.errors import ParameterError
from vmivae.model.latents import CodeDistribution, LatentSpec

ROUND_OFF = 1e-3
"""Part of a log-likelihood by which it may differ between batches."""


@runtime_checkable
class LatentVariableModel(Protocol):
    """A prior over codes and a likelihood of images given codes; a posterior only if its codes are wanted."""

    @property
    def latents(self) -> LatentSpec:
        """The units of a code."""
        ...

    @property
    def prior(self) -> CodeDistribution:
        """`p(z)`, with batch shape ()."""
        ...

    def likelihood(self, codes: Tensor) -> Distribution:
        """`p(x|z)` for codes `(B, size)`: batch `(B,)`, event = one image; needs `sample`, `log_prob`."""
        ...


def require_prior(model: LatentVariableModel) -> None:
    """Say what is missing or does not fit before anything is measured.

    Raises:
        ParameterError: `latents` or `prior` is absent or of another type, or the two disagree.
    """
    for name, wanted in (("latents", LatentSpec), ("prior", CodeDistribution)):
        found = getattr(model, name, None)
        if not isinstance(found, wanted):
            raise ParameterError(f"model.{name}: must be a {wanted.__name__}, got {type(found).__name__}")
    prior = model.prior
    if prior.batch_shape or prior.latents != model.latents:
        raise ParameterError(
            f"model.prior: must be one distribution of {model.latents}, got {prior.latents} "
            f"with batch shape {tuple(prior.batch_shape)}"
        )


def require_likelihood(model: LatentVariableModel, codes: Tensor) -> None:
    """Try the likelihood on codes `(B, size)`, at least four, with the model in evaluation mode.

    Raises:
        ParameterError: it is no distribution with a batch of codes and an image as event, or what it says of
            one code depends on the others.
    """
    found = model.likelihood(codes)
    if not isinstance(found, Distribution):
        raise ParameterError(
            f"model.likelihood: must return a torch Distribution, got {type(found).__name__}"
        )
    if found.batch_shape != codes.shape[:1] or not found.event_shape:
        raise ParameterError(
            f"model.likelihood: must have batch shape ({len(codes)},) for {len(codes)} codes and one image "
            f"as event, got batch {tuple(found.batch_shape)} and event {tuple(found.event_shape)}; "
            "torch.distributions.Independent makes an event of pixels"
        )
    images = found.sample()
    half = len(codes) // 2
    whole = float(found.log_prob(images)[0])
    part = float(model.likelihood(codes[:half]).log_prob(images[:half])[0])
    if math.isfinite(whole) and not abs(whole - part) <= ROUND_OFF * max(1.0, abs(whole)):
        raise ParameterError(
            f"model.likelihood: log p(x|z) of one pair is {whole:.2f} in a batch of {len(codes)} "
            f"and {part:.2f} in one of {half}; it must depend on its own code only (no batch statistics, no "
            "dropout)"
        )


def require_posterior(posterior: CodeDistribution, latents: LatentSpec, images: int) -> None:
    """Check the posteriors of N images.

    Raises:
        ParameterError: they are of other units, not one for each image, or have a standard deviation that is
            not positive.
    """
    if posterior.latents != latents or posterior.batch_shape != (images,):
        raise ParameterError(
            f"model.posterior: must be of {latents} with batch shape ({images},) for {images} images, "
            f"got {posterior.latents} with batch shape {tuple(posterior.batch_shape)}"
        )
    if not bool((posterior.stddev > 0).all()):
        raise ParameterError(
            f"model.posterior: stddev must be > 0, got {float(posterior.stddev.min()):.4g} "
            "(a log-variance is no standard deviation)"
        )
