"""The files of the other stages, small: an untrained VAE, random images, numbers easy to recognise."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from vmivae.data import DataCard, SplitCard
from vmivae.evaluation.disentanglement import SCORES
from vmivae.files import write_csv, write_json
from vmivae.model import VAE, LatentSpec, save_vae

PARAMETERS: dict[str, Any] = {
    "seed": 0,
    "data.source": "mnist5k",
    "model.architecture": "mlp",
    "model.likelihood": "bernoulli",
    "mutual_information.importance.images": 256,
    "mutual_information.importance.samples": 1024,
    "mutual_information.importance.width": 0.2,
    "mutual_information.importance.units": "all",
    "objective.regularizer": "capacity",
    "objective.gamma": 30.0,
    "objective.capacity.continuous.end": 5.0,
    "objective.capacity.discrete.end": None,
    "train.epochs": 3,
    "train.batch_size": 64,
    "train.learning_rate": 5e-4,
    "mutual_information.codes": "posterior",
    "mutual_information.split": "train",
    "mutual_information.q_network.family": "gaussian",
    "mutual_information.q_network.steps": 200,
}
KEY = "0123456789abcdef" * 4


def write_results(
    root: Path,
    latents: LatentSpec,
    *,
    classes: list[str] | None = None,
    channels: int = 1,
    side: int = 8,
    codes: str = "posterior",
    upper: bool = False,
    factors: list[str] | None = None,
    likelihood: str = "bernoulli",
    grey: float = 0.25,
    capacity: bool = True,
) -> Path:
    """Write what prepare, train, evaluate and estimate_mi would, and return `root`."""
    generator = np.random.default_rng(5)
    supported = likelihood != "bernoulli" or grey == 0
    count = {"train": 60, "test": 30}
    prepared = root / "data/prepared"
    prepared.mkdir(parents=True)
    cards = {}
    for split, size in count.items():
        images = generator.integers(0, 256, (size, channels, side, side)).astype(np.uint8)
        np.save(prepared / f"{split}_images.npy", images)
        histogram = None
        if classes:
            labels = np.arange(size) % len(classes)
            np.save(prepared / f"{split}_labels.npy", labels)
            histogram = {name: int((labels == index).sum()) for index, name in enumerate(classes)}
        cards[split] = SplitCard(size, [0.5] * channels, histogram)
    card = DataCard(
        "mnist5k",
        [channels, side, side],
        "none",
        grey,
        cards["train"],
        cards["test"],
        classes,
        None,
        "d" * 64,
    )
    write_json(prepared / "data_card.json", asdict(card))

    save_vae(VAE((channels, side, side), latents, "mlp", likelihood), root / "models/vae")
    codes_of_images = generator.normal(size=(count["test"], latents.size)).astype(np.float32)
    (root / "data/codes").mkdir()
    np.save(root / "data/codes/test_codes.npy", codes_of_images)

    rows = []
    for epoch in range(1, 4):
        row = {
            "epoch": epoch,
            "step": 10 * epoch,
            "loss": 100 / epoch,
            "distortion": 90 / epoch,
            "rate": epoch / 2,
            "kl_continuous": 1.5 * epoch,
            "kl_discrete": 0.7 * epoch,
            "capacity_continuous": 5 * epoch / 3 if capacity and latents.continuous else "",
            "capacity_discrete": latents.max_discrete_entropy * epoch / 3
            if capacity and latents.discrete
            else "",
            "temperature": 0.67,
        }
        rows.append(row | {f"kl_{unit}": 0.1 * epoch for unit in latents.units})
    write_csv(root / "plots/training.csv", rows)
    last = {name: value for name, value in rows[-1].items() if value != ""}
    write_json(root / "metrics/train.json", {"epochs": 3, "steps": 30} | last)
    write_csv(
        root / "plots/q_network.csv",
        [
            {"step": step, "log_q": -9 / step, "validation_log_q": -10 / step if step % 2 else ""}
            for step in range(1, 9)
        ],
    )

    gap = 4.0 if upper else None
    write_csv(
        root / "plots/interval.csv",
        [
            {
                "proposals": k,
                "lower": 6.4 - 1 / k,
                "lower_se": 0.03,
                "upper": 6.7 + gap / k if gap else None,
                "upper_se": 0.04 if gap else None,
            }
            for k in ((1, 2, 4, 8) if upper else (1,))
        ],
    )
    evaluation = _evaluation(latents, classes, supported)
    if factors:
        evaluation["disentanglement"] = _disentanglement(latents, factors)
    write_json(root / "metrics/evaluation.json", evaluation)
    write_json(root / "metrics/mi.json", _information(latents, codes, upper))
    return root


def _evaluation(latents: LatentSpec, classes: list[str] | None, supported: bool) -> dict[str, Any]:
    units: dict[str, dict[str, Any]] = {}
    for index, unit in enumerate(latents.units):
        units[unit] = {"rate": 1 / (1 + index), "rate_se": 0.01, "activity": 0.5, "active": index != 1}
        if classes:
            units[unit] |= {"label_information": 0.3, "label_information_shuffled": 0.02}
            if unit.startswith("c"):
                size = latents.discrete[int(unit[1:])]
                units[unit] |= {"accuracy": 0.8125, "accuracy_se": 0.02, "accuracy_train": 0.83, "nmi": 0.71}
                units[unit] |= {"majority_map": [index % len(classes) for index in range(size)]}
    names = {"distortion": 85.25, "rate": 7.5, "rate_continuous": 5.25, "rate_discrete": 2.25, "mse": 0.0125}
    names |= {"elbo" if supported else "negative_cross_entropy_minus_rate": -92.75}
    scores: dict[str, Any] = {"images": 30}
    for name, value in names.items():
        scores |= {name: value, f"{name}_se": 0.01 * abs(value)}
    kind = "negative log-likelihood" if supported else "cross-entropy"
    both = scores | {"distortion_kind": kind}
    held_out = both | {"likelihood_in_support": supported, "active_units": len(units) - 1, "units": units}
    if supported:
        held_out |= {"log_likelihood_iwae": -90.5, "log_likelihood_iwae_se": 0.9, "importance_samples": 64}
    return held_out | {"train": both}


def _disentanglement(latents: LatentSpec, factors: list[str]) -> dict[str, Any]:
    table = {
        unit: [0.1 * (1 + row) + 0.01 * column for column in range(len(factors))]
        for row, unit in enumerate(latents.units)
    }
    return {
        "factors": factors,
        "values": [3] * len(factors),
        "entropies": [1.0986] * len(factors),
        "images": 30,
        "repeats": 5,
        "active_units": list(latents.units),
        "information": table,
        "information_shuffled": table,
        "scores": {
            name: {"mean": None, "std": None} if name == "irs" else {"mean": 0.4321, "std": 0.0123}
            for name in SCORES
        },
    }


def _information(latents: LatentSpec, codes: str, upper: bool) -> dict[str, Any]:
    def part(lower: float) -> dict[str, Any]:
        found = {"lower": lower, "se": 0.0123, "entropy": 1.4}
        return found | ({"upper": lower + 0.25, "upper_se": 0.015} if upper else {})

    groups = {
        name: part(value)
        for name, value, units in (
            ("continuous", 4.321, latents.continuous_units),
            ("discrete", 2.125, latents.discrete_units),
        )
        if units
    }
    posterior = codes == "posterior"
    return {
        "codes": codes,
        "lower": 6.4321,
        "lower_se": 0.0345,
        "upper": 6.7654 if upper else None,
        "upper_se": 0.0456 if upper else None,
        "gap_se": 0.02 if upper else None,
        "barber_agakov": 6.4321,
        "barber_agakov_se": 0.0345,
        "entropy": 13.5,
        "entropy_se": 0.03,
        "per_unit": {unit: part(0.2 * (1 + index)) for index, unit in enumerate(latents.units)},
        "groups": groups,
        "encoder_information": 3.9 if posterior else None,
        "encoder_information_se": 0.03 if posterior else None,
        "encoder_limit": math.log(60) if posterior else None,
        "rate": 4.2 if posterior else None,
        "marginal_kl": 0.3 if posterior else None,
        "marginal_kl_se": 0.03 if posterior else None,
        "images": 60 if posterior else None,
        "samples": 4000,
        "warnings": ["The encoder's information is near its limit log N."] if posterior else [],
    }
