"""The variational autoencoder with real and categorical units, and its files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Distribution, Independent, Normal

from vmivae.errors import DataError, ParameterError
from vmivae.model.latents import CodeDistribution, LatentSpec
from vmivae.model.likelihoods import ContinuousBernoulli
from vmivae.model.networks import CodeHead, decoder, encoder_trunk, seeded_initialization
from vmivae.weights import load_network, save_network

LIKELIHOODS = ("bernoulli", "continuous_bernoulli", "gaussian")
# A learned scale stays above the rounding of 8-bit pixels, (1/255)/√12: constant images would drive it to 0.
SCALE_FLOOR = 1e-3
SCALE_START = 0.3


class VAE(nn.Module):
    """`p(z) p(x|z)` with its posterior `q(z|x)` (3.5).

    Args:
        image_shape: `(C, H, W)`.
        latents: the units of a code.
        architecture: `conv` (32×32 or 64×64 images) or `mlp`.
        likelihood: of each pixel: `bernoulli`, `continuous_bernoulli` or `gaussian`.
        scale: standard deviation of the `gaussian` likelihood, in units of the pixel range [0, 1]: a number,
            or `learned` (one for all pixels). No effect on the other likelihoods.
        seed: of the initial weights; the global random state is left alone.

    Raises:
        ParameterError: an unknown name, a scale that is not positive, or images the architecture cannot take.

    Example:
        >>> vae = VAE((1, 32, 32), LatentSpec(continuous=10, discrete=(10,)))
        >>> codes = vae.posterior(torch.rand(5, 1, 32, 32)).sample()
        >>> vae.likelihood(codes).log_prob(torch.rand(5, 1, 32, 32)).shape
        torch.Size([5])
    """

    def __init__(
        self,
        image_shape: Sequence[int],
        latents: LatentSpec,
        architecture: str = "conv",
        likelihood: str = "bernoulli",
        scale: float | Literal["learned"] = "learned",
        seed: int = 0,
    ) -> None:
        super().__init__()
        if likelihood not in LIKELIHOODS:
            raise ParameterError(
                f"model.likelihood: must be one of {', '.join(LIKELIHOODS)}, got {likelihood}"
            )
        channels, height, width = image_shape
        self.image_shape = (int(channels), int(height), int(width))
        self.latents = latents
        self.architecture = architecture
        self.likelihood_name = likelihood
        if scale != "learned" and (isinstance(scale, str) or not 0 < scale < math.inf):
            raise ParameterError(f"model.scale: must be learned or a number > 0, got {scale}")
        self.declared_scale = scale
        if likelihood == "gaussian" and scale == "learned":
            self.log_scale = nn.Parameter(torch.tensor(math.log(SCALE_START)))
        with seeded_initialization(seed):
            self.trunk, features = encoder_trunk(self.image_shape, architecture)
            self.head = CodeHead(features, latents)
            self.decoder = decoder(latents, self.image_shape, architecture)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.head.linear.weight.device

    @property
    def prior(self) -> CodeDistribution:
        """`p(z) = N(0, I) × Π Cat(1/K_j)`, batch shape ()."""
        return CodeDistribution.prior(self.latents, device=self.device)

    @property
    def scale(self) -> Tensor | float:
        """Standard deviation of a pixel under the `gaussian` likelihood."""
        return SCALE_FLOOR + self.log_scale.exp() if self.declared_scale == "learned" else self.declared_scale

    def posterior(self, images: Tensor) -> CodeDistribution:
        """`q(z|x)`, batch `(B,)`, for images `(B, C, H, W)` in [0, 1].

        Raises:
            DataError: images of another shape than the model's.
        """
        if images.shape[1:] != self.image_shape:
            shape = ", ".join(map(str, self.image_shape))
            raise DataError(
                f"images: must be (B, {shape}) for this model, got {tuple(images.shape)}; "
                "`dvc repro` makes a model of the present images"
            )
        return self.head(self.trunk(images))  # type: ignore[no-any-return]

    def likelihood(self, codes: Tensor) -> Distribution:
        """`p(x|z)`, batch `(B,)`, event `(C, H, W)`, for codes `(B, size)`; in fp32 also under autocast."""
        logits = self.decoder(codes).float()
        pixel: Distribution
        if self.likelihood_name == "bernoulli":
            # Unchecked: with a grey pixel x the formula is minus the cross-entropy, wanted in training.
            pixel = Bernoulli(logits=logits, validate_args=False)
        elif self.likelihood_name == "continuous_bernoulli":
            pixel = ContinuousBernoulli(logits)
        else:
            pixel = Normal(logits.sigmoid(), self.scale, validate_args=False)
        return Independent(pixel, 3, validate_args=False)

    def description(self) -> dict[str, object]:
        """All that rebuilds the model but for its weights: the content of model.json."""
        return {
            "image_shape": list(self.image_shape),
            "latents": {"continuous": self.latents.continuous, "discrete": list(self.latents.discrete)},
            "architecture": self.architecture,
            "likelihood": self.likelihood_name,
            "scale": self.declared_scale,
        }


def save_vae(model: VAE, path: str | Path) -> None:
    """Write the folder `path` with `model.safetensors` and `model.json`; whole or not at all."""
    save_network(model, model.description(), Path(path))


def load_vae(path: str | Path = "models/vae") -> VAE:
    """Read what `save_vae` wrote; the model is on the CPU, in evaluation mode.

    Raises:
        DataError: a file is missing, damaged, or does not fit the other.
    """
    return load_network(Path(path), _rebuilt)


def _rebuilt(description: dict[str, Any]) -> VAE:
    return VAE(
        description["image_shape"],
        LatentSpec(**description["latents"]),
        description["architecture"],
        description["likelihood"],
        description["scale"],
    )
