"""The training loop: resident images, a compiled or eager step, a look at the numbers now and then."""

from __future__ import annotations

import math
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vmivae.checkpoint import NO_CHECKPOINT, Checkpoint, State, adam_state, restore_adam
from vmivae.errors import NonFiniteError, ParameterError
from vmivae.model import VAE
from vmivae.model.device import choose_device
from vmivae.progress import Progress
from vmivae.training.information import Information, Surrogate
from vmivae.training.objectives import Objective, Ramp

# Losses stay on the device, which is waited for only once in so many steps.
LOOK_EVERY = 100
# Larger sets stay where they are (memory-mapped, say), and each batch is brought to the device.
RESIDENT_BYTES = 2**30
# From how many steps on compiling the step pays its own time back, with nothing compiled before. Two cores
# compile for 30 to 40 s and win 8 ms per step of 64 images; other devices were not measured.
COMPILE_FROM = {"cpu": 10_000}
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}

Row = dict[str, float | None]
# Pixels drawn afresh from grey ones: uint8 images and a generator to uint8 images.
Draw = Callable[[Tensor, torch.Generator], Tensor]


@dataclass(frozen=True)
class TrainConfig:
    """How to train; the fields are those of `train` in params.yaml.

    Attributes:
        epochs: passes over the images, each in a new order.
        batch_size: images per step.
        learning_rate: of Adam.
        clip_norm: largest gradient norm; None for no limit.
        temperature: of Gumbel-Softmax: a number, or a `Ramp` (or its fields) over the training steps.
        device: `auto`, `cpu`, `cuda` or `mps`.
        precision: `fp32`, `bf16` (autocast of the networks), or `auto`, see `choose_precision`.
        compile: whether torch.compile makes the step, or `auto`, see `choose_compile`.
    """

    epochs: int
    batch_size: int = 64
    learning_rate: float = 1e-3
    clip_norm: float | None = None
    temperature: float | Ramp | Mapping[str, Any] = 0.67
    device: str = "auto"
    precision: str = "auto"
    compile: str | bool = "auto"


@dataclass(frozen=True)
class History:
    """What training said of itself: a row per epoch, of means over all its batches, in nats per image.

    The columns: epoch and step (counts at its end), loss, distortion, rate, kl_continuous, kl_discrete,
    capacity_continuous, capacity_discrete (None where there is no target), temperature, a `kl_<unit>` for
    each unit, and with information maximisation information_continuous, information_discrete (the `Surrogate`
    of the kinds of unit that take part, before the weight λ: a training signal and no bound).
    `precision` (`fp32` or `bf16`) and `compiled` are what `auto` was taken for. `images_per_second` is the
    throughput of the whole training: the only thing here that differs between repeats.
    """

    rows: list[Row]
    precision: str
    compiled: bool
    images_per_second: float

    def summary(self) -> dict[str, Any]:
        """The last epoch, with `epochs` and `steps`; KL per unit under `units`; without what has no value.

        And `precision` and `compiled`.
        """
        last = dict(self.rows[-1])
        counts = {"epochs": last.pop("epoch"), "steps": last.pop("step")}
        last.pop("temperature")
        groups = {"kl_continuous", "kl_discrete"}
        units = {name: value for name, value in last.items() if name.startswith("kl_") and name not in groups}
        values = {name: value for name, value in last.items() if name not in units and value is not None}
        choices = {"precision": self.precision, "compiled": self.compiled}
        per_unit = {name.removeprefix("kl_"): value for name, value in units.items()}
        return counts | choices | values | {"units": per_unit}


def train(
    model: VAE,
    images: Tensor,
    objective: Objective,
    config: TrainConfig,
    seed: int,
    *,
    information: Information | None = None,
    draw: Draw | None = None,
    on_epoch: Callable[[int, dict[str, float]], None] | None = None,
    progress: Progress | None = None,
    checkpoint: Checkpoint = NO_CHECKPOINT,
) -> History:
    """Train `model` in place; it ends on the device that `config` names, in evaluation mode.

    Each epoch visits the images in a new order, in full batches: the few that are left over at its end sit
    that epoch out. Every draw comes from generators made from `seed`, so equal arguments give equal weights.

    Args:
        model: the VAE.
        images: `(N, C, H, W)` uint8; a pixel is its value / 255. Up to `RESIDENT_BYTES` they are moved to
            the device; of larger sets each batch is.
        objective: what to make small.
        config: how to train.
        seed: of the order of images and of the noise.
        information: what the objective adds for information; None for nothing. The other draws stay the same.
        draw: gives pixels drawn afresh for each batch (images binarised anew each epoch); None takes them as
            they are.
        on_epoch: called after each epoch with the step and the values of its row in `History`, and with
            `images_per_second`.
        progress: called at the start and now and then with `("training", step, steps, state)`.
        checkpoint: training goes on from what it holds and ends with the same weights and rows.

    Raises:
        ParameterError: fewer images than one batch, or a device or compiler that this machine does not have.
        NonFiniteError: a loss or gradient became NaN or infinite; names the step and the term.
        Interrupted: a signal came; what was reached is in `checkpoint`.
    """
    if len(images) < config.batch_size:
        raise ParameterError(
            f"train.batch_size: must be ≤ {len(images)}, the number of training images, "
            f"got {config.batch_size}"
        )
    per_epoch = len(images) // config.batch_size
    steps = config.epochs * per_epoch
    device = choose_device(config.device)
    orders = torch.Generator().manual_seed(seed)
    noises = torch.Generator(device).manual_seed(int(torch.randint(2**62, (), generator=orders)))
    temperature = Ramp.of(config.temperature)

    model.to(device).train()
    pixels = images.to(device) if images.nbytes <= RESIDENT_BYTES else images
    parameters = list(model.parameters())
    surrogate = None
    if information is not None:
        surrogate = Surrogate(model.latents, model.image_shape, information, seed, device)
        parameters += surrogate.parameters()
    optimizer = torch.optim.Adam(parameters, lr=config.learning_rate, fused=True)
    precision = choose_precision(config.precision)
    terms = _terms(model, objective, surrogate, PRECISIONS[precision])
    compiled = choose_compile(config.compile, device, steps)
    if compiled:
        terms = _compiled(terms, device, config.compile)
    # Each is made from those before it: the first that is not finite is the cause.
    names = [
        *(f"kl_{unit}" for unit in model.latents.units),
        "distortion",
        *(f"information_{kind}" for kind in (information.weights if information else ())),
        "loss",
        "gradient norm",
    ]

    rows: list[Row] = []
    record = torch.empty(per_epoch, len(names), device=device)
    order_state = orders.get_state()
    epoch, done = 0, 0
    timed, seconds = 0, 0.0

    def state() -> State:
        """After `done` steps of an epoch; never one that training could not go on from."""
        looked = done - done % LOOK_EVERY
        _require_finite(record[looked:done], names, epoch * per_epoch + looked)
        return {
            "epoch": epoch,
            "done": done,
            "rows": rows,
            "timed": timed,
            "seconds": seconds,
            "record": record,
            "weights": model.state_dict(),
            "adam": adam_state(optimizer),
            "orders": order_state,
            "noises": noises.get_state(),
            "surrogate": surrogate.state() if surrogate else {},
        }

    if saved := checkpoint.load("training", state()):
        epoch, done, rows = saved["epoch"], saved["done"], saved["rows"]
        timed, seconds = saved["timed"], saved["seconds"]
        record.copy_(saved["record"])
        model.load_state_dict(saved["weights"])
        restore_adam(optimizer, saved["adam"])
        orders.set_state(saved["orders"])
        noises.set_state(saved["noises"])
        if surrogate:
            surrogate.restore(saved["surrogate"])
    if progress is not None:
        how = f"on {device.type} in {precision}, {'compiled' if compiled else 'not compiled'}"
        progress("training", epoch * per_epoch + done, steps, how)
    with _deterministic(device):
        while epoch < config.epochs:
            began, before = time.perf_counter(), done
            order_state = orders.get_state()
            order = torch.randperm(len(images), generator=orders).to(pixels.device)
            batches = order[: per_epoch * config.batch_size].view(per_epoch, config.batch_size)
            start = epoch * per_epoch
            schedules = [
                (temperature(step), *objective.capacity(step)) for step in range(start, start + per_epoch)
            ]
            schedule = torch.tensor([[value or 0.0 for value in row] for row in schedules], device=device)
            for i in range(before, per_epoch):
                batch = pixels[batches[i]].to(device)
                if draw is not None:
                    batch = draw(batch, noises)
                noise = model.latents.noise((config.batch_size,), noises, device=device)
                optimizer.zero_grad(set_to_none=True)
                extra = None if surrogate is None else surrogate.noise(config.batch_size)
                loss, values = terms(batch, noise, schedule[i], extra)
                loss.backward()  # type: ignore[no-untyped-call]
                norm = torch.nn.utils.clip_grad_norm_(parameters, config.clip_norm or math.inf)
                optimizer.step()
                record[i, :-1] = values
                record[i, -1] = norm
                done = i + 1
                if done == per_epoch or done % LOOK_EVERY == 0:
                    first = i - i % LOOK_EVERY
                    _require_finite(record[first:done], names, start + first)
                    if progress is not None:
                        progress("training", start + done, steps, f"loss {record[i, -2].item():.1f}")
                checkpoint.offer("training", state)
            row = _row(
                epoch + 1, start + per_epoch, record[:, :-1], names, schedules, model.latents.continuous
            )
            rows.append(row)
            trained, took = (per_epoch - before) * config.batch_size, time.perf_counter() - began
            timed, seconds = timed + trained, seconds + took
            if on_epoch is not None:
                shown = {name: v for name, v in row.items() if v is not None and name != "step"}
                on_epoch(start + per_epoch, shown | {"images_per_second": trained / took})
            epoch, done = epoch + 1, 0
        order_state = orders.get_state()
    checkpoint.finish("training", state)
    model.eval()
    _require_finite_model(model, images[: config.batch_size].to(device).float() / 255, steps)
    return History(rows, precision, compiled, timed / seconds)


def choose_precision(precision: str) -> str:
    """The number format of the networks: as told, or `fp32` for `auto`."""
    # Without instructions for it bf16 is many times slower, so it has to be asked for.
    return "fp32" if precision == "auto" else precision


def choose_compile(compile: str | bool, device: torch.device, steps: int) -> bool:
    """Whether to compile the step: as told, or for `auto` from the number of steps in `COMPILE_FROM` on.

    Without a C++ compiler, which torch.compile needs on a CPU, `auto` does not compile.
    """
    if compile != "auto":
        return compile is True
    return steps >= COMPILE_FROM.get(device.type, math.inf) and _has_cpp_compiler()


def _has_cpp_compiler() -> bool:
    usual = "clang++" if sys.platform == "darwin" else "g++"
    return shutil.which(os.environ.get("CXX", usual)) is not None


Noise = tuple[Tensor, Tensor]
Terms = Callable[[Tensor, Tensor, Tensor, Noise | None], tuple[Tensor, Tensor]]


def _terms(model: VAE, objective: Objective, surrogate: Surrogate | None, precision: torch.dtype) -> Terms:
    """The function that makes the loss and a row of its terms.

    Its arguments: a uint8 batch, noise of the codes, `(temperature, C, C)`, and noise of the surrogate.
    """
    prior, real = model.prior, model.latents.continuous
    weights = torch.tensor(
        list(surrogate.information.weights.values()) if surrogate else [], device=prior.mean.device
    )

    def terms(batch: Tensor, noise: Tensor, schedule: Tensor, extra: Noise | None) -> tuple[Tensor, Tensor]:
        with torch.autocast(batch.device.type, precision, enabled=precision != torch.float32):
            images = batch.float() / 255
            posterior = model.posterior(images)
            codes = posterior.reparameterized(noise, temperature=schedule[0])
            distortion = -model.likelihood(codes).log_prob(images).mean()
            kl = posterior.kl_per_unit(prior).mean(0)
            loss = objective.loss(distortion, (kl[:real].sum(), kl[real:].sum()), (schedule[1], schedule[2]))
            if surrogate is None or extra is None:
                return loss, torch.cat([kl, distortion[None], loss[None]]).detach()
            information = surrogate(model, posterior, codes, extra)
            loss = loss - (weights * information).sum()
        return loss, torch.cat([kl, distortion[None], information, loss[None]]).detach()

    return terms


def _compiled(terms: Terms, device: torch.device, wanted: str | bool) -> Terms:
    # Networks this small leave a GPU waiting for launches: CUDA graphs launch the whole step at once.
    mode = "reduce-overhead" if device.type == "cuda" else None
    compiled = torch.compile(terms, dynamic=False, mode=mode)

    def call(batch: Tensor, noise: Tensor, schedule: Tensor, extra: Noise | None) -> tuple[Tensor, Tensor]:
        try:
            return compiled(batch, noise, schedule, extra)
        except torch._dynamo.exc.TorchDynamoException as error:
            reason = str(error).strip().splitlines()[0]
            raise ParameterError(
                f"train.compile: must be false on this machine, got {str(wanted).lower()} ({reason})"
            ) from None

    return call


def _row(
    epoch: int,
    step: int,
    record: Tensor,
    names: list[str],
    schedules: list[tuple[float, float | None, float | None]],
    real: int,
) -> Row:
    """Means over an epoch's batches."""
    means = dict(zip(names, record.cpu().double().mean(0).tolist(), strict=False))
    per_unit = {name: value for name, value in means.items() if name.startswith("kl_")}
    kl = list(per_unit.values())
    temperature, continuous, discrete = (
        None if column[0] is None else statistics.fmean(column) for column in zip(*schedules, strict=True)
    )
    return {
        "epoch": epoch,
        "step": step,
        "loss": means["loss"],
        "distortion": means["distortion"],
        "rate": sum(kl),
        "kl_continuous": sum(kl[:real]),
        "kl_discrete": sum(kl[real:]),
        "capacity_continuous": continuous,
        "capacity_discrete": discrete,
        "temperature": temperature,
        **{name: value for name, value in means.items() if name.startswith("information_")},
        **per_unit,
    }


def _require_finite_model(model: VAE, images: Tensor, steps: int) -> None:
    """Stop if the weights that the last step left, which have made no loss yet, have diverged."""
    with torch.inference_mode():
        posterior = model.posterior(images)
        kl = posterior.kl_per_unit(model.prior).mean(0)
        distortion = -model.likelihood(posterior.expectation).log_prob(images).mean()
    terms = torch.cat([kl, distortion[None]])[None]
    _require_finite(terms, [*(f"kl_{unit}" for unit in model.latents.units), "distortion"], steps - 1)


def _require_finite(record: Tensor, names: list[str], start: int) -> None:
    """Stop at the first step of `record` that has a NaN or infinite value, and name the term."""
    bad = ~record.isfinite().cpu()
    if not bad.any():
        return
    step, term = bad.nonzero()[0].tolist()
    raise NonFiniteError(
        f"training stopped at step {start + step + 1}: {names[term]} is not finite; "
        "a smaller train.learning_rate or train.clip_norm may help"
    )


@contextmanager
def _deterministic(device: torch.device) -> Iterator[None]:
    """Algorithms that repeat bit for bit, where the device has them; the settings are put back afterwards."""
    if device.type == "cpu":
        yield
        return
    # cuBLAS repeats only with a workspace of fixed size, and reads this when it starts.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    enabled = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
