"""What a latent-variable model must offer to have its information measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
        ParameterError: `latents` or `prior` is absent or of another type, the two disagree, or the prior has
            a NaN or a standard deviation that is not positive.
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
    _require_numbers("model.prior", prior)


def require_likelihood(model: LatentVariableModel, codes: Tensor) -> None:
    """Try the likelihood on codes `(B, size)`, at least four, with the model in evaluation mode.

    Raises:
        ParameterError: it cannot be called or fails, it is no distribution with a batch of codes and an image
            as event, it gives no finite density, or what it says of one code depends on the others.
    """
    if not callable(getattr(model, "likelihood", None)):
        raise ParameterError("model.likelihood: must be a function of codes")
    with naming(f"model.likelihood: fails for codes of shape {tuple(codes.shape)}"):
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
    half = len(codes) // 2
    with naming("model.likelihood: fails to draw images, or to tell their density"):
        images = found.sample()
        each = found.log_prob(images)
    if not bool(each.isfinite().all()):
        raise ParameterError(
            f"model.likelihood: log p(x|z) of images drawn from it must be finite, got {each.tolist()}"
        )
    whole = float(each[0])
    part = float(model.likelihood(codes[:half]).log_prob(images[:half])[0])
    if not abs(whole - part) <= ROUND_OFF * max(1.0, abs(whole)):
        raise ParameterError(
            f"model.likelihood: log p(x|z) of one pair is {whole:.2f} in a batch of {len(codes)} "
            f"and {part:.2f} in one of {half}; it must depend on its own code only (no batch statistics, no "
            "dropout)"
        )


def require_posterior(posterior: CodeDistribution, latents: LatentSpec | None, images: int) -> None:
    """Check the posteriors of N images, of the units `latents` where these are given.

    Raises:
        ParameterError: they are no CodeDistribution, of other units, not one for each image, or have a NaN or
            a standard deviation that is not positive.
    """
    if not isinstance(posterior, CodeDistribution):
        raise ParameterError(
            f"model.posterior: must return a CodeDistribution, got {type(posterior).__name__}"
        )
    wanted = latents or posterior.latents
    if posterior.latents != wanted or posterior.batch_shape != (images,):
        raise ParameterError(
            f"model.posterior: must be of {wanted} with batch shape ({images},) for {images} images, "
            f"got {posterior.latents} with batch shape {tuple(posterior.batch_shape)}"
        )
    _require_numbers("model.posterior", posterior)


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Say what of a model has failed, in one line, where torch refuses shapes, types or values.

    Raises:
        ParameterError: in place of torch's own error, which stays its cause.
    """
    try:
        yield
    except (ValueError, RuntimeError, TypeError, AttributeError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ParameterError(f"{what} ({lines[0]})") from error


def _require_numbers(name: str, codes: CodeDistribution) -> None:
    if not bool((codes.stddev > 0).all()):
        raise ParameterError(
            f"{name}: stddev must be > 0, got {float(codes.stddev.min()):.4g} "
            "(a log-variance is no standard deviation)"
        )
    for part, values in (
        ("mean", codes.mean),
        ("stddev", codes.stddev),
        *(("probs", p) for p in codes.probs),
    ):
        if not bool(values.isfinite().all()):
            raise ParameterError(f"{name}: {part} must be finite, got NaN or infinity")
