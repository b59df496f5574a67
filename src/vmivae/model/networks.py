"""Encoder and decoder networks: the convolutions of JointVAE (Dupont 2018), and a plain perceptron.

Every convolution is 4×4 with stride 2 and padding 1, so it halves (or, transposed, doubles) the side.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from vmivae.errors import ParameterError
from vmivae.model.latents import CodeDistribution, LatentSpec

ARCHITECTURES = ("conv", "mlp")
HIDDEN = 256


def encoder_trunk(image_shape: tuple[int, int, int], architecture: str) -> tuple[nn.Module, int]:
    """What an encoder does before its heads.

    Args:
        image_shape: `(C, H, W)`.
        architecture: `conv` (32×32 or 64×64 images) or `mlp` (any size).

    Returns:
        A module from images `(B, C, H, W)` to features `(B, n)`, and `n`.

    Raises:
        ParameterError: an unknown architecture, or images that it does not take.
    """
    channels, height, width = _checked(image_shape, architecture)
    if architecture == "mlp":
        perceptron = nn.Sequential(
            nn.Flatten(),
            nn.Linear(channels * height * width, 512),
            nn.ReLU(inplace=True),
            nn.Linear(512, HIDDEN),
            nn.ReLU(inplace=True),
        )
        return _initialized(perceptron), HIDDEN
    widths = [channels, 32, 32, 64, 64] if height == 64 else [channels, 32, 64, 64]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Conv2d(before, after, 4, stride=2, padding=1), nn.ReLU(inplace=True)]
    layers += [nn.Flatten(), nn.Linear(64 * 4 * 4, HIDDEN), nn.ReLU(inplace=True)]
    return _channels_last(_initialized(nn.Sequential(*layers))), HIDDEN


def decoder(latents: LatentSpec, image_shape: tuple[int, int, int], architecture: str) -> nn.Module:
    """The mirror of `encoder_trunk`: a module from codes `(B, size)` to logits of pixels `(B, C, H, W)`.

    Raises:
        ParameterError: as `encoder_trunk`.
    """
    channels, height, width = _checked(image_shape, architecture)
    if architecture == "mlp":
        perceptron = nn.Sequential(
            nn.Linear(latents.size, HIDDEN),
            nn.ReLU(inplace=True),
            nn.Linear(HIDDEN, 512),
            nn.ReLU(inplace=True),
            nn.Linear(512, channels * height * width),
            nn.Unflatten(1, image_shape),
        )
        return _initialized(perceptron)
    widths = [64, 64, 32, 32, channels] if height == 64 else [64, 32, 32, channels]
    layers: list[nn.Module] = [
        nn.Linear(latents.size, HIDDEN),
        nn.ReLU(inplace=True),
        nn.Linear(HIDDEN, 64 * 4 * 4),
        nn.ReLU(inplace=True),
        nn.Unflatten(1, (64, 4, 4)),
    ]
    for before, after in itertools.pairwise(widths[:-1]):
        layers += [nn.ConvTranspose2d(before, after, 4, stride=2, padding=1), nn.ReLU(inplace=True)]
    layers.append(ToPixels(widths[-2], channels))
    return _channels_last(_initialized(nn.Sequential(*layers)))


class ToPixels(nn.ConvTranspose2d):
    """The last layer of a decoder: a transposed convolution, 4×4, stride 2, padding 1, to few channels.

    Where no gradient is asked for, as in every estimate, it is computed on a CPU as one matrix product and
    sums of its shifted parts: oneDNN's kernel is made for many channels, and takes half of the time of
    decoding.

    Args:
        inputs: channels of what comes in.
        outputs: channels of the images.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 4, stride=2, padding=1)

    def forward(self, features: Tensor, output_size: list[int] | None = None) -> Tensor:
        """Pixels `(B, outputs, 2·H, 2·W)` of features `(B, inputs, H, W)`."""
        differentiated = torch.is_grad_enabled()
        if differentiated or features.device.type != "cpu" or features.dtype != self.weight.dtype:
            return super().forward(features, output_size)
        batch, inputs, height, width = features.shape
        rows = features.permute(0, 2, 3, 1).reshape(-1, inputs)
        parts = self.weight.permute(1, 2, 3, 0).reshape(-1, inputs) @ rows.T
        parts = parts.view(self.out_channels, 4, 4, batch, height, width)
        # Along each side, output 2i is the sum of kernel row 1 at i and row 3 at i − 1, and output 2i + 1 of
        # row 2 at i and row 0 at i + 1.
        down = parts[:, 1:3]
        down[:, 0, ..., 1:, :] += parts[:, 3, ..., :-1, :]
        down[:, 1, ..., :-1, :] += parts[:, 0, ..., 1:, :]
        both = down[:, :, 1:3]
        both[:, :, 0, ..., 1:] += down[:, :, 3, ..., :-1]
        both[:, :, 1, ..., :-1] += down[:, :, 0, ..., 1:]
        pixels = both.permute(3, 0, 4, 1, 5, 2).reshape(batch, -1, 2 * height, 2 * width)
        return pixels + self.bias.view(-1, 1, 1) if self.bias is not None else pixels


class CodeHead(nn.Module):
    """From features to a distribution of codes.

    The heads of mean, log-variance and each categorical unit are rows of one linear map: the same function
    as a linear map each, in one product.

    Args:
        features: length of the feature vectors.
        latents: the units of a code.

    Example:
        >>> head = CodeHead(256, LatentSpec(continuous=2, discrete=(10,)))
        >>> head(torch.zeros(5, 256)).sample().shape
        torch.Size([5, 12])
    """

    def __init__(self, features: int, latents: LatentSpec) -> None:
        super().__init__()
        self.sizes = [latents.continuous, latents.continuous, *latents.discrete]
        self.linear = nn.Linear(features, sum(self.sizes))

    def forward(self, features: Tensor) -> CodeDistribution:
        """Distribution of codes, batch `(B,)`, for features `(B, n)`; in fp32 also under autocast."""
        mean, log_variance, *logits = self.linear(features).float().split(self.sizes, dim=-1)
        return CodeDistribution(mean, (0.5 * log_variance).exp(), logits)


@contextmanager
def seeded_initialization(seed: int) -> Iterator[None]:
    """Modules made inside get weights that depend on `seed` alone; the global random state is kept."""
    state = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(state)


def _checked(image_shape: tuple[int, int, int], architecture: str) -> tuple[int, int, int]:
    channels, height, width = image_shape
    if architecture not in ARCHITECTURES:
        raise ParameterError(
            f"model.architecture: must be one of {', '.join(ARCHITECTURES)}, got {architecture}"
        )
    if architecture == "conv" and (height, width) not in ((32, 32), (64, 64)):
        raise ParameterError(
            f"model.architecture: conv takes 32×32 or 64×64 pixels (mlp any size), got {height}×{width}"
        )
    if math.prod(image_shape) < 1:
        raise ParameterError(f"images need at least one pixel, got shape {channels}×{height}×{width}")
    return channels, height, width


def _initialized(network: nn.Sequential) -> nn.Sequential:
    """Weights that keep the size of activations from layer to layer (He et al. 2015), biases 0.

    PyTorch's default shrinks them so much that all images start with nearly the same posterior: a categorical
    unit then tends to put every image into one class, at no gain in likelihood, and to stay there.
    """
    for layer, following in itertools.zip_longest(network, network[1:]):
        if isinstance(layer, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
            inputs = layer.weight[0].numel()
            if isinstance(layer, nn.ConvTranspose2d):
                # A quarter of the kernel meets each output pixel: the stride is 2 both ways.
                inputs = layer.in_channels * math.prod(layer.kernel_size) // math.prod(layer.stride)
            gain = 2.0 if isinstance(following, nn.ReLU) else 1.0
            bound = math.sqrt(3 * gain / inputs)
            nn.init.uniform_(layer.weight, -bound, bound)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return network


def _channels_last(network: nn.Sequential) -> nn.Sequential:
    # Convolutions follow the layout of their weights, and are faster in this one.
    return network.to(memory_format=torch.channels_last)
