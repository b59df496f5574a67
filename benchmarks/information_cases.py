"""What is measured: models with a known information, and trained VAEs."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vmivae import load_params, load_vae
from vmivae.data import binarized, load_prepared, prepare
from vmivae.model import VAE, CodeDistribution, LatentSpec, save_vae
from vmivae.model.reference import GaussianMixture, LinearGaussian
from vmivae.mutual_information import AggregatePosterior
from vmivae.training import TrainConfig, make_information, make_objective, train

CORRELATION = 0.5
TRUTH_DRAWS = 200_000
PARAMS_OF_A_MODEL = {"seed", "data", "latents", "model", "objective", "train"}
FASHION_MNIST: dict[str, Any] = {
    "seed": 0,
    "data": {"source": "fashion_mnist", "image_size": 28},
    "latents": {"continuous": 10, "discrete": [10]},
    "model": {"architecture": "mlp", "likelihood": "bernoulli"},
    "objective": {
        "regularizer": "capacity",
        "gamma": {"continuous": 30.0, "discrete": 10.0},
        "capacity": {
            "continuous": {"start": 0.0, "end": 10.0, "steps": 1400},
            "discrete": {"start": 0.0, "end": None, "steps": 1200},
        },
    },
    "train": {"epochs": 8, "batch_size": 256, "device": "cpu"},
}
"""A short training, in the terms of params.yaml."""

Progress = Callable[[str, int, int, str], None]


class SkippedCase(Exception):
    """A case that cannot be measured here; says why, in one line."""


@dataclass(frozen=True)
class Case:
    """A model, where its codes come from, and what is known of its information.

    Attributes:
        model: measured.
        images: the N images of the aggregate posterior; None for prior codes.
        truth, truth_se: `I(z; x)` in nats where it is known, and its standard error where that is sampled.
    """

    model: VAE | LinearGaussian | GaussianMixture
    images: Tensor | None = None
    truth: float | None = None
    truth_se: float = 0.0

    @property
    def codes(self) -> str:
        """`prior` or `posterior`."""
        return "prior" if self.images is None else "posterior"

    @property
    def source(self) -> CodeDistribution | AggregatePosterior:
        """`r(z)`."""
        if self.images is None:
            return self.model.prior
        return AggregatePosterior.of(self.model.posterior, self.images)


def linear_gaussian(units: int, correlation: float) -> Case:
    """`x = Wz + ε` in 2 D dimensions; columns of W are 1 to 3 long, any two at the cosine `correlation`."""
    basis = torch.linalg.qr(torch.randn(2 * units, units, generator=torch.Generator().manual_seed(0)))[0]
    cosines = torch.full((units, units), correlation).fill_diagonal_(1.0)
    model = LinearGaussian(basis @ torch.linalg.cholesky(cosines).T * torch.linspace(1, 3, units), 1.0)
    return Case(model, truth=float(model.information()))


def mixture(components: int = 10, axes: int = 4) -> Case:
    """Normal components fitted by EM to scikit-learn's digits, on their leading principal axes."""
    from sklearn.datasets import load_digits
    from sklearn.decomposition import PCA
    from sklearn.mixture import GaussianMixture as FittedMixture

    points = PCA(axes, whiten=True, random_state=0).fit_transform(load_digits().data)
    fitted = FittedMixture(components, random_state=0).fit(points)
    parameters = (fitted.weights_, fitted.means_, fitted.covariances_)
    model = GaussianMixture(*(torch.tensor(array, dtype=torch.float32) for array in parameters))
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        codes = model.prior.sample((TRUTH_DRAWS,), torch.Generator().manual_seed(0))
        pointwise = model.pointwise_information(model.likelihood(codes).sample()).double()
    return Case(model, None, float(pointwise.mean()), float(pointwise.std()) / math.sqrt(TRUTH_DRAWS))


@dataclass(frozen=True)
class TrainedModels:
    """The trained VAEs: the pipeline's own where there is one, otherwise trained here and kept.

    Args:
        kept: folder of the prepared sets and of the models that are trained here.
        fashion_mnist: folder with the files of Fashion-MNIST.
        progress: of preparing and training.
    """

    kept: Path
    fashion_mnist: Path
    progress: Progress | None = None

    def mnist5k(self, codes: str) -> Case:
        """The model of params.yaml, with its training images.

        Raises:
            SkippedCase: params.yaml is about another set.
        """
        params = load_params()
        if params.data.source != "mnist5k":
            raise SkippedCase(f"params.yaml is about {params.data.source}")
        if Path("models/vae").is_dir() and Path("data/prepared").is_dir():
            data, model = load_prepared(), load_vae()
            if data.card.source == "mnist5k" and model.image_shape == tuple(data.card.image_shape):
                return _case(model, data.measured().train.images, codes)
        settings = params.model_dump(mode="json", include=PARAMS_OF_A_MODEL)
        del settings["train"]["checkpoint_seconds"]
        return self._trained(settings, "train", codes)

    def fashion(self, codes: str) -> Case:
        """A perceptron trained for a few epochs, with the 10,000 test images.

        Raises:
            SkippedCase: the files are not there.
        """
        if not any(self.fashion_mnist.rglob("train-images-idx3-ubyte*")):
            raise SkippedCase(
                f"no Fashion-MNIST in {self.fashion_mnist}; --fashion-mnist names the folder of its files"
            )
        data = {**FASHION_MNIST["data"], "root": str(self.fashion_mnist)}
        return self._trained({**FASHION_MNIST, "data": data}, "test", codes)

    def _trained(self, params: dict[str, Any], split: str, codes: str) -> Case:
        key = hashlib.sha256(json.dumps(params, sort_keys=True).encode()).hexdigest()[:8]
        folder = self.kept / f"{params['data']['source']}-{key}"
        if not (folder / "data").is_dir():
            prepare(folder / "data", **params["data"], progress=self.progress)
        data = load_prepared(folder / "data")
        if not (folder / "vae").is_dir():
            latents = LatentSpec(**params["latents"])
            objective = dict(params["objective"])
            information = make_information(latents, **objective.pop("information", {}))
            model = VAE(data.card.image_shape, latents, **params["model"], seed=params["seed"])
            train(
                model,
                torch.from_numpy(np.array(data.train.images)),
                make_objective(latents, **objective),
                TrainConfig(**params["train"]),
                params["seed"],
                information=information,
                draw=binarized if data.card.binarize == "dynamic" else None,
                progress=self.progress,
            )
            save_vae(model, folder / "vae")
        return _case(load_vae(folder / "vae"), getattr(data.measured(), split).images, codes)


def _case(model: VAE, images: NDArray[np.uint8], codes: str) -> Case:
    return Case(model, torch.from_numpy(np.array(images)) if codes == "posterior" else None)


def all_cases(models: TrainedModels) -> dict[str, Callable[[], Case]]:
    """Every case by name, in the order of the table; called, it is made."""
    cases: dict[str, Callable[[], Case]] = {}
    for units in (2, 10, 32, 64):
        for name, correlation in (("orthogonal", 0.0), ("correlated", CORRELATION)):
            cases[f"linear-{units}-{name}"] = partial(linear_gaussian, units, correlation)
    cases["mixture"] = mixture
    for name, make in (("mnist5k", models.mnist5k), ("fashion", models.fashion)):
        for codes in ("prior", "posterior"):
            cases[f"{name}-{codes}"] = partial(make, codes)
    return cases
