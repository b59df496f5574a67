"""The Q-network: a learned `Q(z|x̃)`, fitted on fresh pairs of a fixed model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vmivae.errors import DataError, NonFiniteError, ParameterError
from vmivae.files import read_json, replace_directory, write_json
from vmivae.model.fixed import measured
from vmivae.model.latents import CodeDistribution, LatentSpec
from vmivae.model.networks import CodeHead, encoder_trunk
from vmivae.model.protocol import LatentVariableModel
from vmivae.mutual_information.pairs import DECODE_BLOCK, CodeSource, sample_images, seeded

Progress = Callable[[str, int, int, str], None]

FORMAT = 1
FAMILIES = ("gaussian",)
LEARNING_RATE = 1e-3
CLIP_NORM = 10.0
IMAGES_PER_CODE = 4
"""Images drawn from each decoded code: decoding costs more than drawing, and Q sees each pair once."""
VALIDATION_PAIRS = 2048
CONVOLVED = ((32, 32), (64, 64))
REPORTS = 40
"""How often in a fit Q is validated, at most."""
SHORTEST_INTERVAL = 25
"""Steps between validations, at least."""


@dataclass(frozen=True)
class QNetworkConfig:
    """`mutual_information.q_network` of params.yaml.

    Args:
        family: `gaussian`: independent normal and categorical factors.
        steps: gradient steps of the fit.
        batch_size: pairs per step.

    Raises:
        ParameterError: a value that is not accepted.
    """

    family: str = "gaussian"
    steps: int = 2000
    batch_size: int = 256

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ParameterError(
                "mutual_information.q_network.family: must be one of "
                f"{', '.join(FAMILIES)}, got {self.family}"
            )
        for key in ("steps", "batch_size"):
            if getattr(self, key) < 1:
                raise ParameterError(
                    f"mutual_information.q_network.{key}: must be ≥ 1, got {getattr(self, key)}"
                )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> QNetworkConfig:
        """From the keys of params.yaml."""
        return cls(**values)


@dataclass(frozen=True)
class FitRecord:
    """One row of a fit's history: mean `log Q(z|x̃)` since the last row and on validation pairs, in nats."""

    step: int
    log_q: float
    validation_log_q: float


class QNetwork(nn.Module):
    """`Q(z|x̃)` with independent units: a normal for each real one, a categorical for each categorical one.

    Args:
        image_shape: event shape of the likelihood, `(C, H, W)` or any other. 32×32 and 64×64 images are read
            by convolutions; anything else by a perceptron with a linear path beside it, so that the exact
            posterior of a linear-Gaussian model with orthogonal columns is within its reach.
        latents: the units of a code.

    Example:
        >>> q = QNetwork((1, 32, 32), LatentSpec(continuous=2, discrete=(10,)))
        >>> q(torch.zeros(5, 1, 32, 32)).sample().shape
        torch.Size([5, 12])
    """

    image_mean: Tensor
    image_stddev: Tensor
    code_mean: Tensor
    code_stddev: Tensor

    def __init__(self, image_shape: tuple[int, ...], latents: LatentSpec) -> None:
        super().__init__()
        self.image_shape = tuple(image_shape)
        self.latents = latents
        size = math.prod(self.image_shape)
        convolutional = len(self.image_shape) == 3 and self.image_shape[1:] in CONVOLVED
        # A perceptron takes an event of any shape as one row of pixels.
        channels, height, width = self.image_shape if convolutional else (1, 1, size)
        self._trunk_shape = channels, height, width
        self.trunk, features = encoder_trunk(self._trunk_shape, "conv" if convolutional else "mlp")
        self._linear_path = not convolutional
        self.head = CodeHead(features + size * self._linear_path, latents)
        self.register_buffer("image_mean", torch.zeros(self._trunk_shape))
        self.register_buffer("image_stddev", torch.ones(self._trunk_shape))
        self.register_buffer("code_mean", torch.zeros(latents.continuous))
        self.register_buffer("code_stddev", torch.ones(latents.continuous))

    def forward(self, images: Tensor) -> CodeDistribution:
        """`Q(z|x̃)`, batch `(B,)`, for images `(B, *image_shape)`."""
        images = images.reshape(-1, *self._trunk_shape).to(self.image_mean.dtype)
        images = (images - self.image_mean) / self.image_stddev
        features = self.trunk(images)
        if self._linear_path:
            features = torch.cat([features, images.flatten(1)], dim=-1)
        standard = self.head(features)
        return CodeDistribution(
            self.code_mean + self.code_stddev * standard.mean,
            self.code_stddev * standard.stddev,
            standard.log_probs,
        )

    def standardize(self, codes: Tensor, images: Tensor) -> None:
        """Take location and scale of inputs and real units from pairs `(S, size)`, `(S, *image_shape)`.

        Convolutions share one location and scale per channel, a perceptron has one per input. With them one
        learning rate fits codes and images of any scale.
        """
        images = images.reshape(-1, *self._trunk_shape).to(self.image_mean.dtype)
        shared = (0,) if self._linear_path else (0, 2, 3)
        self.image_mean.copy_(images.mean(shared, keepdim=True)[0])
        self.image_stddev.copy_(_positive(images.std(shared, keepdim=True)[0]))
        if self.latents.continuous:
            real, _ = self.latents.split(codes)
            self.code_mean.copy_(real.mean(0))
            self.code_stddev.copy_(_positive(real.std(0)))

    def description(self) -> dict[str, Any]:
        """All that rebuilds Q but for its weights: the content of model.json."""
        return {
            "format": FORMAT,
            "image_shape": list(self.image_shape),
            "latents": {"continuous": self.latents.continuous, "discrete": list(self.latents.discrete)},
            "family": "gaussian",
        }


def fit_q_network(
    model: LatentVariableModel,
    source: CodeSource | None = None,
    config: QNetworkConfig | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: Progress | None = None,
) -> tuple[QNetwork, list[FitRecord]]:
    """Maximise `E[log Q(z|x̃)]` over freshly sampled pairs `z ~ r(z)`, `x̃ ~ p(x|z)` (4.4).

    Adam with a cosine decay. Now and then Q is scored on validation pairs that it is not fitted on, and the
    best is kept. The model is held fixed.

    Args:
        model: prior and likelihood.
        source: `r(z)`; None for the prior.
        config: family, steps, batch size.
        seed: of the initial weights and all draws, which are independent of those of `estimate`.
        device: as in `estimate`.
        progress: called with what is done, the step, the number of steps, and a few words.

    Returns:
        Q in evaluation mode, and the history of the fit.

    Raises:
        NonFiniteError: `log Q` became NaN or infinite; names the step.
        ParameterError: a device that is not there.
    """
    config = config or QNetworkConfig()
    with (
        torch.inference_mode(False),
        measured(model, device) as place,
        seeded(seed, "fit of the Q-network", place) as generator,
    ):
        r = source or model.prior.to(place)
        with torch.no_grad():
            codes = r.sample((VALIDATION_PAIRS,), generator)
            images = sample_images(model, codes)
        network = QNetwork(tuple(images.shape[1:]), r.latents).to(place)
        network.standardize(codes, images)
        return network, _fit(network, model, r, config, (codes, images), generator, progress)


def _fit(
    network: QNetwork,
    model: LatentVariableModel,
    source: CodeSource,
    config: QNetworkConfig,
    validation: tuple[Tensor, Tensor],
    generator: torch.Generator,
    progress: Progress | None,
) -> list[FitRecord]:
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.steps)
    interval = max(SHORTEST_INTERVAL, math.ceil(config.steps / REPORTS))
    history: list[FitRecord] = []
    best, best_weights = -math.inf, None
    total, since = 0.0, 0
    batches = _batches(model, source, config.batch_size, generator)
    for step in range(1, config.steps + 1):
        codes, images = next(batches)
        with torch.enable_grad():
            log_q = network(images).log_prob(codes).mean()
            optimizer.zero_grad()
            (-log_q).backward()
        norm = nn.utils.clip_grad_norm_(network.parameters(), CLIP_NORM)
        if not (math.isfinite(log_q.item()) and math.isfinite(norm.item())):
            raise NonFiniteError(
                f"fit of the Q-network: log Q(z|x̃) or its gradient became non-finite at step {step}"
            )
        optimizer.step()
        schedule.step()
        total, since = total + log_q.item(), since + 1
        if step % interval == 0 or step == config.steps:
            score = validate(network, *validation)
            history.append(FitRecord(step, total / since, score))
            total, since = 0.0, 0
            if score > best:
                best = score
                best_weights = {name: value.clone() for name, value in network.state_dict().items()}
            if progress:
                progress("fitting Q", step, config.steps, f"log Q {score:.2f} nats")
    if best_weights is None:
        raise NonFiniteError("fit of the Q-network: log Q(z|x̃) of the validation pairs was never finite")
    network.load_state_dict(best_weights)
    network.requires_grad_(False).eval()
    return history


def validate(network: QNetwork, codes: Tensor, images: Tensor) -> float:
    """Mean `log Q(z|x̃)` of pairs, in nats."""
    with torch.no_grad():
        blocks = zip(torch.split(codes, DECODE_BLOCK), torch.split(images, DECODE_BLOCK), strict=True)
        return float(torch.cat([network(image).log_prob(code) for code, image in blocks]).mean())


def _batches(
    model: LatentVariableModel, source: CodeSource, batch_size: int, generator: torch.Generator
) -> Any:
    """Endless batches of codes `(B, size)` and images `(B, *event)`; every pair appears once."""
    codes_at_once = max(DECODE_BLOCK, batch_size)
    while True:
        with torch.no_grad():
            codes = source.sample((codes_at_once,), generator)
            images = sample_images(model, codes, (IMAGES_PER_CODE,)).flatten(0, 1)
            codes = codes.repeat(IMAGES_PER_CODE, 1)
            order = torch.randperm(len(codes), generator=generator, device=codes.device)
        for index in torch.split(order, batch_size):
            if len(index) == batch_size:
                yield codes[index], images[index]


def save_q_network(network: QNetwork, path: Path | str) -> None:
    """Write the folder `path` with `model.safetensors` and `model.json`; whole or not at all."""
    from safetensors.torch import save

    weights = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
    with replace_directory(Path(path)) as folder:
        write_json(folder / "model.json", network.description())
        (folder / "model.safetensors").write_bytes(save(weights))


def load_q_network(path: Path | str = "models/q_network") -> QNetwork:
    """Read what `save_q_network` wrote; the network is on the CPU, in evaluation mode.

    Raises:
        DataError: a file is missing, damaged, or not what was written.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        description = read_json(Path(path) / "model.json")
        network = QNetwork(tuple(description["image_shape"]), LatentSpec(**description["latents"]))
        network.load_state_dict(load_file(Path(path) / "model.safetensors"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (KeyError, TypeError, ValueError, RuntimeError, SafetensorError):
        raise DataError(f"{path}: does not hold a Q-network and its weights") from None
    return network.requires_grad_(False).eval()


def _positive(scale: Tensor) -> Tensor:
    # An input or unit that never varies is left at its own scale.
    return torch.where(scale > 1e-6, scale, 1.0)
