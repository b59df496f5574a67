"""Training and mutual information on a CUDA device, checked against float64 on the CPU; within five minutes.

Needs torch, numpy, zuko and the numerical rooms of vmivae, nothing else:
`PYTHONPATH=src python benchmarks/gpu.py`. `--cpu` tries the script out at toy size where there is no CUDA.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from pathlib import Path

import information
import numpy as np
import plain
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from vmivae.model import VAE, CodeDistribution, LatentSpec
from vmivae.model.likelihoods import ContinuousBernoulli
from vmivae.mutual_information.aggregate import AggregatePosterior
from vmivae.training import Capacity, Ramp, TrainConfig, train

LATENTS = LatentSpec(10, (10,))
SIZES = {"32-grey": (1, 32), "64-grey": (1, 64), "64-rgb": (3, 64)}
OBJECTIVE = Capacity((30.0, 10.0), Ramp(0.0, 5.0, 500), Ramp(0.0, math.log(10), 500))
VARIANTS = {"fp32": ("fp32", False), "bf16": ("bf16", False), "compiled bf16": ("bf16", True)}


class Pictures(Dataset[tuple[Tensor, int]]):
    """Images that become floats one by one, as in the usual loader."""

    def __init__(self, images: np.ndarray) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.from_numpy(self.images[index]).float() / 255, 0


def pictures(count: int, channels: int, size: int) -> np.ndarray:
    """Bright discs at random places, so that there is something to learn: `(count, C, size, size)` uint8."""
    draws = np.random.default_rng(0)
    place = np.linspace(0, 1, size)
    centre = draws.uniform(0.2, 0.8, (2, count, 1, 1))
    radius = draws.uniform(0.1, 0.3, (count, 1, 1))
    distance = (place - centre[0]) ** 2 + (place[:, None] - centre[1]) ** 2
    disc = (255 * np.exp(-distance / radius**2)).astype(np.uint8)
    return np.repeat(disc[:, None], channels, axis=1)


def check_training(device: str) -> dict[str, float]:
    """Relative errors of loss and gradient, and of both in bf16, against float64 on the CPU."""
    images = torch.from_numpy(pictures(256, 1, 32)).float() / 255
    noise = LATENTS.noise((256,), torch.Generator().manual_seed(0))
    model = VAE((1, 32, 32), LATENTS)
    exact_model = plain.PlainVAE(model).double()
    exact = _loss_by_hand(exact_model, images.double(), noise.double())
    gradients = torch.autograd.grad(exact, list(exact_model.parameters()))
    wanted = torch.cat([gradient.flatten() for gradient in gradients])
    errors = {}
    for name, precision in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        model.to(device)
        x, eps = images.to(device), noise.to(device)
        with torch.autocast(device, precision, enabled=precision != torch.float32):
            posterior = model.posterior(x)
            codes = posterior.reparameterized(eps, 0.67)
            value = posterior.kl(model.prior).mean() - model.likelihood(codes).log_prob(x).mean()
        gradients = torch.autograd.grad(value, list(model.parameters()))
        found = torch.cat([gradient.flatten() for gradient in gradients]).cpu().double()
        errors[f"loss {name}"] = abs(value.item() / exact.item() - 1)
        errors[f"gradient {name}"] = float((found - wanted).norm() / wanted.norm())
    return errors


def _loss_by_hand(model: plain.PlainVAE, images: Tensor, noise: Tensor) -> Tensor:
    """`distortion + KL` from written-out formulas."""
    mean, log_variance, classes = model.head(model.trunk(images)).tensor_split([10, 20], dim=1)
    log_probs = classes.log_softmax(1)
    codes = torch.cat(
        [mean + (0.5 * log_variance).exp() * noise[:, :10], ((log_probs + noise[:, 10:]) / 0.67).softmax(1)],
        1,
    )
    logits = model.decoder(codes)
    distortion = F.binary_cross_entropy_with_logits(logits, images, reduction="sum") / len(images)
    kl = 0.5 * (mean**2 + log_variance.exp() - log_variance - 1).sum(1).mean()
    return distortion + kl + (log_probs.exp() * (log_probs + math.log(10))).sum(1).mean()


def check_information(device: str, components: int, codes: int) -> dict[str, float]:
    """Largest errors in nats: of log q̄ against the mixture written out, of a likelihood, in float64."""
    draws = torch.Generator().manual_seed(0)
    mean = torch.randn(components, 10, generator=draws)
    stddev = torch.rand(components, 10, generator=draws) * 0.5 + 0.05
    mixture = AggregatePosterior(CodeDistribution(mean.to(device), stddev.to(device)))
    drawn = mixture.sample((codes,), torch.Generator(device).manual_seed(0))
    z, m, s = (part.cpu().double() for part in (drawn, mean, stddev))
    wanted = torch.cat(
        [
            (torch.distributions.Normal(m, s).log_prob(block[:, None]).sum(-1)).logsumexp(1)
            for block in torch.split(z, 128)
        ]
    ) - math.log(components)
    logits = torch.linspace(-30, 30, 10_001)
    pixels = torch.rand(10_001, generator=draws)
    near = ContinuousBernoulli(logits.to(device)).log_prob(pixels.to(device)).cpu().double()
    return {
        "log q̄": float((mixture.log_prob(drawn).cpu().double() - wanted).abs().max()),
        "likelihood": float(
            (near - ContinuousBernoulli(logits.double()).log_prob(pixels.double())).abs().max()
        ),
    }


def speeds(
    device: str, size: str, batch: int, steps: int, repeats: int, variants: dict[str, tuple[str, bool]]
) -> dict[str, object]:
    """Images per second of the baseline with its loader and of each variant, interleaved; medians."""
    channels, side = SIZES[size]
    images = pictures(batch * steps, channels, side)
    seen: dict[str, list[float]] = {name: [] for name in ("plain", *variants)}
    for _ in range(repeats):
        loader = DataLoader(Pictures(images), batch, shuffle=True, num_workers=4, persistent_workers=True)
        baseline = plain.PlainVAE(VAE((channels, side, side), LATENTS))
        epochs = plain.train(baseline, loader, 2, OBJECTIVE, 1e-3, 0.67, device)
        next(epochs)
        began = time.perf_counter()
        seen["plain"].append(next(epochs) / (time.perf_counter() - began))
        del loader
        for name, (precision, compiled) in variants.items():
            found: list[float] = []
            config = TrainConfig(
                2, batch, temperature=0.67, device=device, precision=precision, compile=compiled
            )
            train(
                VAE((channels, side, side), LATENTS),
                torch.from_numpy(images),
                OBJECTIVE,
                config,
                0,
                on_epoch=lambda _, values, found=found: found.append(values["images_per_second"]),
            )
            seen[name].append(found[-1])
    return {"images": size, "batch": batch, **{name: statistics.median(v) for name, v in seen.items()}}


def main() -> None:
    """Check, measure, write JSON; the exit code is 1 if a check fails and 2 without CUDA."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpu", action="store_true", help="toy size on the CPU")
    parser.add_argument("--output", type=Path, default=Path("build/benchmarks/gpu.json"))
    options = parser.parse_args()
    if not options.cpu and not torch.cuda.is_available():
        print("error: no CUDA device here (--cpu tries the script out at toy size)", file=sys.stderr)
        sys.exit(2)
    device = "cpu" if options.cpu else "cuda"
    began = time.perf_counter()
    components, codes = (500, 200) if options.cpu else (10_000, 10_000)
    errors = check_training(device) | check_information(device, components, codes)
    limits = {"loss fp32": 1e-4, "gradient fp32": 1e-2, "loss bf16": 0.02, "gradient bf16": 0.2}
    limits |= {"log q̄": 0.01, "likelihood": 1e-3}
    failed = [name for name, error in errors.items() if not error <= limits[name]]
    for name, error in errors.items():
        print(f"{name}: error {error:.1e}, limit {limits[name]:.0e}", flush=True)
    cases = (
        [("32-grey", 64, 4, 1)]
        if options.cpu
        else [(size, batch, 200 if batch < 1024 else 50, 3) for size in SIZES for batch in (64, 256, 1024)]
    )
    rows = []
    for case in cases:
        rows.append(speeds(device, *case, {"fp32": VARIANTS["fp32"]} if options.cpu else VARIANTS))
        print(rows[-1], flush=True)
        # Checks and the first sizes matter most: the rest is left out on a slow device.
        if time.perf_counter() - began > 220:
            break
    toy = (
        {"components": 500, "codes": 200, "steps": 5, "images": 2, "proposals": 8}
        if options.cpu
        else {"components": 10_000, "codes": 100_000, "steps": 1000, "images": 64, "proposals": 4096}
    )
    parts = information.measure(1 if options.cpu else 3, device, **toy)
    name = "CPU" if options.cpu else torch.cuda.get_device_name()
    report = {"device": name, "torch": torch.__version__, "errors": errors, "training": rows}
    report |= {"mutual_information": parts, "seconds": time.perf_counter() - began}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", "utf-8")
    print(json.dumps(report, indent=2, ensure_ascii=False))
    if failed:
        print(f"error: too far from float64 on the CPU: {', '.join(failed)}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
