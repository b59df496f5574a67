"""Fitting a Q-network on fresh pairs of a fixed model; its families and its files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vmivae.errors import NonFiniteError, ParameterError
from vmivae.model.fixed import measured
from vmivae.model.latents import LatentSpec
from vmivae.model.protocol import LatentVariableModel
from vmivae.model.q_network import QNetwork
from vmivae.mutual_information.flow import FlowQNetwork
from vmivae.mutual_information.pairs import DECODE_BLOCK, CodeSource, sample_images, seeded
from vmivae.progress import Progress
from vmivae.weights import load_network, save_network

FAMILIES: dict[str, type[QNetwork]] = {"gaussian": QNetwork, "flow": FlowQNetwork}
DEFAULT_FAMILY = "gaussian"
LEARNING_RATE = 1e-3
CLIP_NORM = 10.0
IMAGES_PER_CODE = 4
"""Images drawn from each decoded code: decoding costs more than drawing, and Q sees each pair once."""
VALIDATION_PAIRS = 2048
REPORTS = 40
"""How often in a fit Q is validated, at most."""
SHORTEST_INTERVAL = 25
"""Steps between validations, at least."""


@dataclass(frozen=True)
class QNetworkConfig:
    """`mutual_information.q_network` of params.yaml.

    Args:
        family: `gaussian`: independent normal and categorical units; `flow`: dependent ones.
        steps: gradient steps of the fit.
        batch_size: pairs per step.

    Raises:
        ParameterError: a value that is not accepted.
    """

    family: str = "gaussian"
    steps: int = 1000
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
        network = FAMILIES[config.family](tuple(images.shape[1:]), r.latents).to(place)
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
            log_q, loss = network.objective(codes, images)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
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
        return float(torch.cat([network.score(code, image)[0] for code, image in blocks]).mean())


def _batches(
    model: LatentVariableModel, source: CodeSource, batch_size: int, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
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
    save_network(network, network.description(), Path(path))


def load_q_network(path: Path | str = "models/q_network") -> QNetwork:
    """Read what `save_q_network` wrote; the network is on the CPU, in evaluation mode.

    Raises:
        DataError: a file is missing, damaged, or does not fit the other.
    """
    return load_network(Path(path), _rebuilt).requires_grad_(False)


def _rebuilt(description: dict[str, Any]) -> QNetwork:
    family = FAMILIES[description["family"]]
    return family(tuple(description["image_shape"]), LatentSpec(**description["latents"]))
