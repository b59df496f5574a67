"""Extreme but legal settings train or refuse cleanly; numbers that go wrong never become a result."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from workplace import BETA, STAGES, Workplace

from vmivae.errors import NonFiniteError, UserError
from vmivae.files import read_json
from vmivae.model import VAE, LatentSpec, load_vae, save_vae
from vmivae.tracking import store
from vmivae.tracking.mirror import FAILURE_TAG

RANDOM = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
SAME = np.repeat(RANDOM[:1], 40, axis=0)
BLACK = np.zeros_like(RANDOM)
CONTINUOUS_ONLY = {"latents.discrete": []}
Case = tuple[Mapping[str, Any], np.ndarray, str, str]

ALL_STAGES, WELL = "", ""
CASES: dict[str, Case] = {
    "β = 0": (BETA | {"objective.beta": 0}, RANDOM, ALL_STAGES, WELL),
    "β = 10⁴": (BETA | {"objective.beta": 1e4}, RANDOM, ALL_STAGES, WELL),
    "β = 10³⁰": (BETA | {"objective.beta": 1e30}, RANDOM, "train", "step 1: gradient norm is not finite"),
    "C far above what is reachable": (
        {"objective.capacity.continuous": {"start": 0, "end": 1e6, "steps": 3}},
        RANDOM,
        ALL_STAGES,
        WELL,
    ),
    "temperature 0.05": ({"train.temperature": 0.05}, RANDOM, ALL_STAGES, WELL),
    "one unit": (CONTINUOUS_ONLY | {"latents.continuous": 1}, RANDOM, ALL_STAGES, WELL),
    "one categorical unit": ({"latents.continuous": 0, "latents.discrete": [2]}, RANDOM, ALL_STAGES, WELL),
    "100 units": ({"latents.continuous": 100}, RANDOM, ALL_STAGES, WELL),
    "constant images": ({}, SAME, ALL_STAGES, WELL),
    "black images": ({}, BLACK, ALL_STAGES, WELL),
    "black images, Gaussian": ({"model.likelihood": "gaussian"}, BLACK, ALL_STAGES, WELL),
    "black images, continuous Bernoulli": (
        {"model.likelihood": "continuous_bernoulli"},
        BLACK,
        ALL_STAGES,
        WELL,
    ),
    "a scale that no float has": (
        {"model.likelihood": "gaussian", "model.scale": 1e-300},
        RANDOM,
        "train",
        "step 1: distortion is not finite",
    ),
    "one image": ({}, RANDOM[:1], "prepare", "1 images cannot be split"),
    "two images": ({"train.batch_size": 1}, RANDOM[:2], "evaluate", "at least 2 images, got 1"),
    "four images": ({"train.batch_size": 1, "data.test_fraction": 0.5}, RANDOM[:4], ALL_STAGES, WELL),
    "least effort for the information": (
        {
            "mutual_information.samples": 2,
            "mutual_information.q_network.steps": 1,
            "mutual_information.q_network.batch_size": 1,
            "mutual_information.importance.images": 4,
            "mutual_information.importance.samples": 1,
        },
        RANDOM,
        ALL_STAGES,
        WELL,
    ),
    "a learning rate that diverges in the last step": (
        {"train.learning_rate": 1e30, "train.epochs": 1, "train.batch_size": 36},
        RANDOM,
        "train",
        "step 1: .* is not finite",
    ),
    "a learning rate that diverges before": (
        {"train.learning_rate": 1e5},
        RANDOM,
        "train",
        r"step \d+: kl_z\d is not finite",
    ),
}
QUICK = (
    "β = 10³⁰",
    "one image",
    "a scale that no float has",
    "a learning rate that diverges in the last step",
)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_extreme_settings_train_or_refuse_cleanly(place: Workplace, name: str) -> None:
    changes, images, refused_by, line = CASES[name]
    place.set(changes)
    place.images(images)
    for stage in STAGES:
        before = place.files()
        if stage == refused_by:
            with pytest.raises(UserError, match=line) as caught:
                place.main(stage)
            assert "\n" not in str(caught.value)
            assert place.files() == before
            return
        place.main(stage)
    assert refused_by == ALL_STAGES
    assert read_json(place.root / "metrics/mi.json")["lower"] is not None


def poisoned(place: Workplace, weight: str, value: float) -> None:
    model = load_vae(place.root / "models/vae")
    weights = model.state_dict()
    weights[weight].view(-1)[0] = value
    model.load_state_dict(weights)
    save_vae(model, place.root / "models/vae")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_model_that_is_not_finite_is_never_scored(place: Workplace, value: float) -> None:
    weight = next(name for name in load_vae(place.root / "models/vae").state_dict() if "decoder" in name)
    poisoned(place, weight, value)
    before = place.files()
    for stage in ("evaluate", "estimate_mi", "report"):
        with pytest.raises(UserError, match=r"^models/vae/model.safetensors: decoder\S* is not finite"):
            place.main(stage)
    assert place.files() == before


def test_a_number_that_is_not_finite_is_no_result(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    before = place.files()

    monkeypatch.setattr(
        "vmivae.evaluation.summary.active_units", lambda posterior: (torch.full((3,), float("nan")),) * 2
    )
    with pytest.raises(NonFiniteError, match=r"^metrics/evaluation.json: units\.z0\.activity is nan"):
        place.main("evaluate")
    assert place.files() == before


def test_a_diverged_run_is_failed_in_mlflow_with_its_reason(
    place: Workplace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    place.set({"train.learning_rate": 1e5})
    with pytest.raises(NonFiniteError):
        place.main("train")
    monkeypatch.chdir(place.root)
    (row,) = store.open_store(place.root, "vmivae").search("")
    assert row.info.status == "FAILED"
    assert row.data.tags[FAILURE_TAG].startswith("train: training stopped at step ")
    assert "is not finite" in row.data.tags[FAILURE_TAG]
    assert not [name for name in row.data.metrics if name.startswith("train.")]


def test_q_that_is_not_finite_stops_with_its_step(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    from vmivae.model.q_network import QNetwork

    objective = QNetwork.objective
    calls = []

    def fails(self: QNetwork, codes: torch.Tensor, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        calls.append(1)
        log_q, loss = objective(self, codes, images)
        return (log_q * float("nan"), loss * float("nan")) if len(calls) == 3 else (log_q, loss)

    monkeypatch.setattr(QNetwork, "objective", fails)
    before = place.files()
    with pytest.raises(NonFiniteError, match=r"the gradient of .* is not finite at step 3"):
        place.main("estimate_mi")
    assert place.files() == before


def test_the_smallest_model_of_all() -> None:
    model = VAE((1, 4, 4), LatentSpec(1, ()), "mlp", seed=0)
    assert model.posterior(torch.zeros(1, 1, 4, 4)).mean.shape == (1, 1)
