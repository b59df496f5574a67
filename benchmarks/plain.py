"""The plain baseline: a VAE and its training as they are usually written.

Modules in their default memory layout, a loader, eager fp32, Adam as it comes. The network, its initial
weights and the objective are those of `vmivae.model.VAE` and `vmivae.training.Capacity`, so both sides can be
compared in speed and in result.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vmivae.model import VAE
from vmivae.training import Capacity


class PlainVAE(nn.Module):
    """JointVAE's network, with real units and one categorical unit, from the weights of a `VAE`."""

    def __init__(self, like: VAE) -> None:
        super().__init__()
        self.real = like.latents.continuous
        channels, height, _ = like.image_shape
        widths = [channels, 32, 32, 64, 64] if height == 64 else [channels, 32, 64, 64]
        down: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            down += [nn.Conv2d(before, after, 4, stride=2, padding=1), nn.ReLU()]
        self.trunk = nn.Sequential(*down, nn.Flatten(), nn.Linear(1024, 256), nn.ReLU())
        self.head = nn.Linear(256, 2 * self.real + sum(like.latents.discrete))
        widths = [64, 64, 32, 32, channels] if height == 64 else [64, 32, 32, channels]
        up: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            up += [nn.ConvTranspose2d(before, after, 4, stride=2, padding=1), nn.ReLU()]
        self.decoder = nn.Sequential(
            nn.Linear(like.latents.size, 256),
            nn.ReLU(),
            nn.Linear(256, 1024),
            nn.ReLU(),
            nn.Unflatten(1, (64, 4, 4)),
            *up[:-1],
        )
        with torch.no_grad():
            for mine, theirs in zip(self.parameters(), like.parameters(), strict=True):
                mine.copy_(theirs)

    def forward(self, images: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Logits of the pixels, then mean, log-variance and class logits of the codes."""
        mean, log_variance, classes = self.head(self.trunk(images)).tensor_split(
            [self.real, 2 * self.real], dim=1
        )
        real = mean + (0.5 * log_variance).exp() * torch.randn_like(mean)
        category = F.gumbel_softmax(classes, tau=temperature)
        return self.decoder(torch.cat([real, category], dim=1)), mean, log_variance, classes

    def copy_to(self, model: VAE) -> VAE:
        """Give `model` these weights."""
        with torch.no_grad():
            for mine, theirs in zip(self.parameters(), model.parameters(), strict=True):
                theirs.copy_(mine)
        return model


def loss(
    model: PlainVAE, images: Tensor, temperature: float, objective: Capacity, capacities: tuple[float, float]
) -> Tensor:
    """`distortion + γ·|KL − C|`, per image, for real and categorical units apart (Dupont 2018)."""
    logits, mean, log_variance, classes = model(images, temperature)
    distortion = F.binary_cross_entropy_with_logits(logits, images, reduction="sum") / len(images)
    kl_real = 0.5 * (mean**2 + log_variance.exp() - log_variance - 1).sum(1).mean()
    log_probs = classes.log_softmax(1)
    kl_category = (log_probs.exp() * (log_probs + math.log(classes.shape[1]))).sum(1).mean()
    gammas, (c_real, c_category) = objective.gamma, capacities
    return distortion + gammas[0] * (kl_real - c_real).abs() + gammas[1] * (kl_category - c_category).abs()


def train(
    model: PlainVAE,
    loader: Iterable[tuple[Tensor, Tensor]],
    epochs: int,
    objective: Capacity,
    learning_rate: float,
    temperature: float,
    device: str = "cpu",
) -> Iterator[int]:
    """Train in place; yields after each epoch how many images it took."""
    model.to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    step = 0
    for _ in range(epochs):
        seen = 0
        for images, _ in loader:
            images = images.to(device)
            real, category = objective.capacity(step)
            optimizer.zero_grad()
            value = loss(model, images, temperature, objective, (real or 0.0, category or 0.0))
            value.backward()
            optimizer.step()
            step, seen = step + 1, seen + len(images)
        yield seen
