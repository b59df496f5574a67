"""The Q-network: a learned `Q(z|x̃)` with independent units."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from vmivae.model.latents import CodeDistribution, LatentSpec
from vmivae.model.networks import CodeHead, encoder_trunk


class Proposal(Protocol):
    """A distribution of codes, or of some of their units, with batch shape `(B,)`."""

    def sample(self, shape: tuple[int, ...] = ..., generator: torch.Generator | None = ...) -> Tensor:
        """Exact codes `(*shape, B, n)`."""
        ...

    def log_prob(self, codes: Tensor) -> Tensor:
        """Log-density of codes `(*shape, B, n)`: `(*shape, B)`."""
        ...


class QNetwork(nn.Module):
    """`Q(z|x̃)` with independent units: a normal for each real one, a categorical for each categorical one.

    Args:
        image_shape: event shape of the likelihood, `(C, H, W)` or any other. Images are read by a perceptron
            with a linear path beside it, so that the exact posterior of a linear-Gaussian model with
            orthogonal columns is within reach. (Convolutions gave a looser bound in the same time: on 32×32
            digits, 5.6 nats where the perceptron gave 6.7.)
        latents: the units of a code.

    Example:
        >>> q = QNetwork((1, 32, 32), LatentSpec(continuous=2, discrete=(10,)))
        >>> q(torch.zeros(5, 1, 32, 32)).sample().shape
        torch.Size([5, 12])
    """

    family = "gaussian"
    image_mean: Tensor
    image_stddev: Tensor
    code_mean: Tensor
    code_stddev: Tensor

    def __init__(self, image_shape: tuple[int, ...], latents: LatentSpec) -> None:
        super().__init__()
        self.image_shape = tuple(image_shape)
        self.latents = latents
        size = math.prod(self.image_shape)
        self.trunk, features = encoder_trunk((1, 1, size), "mlp")
        # PyTorch's small initial weights: the linear path leads; where it is exact, little is to unlearn.
        for layer in self.trunk.modules():
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()
        self.width = features + size
        self.head = CodeHead(self.width, latents)
        self.register_buffer("image_mean", torch.zeros(size))
        self.register_buffer("image_stddev", torch.ones(size))
        self.register_buffer("code_mean", torch.zeros(latents.continuous))
        self.register_buffer("code_stddev", torch.ones(latents.continuous))

    def forward(self, images: Tensor) -> CodeDistribution:
        """`Q_j(z_j|x̃)` of every unit, batch `(B,)`, for images `(B, *image_shape)`."""
        return self.units(self.features(images))

    def proposal(self, images: Tensor, codes: Tensor, known: Collection[str] = ()) -> Proposal:
        """`Q(z_B|x̃)` of the units B that are not known, batch `(B,)`.

        Args:
            images: `(B, *image_shape)`.
            codes: codes `(B, size)` whose known units may inform Q; here they do not.
            known: the units left out.
        """
        q = self.units(self.features(images))
        return q.marginal([unit for unit in self.latents.units if unit not in known])

    def score(self, codes: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
        """`log Q(z|x̃)`, `(B,)`, and `log Q_j(z_j|x̃)` of every unit, `(B, D + J)`, in nats."""
        per_unit = self(images).log_prob_per_unit(codes)
        return per_unit.sum(-1), per_unit

    def objective(self, codes: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
        """Mean `log Q(z|x̃)` in nats, and the loss whose gradient fits Q."""
        log_q = self.score(codes, images)[0].mean()
        return log_q, -log_q

    def features(self, images: Tensor) -> Tensor:
        """What both Q and its unit heads read of images `(B, *image_shape)`: `(B, n)`."""
        images = (self._flat(images) - self.image_mean) / self.image_stddev
        return torch.cat([self.trunk(images), images], dim=-1)

    def units(self, features: Tensor) -> CodeDistribution:
        """`Q_j(z_j|x̃)` of every unit from features `(B, n)`."""
        standard = self.head(features)
        return CodeDistribution(
            self.code_mean + self.code_stddev * standard.mean,
            self.code_stddev * standard.stddev,
            standard.log_probs,
        )

    def _flat(self, images: Tensor) -> Tensor:
        return images.reshape(-1, math.prod(self.image_shape)).to(self.image_mean.dtype)

    def standardize(self, codes: Tensor, images: Tensor) -> None:
        """Take location and scale of inputs and real units from pairs `(S, size)`, `(S, *image_shape)`.

        With them one learning rate fits codes and images of any scale.
        """
        images = self._flat(images)
        self.image_mean.copy_(images.mean(0))
        self.image_stddev.copy_(_positive(images.std(0)))
        if self.latents.continuous:
            real, _ = self.latents.split(codes)
            self.code_mean.copy_(real.mean(0))
            self.code_stddev.copy_(_positive(real.std(0)))

    def description(self) -> dict[str, Any]:
        """All that rebuilds Q but for its weights: the content of model.json."""
        return {
            "family": self.family,
            "image_shape": list(self.image_shape),
            "latents": {"continuous": self.latents.continuous, "discrete": list(self.latents.discrete)},
        }


def _positive(scale: Tensor) -> Tensor:
    # An input or unit that never varies is left at its own scale.
    return torch.where(scale > 1e-6, scale, 1.0)
