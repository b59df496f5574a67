"""Fitting a Q-network on fresh pairs of a fixed model; its families and its files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vmivae.checkpoint import NO_CHECKPOINT, Checkpoint, State, adam_state, restore_adam
from vmivae.errors import NonFiniteError, ParameterError
from vmivae.model.fixed import measured
from vmivae.model.latents import LatentSpec
from vmivae.model.protocol import LatentVariableModel
from vmivae.model.q_network import QNetwork
from vmivae.mutual_information.flow import FlowQNetwork
from vmivae.mutual_information.pairs import (
    DECODE_BLOCK,
    CodeSource,
    draws_state,
    restore_draws,
    sample_images,
    seeded,
)
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
    checkpoint: Checkpoint = NO_CHECKPOINT,
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
        checkpoint: as in `estimate`.

    Returns:
        Q in evaluation mode, and the history of the fit.

    Raises:
        NonFiniteError: `log Q` became NaN or infinite; names the units and the step.
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
        pairs = _Pairs(model, r, config.batch_size, generator)
        return network, _fit(network, pairs, config.steps, (codes, images), progress, checkpoint)


def _fit(
    network: QNetwork,
    pairs: _Pairs,
    steps: int,
    validation: tuple[Tensor, Tensor],
    progress: Progress | None,
    checkpoint: Checkpoint,
) -> list[FitRecord]:
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    interval = max(SHORTEST_INTERVAL, math.ceil(steps / REPORTS))
    history: list[FitRecord] = []
    best, best_weights = -math.inf, _copied(network)
    step, total, since = 0, 0.0, 0

    def state() -> State:
        return {
            "step": step,
            "total": total,
            "since": since,
            "history": [astuple(record) for record in history],
            "weights": network.state_dict(),
            "best": best,
            "best_weights": best_weights,
            "adam": adam_state(optimizer),
            "schedule": schedule.state_dict(),
            "pairs": pairs.state(),
        }

    if saved := checkpoint.load("fit of the Q-network", state()):
        step, total, since = saved["step"], saved["total"], saved["since"]
        history = [FitRecord(*record) for record in saved["history"]]
        network.load_state_dict(saved["weights"])
        best, best_weights = saved["best"], saved["best_weights"]
        restore_adam(optimizer, saved["adam"])
        schedule.load_state_dict(saved["schedule"])
        (optimizer.param_groups[0]["lr"],) = schedule.get_last_lr()
        pairs.restore(saved["pairs"])
    while step < steps:
        step += 1
        codes, images = pairs.draw()
        with torch.enable_grad():
            log_q, loss = network.objective(codes, images)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(network.parameters(), CLIP_NORM)
        if not (math.isfinite(log_q.item()) and math.isfinite(norm.item())):
            what = _not_finite(network, codes, images)
            raise NonFiniteError(f"fit of the Q-network: {what} is not finite at step {step}")
        optimizer.step()
        schedule.step()
        total, since = total + log_q.item(), since + 1
        if step % interval == 0 or step == steps:
            score = validate(network, *validation)
            history.append(FitRecord(step, total / since, score))
            total, since = 0.0, 0
            if score > best:
                best, best_weights = score, _copied(network)
            if progress:
                progress("fitting Q", step, steps, f"log Q {score:.2f} nats")
        checkpoint.offer("fit of the Q-network", state)
    checkpoint.finish("fit of the Q-network", state)
    if best == -math.inf:
        raise NonFiniteError("fit of the Q-network: log Q(z|x̃) of the validation pairs was never finite")
    network.load_state_dict(best_weights)
    network.requires_grad_(False).eval()
    return history


def _not_finite(network: QNetwork, codes: Tensor, images: Tensor) -> str:
    """What has turned NaN or infinite: the units' log-densities, or only their gradient."""
    with torch.no_grad():
        fine = network.score(codes, images)[1].isfinite().all(0)
    units = [unit for unit, is_fine in zip(network.latents.units, fine.tolist(), strict=True) if not is_fine]
    return f"log Q(z|x̃) of {', '.join(units)}" if units else "the gradient of log Q(z|x̃)"


def _copied(network: QNetwork) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in network.state_dict().items()}


def validate(network: QNetwork, codes: Tensor, images: Tensor) -> float:
    """Mean `log Q(z|x̃)` of pairs, in nats."""
    with torch.no_grad():
        blocks = zip(torch.split(codes, DECODE_BLOCK), torch.split(images, DECODE_BLOCK), strict=True)
        return float(torch.cat([network.score(code, image)[0] for code, image in blocks]).mean())


class _Pairs:
    """Endless batches of codes `(B, size)` and images `(B, *event)`; every pair appears once."""

    def __init__(
        self, model: LatentVariableModel, source: CodeSource, batch_size: int, generator: torch.Generator
    ) -> None:
        self._model, self._source, self._batch_size = model, source, batch_size
        self._generator = generator
        self._order: list[Tensor] = []
        self._before = draws_state(generator, generator.device)
        self._given = 0

    def draw(self) -> tuple[Tensor, Tensor]:
        """The next batch."""
        if self._given == len(self._order):
            self._before = draws_state(self._generator, self._generator.device)
            self._decode()
            self._given = 0
        index = self._order[self._given]
        self._given += 1
        return self._codes[index], self._images[index]

    def state(self) -> State:
        """How many batches were drawn, of those that come from one state of the generators."""
        return {"draws": self._before, "given": self._given}

    def restore(self, state: State) -> None:
        """Go on where `state` was taken."""
        self._before, self._given = state["draws"], state["given"]
        restore_draws(self._before, self._generator, self._generator.device)
        if self._given:
            self._decode()

    def _decode(self) -> None:
        codes_at_once = max(DECODE_BLOCK, self._batch_size)
        with torch.no_grad():
            codes = self._source.sample((codes_at_once,), self._generator)
            self._images = sample_images(self._model, codes, (IMAGES_PER_CODE,)).flatten(0, 1)
            self._codes = codes.repeat(IMAGES_PER_CODE, 1)
            order = torch.randperm(len(self._codes), generator=self._generator, device=codes.device)
        blocks = torch.split(order, self._batch_size)
        self._order = [index for index in blocks if len(index) == self._batch_size]


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
