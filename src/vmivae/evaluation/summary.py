"""All scores of one model on the test split, and the main ones on the training split beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vmivae.errors import DataError, NonFiniteError
from vmivae.evaluation.elbo import (
    ElboParts,
    EncodingModel,
    active_units,
    elbo_parts,
    log_likelihood,
)
from vmivae.evaluation.factors import factor_entropies, factor_information
from vmivae.evaluation.labels import Labels, label_information, majority_map
from vmivae.model import CodeDistribution
from vmivae.model.fixed import measured
from vmivae.progress import Progress

FACTOR_IMAGES = 10_000
"""The most test images that the known-factor table is made of."""

Scores = dict[str, Any]


class LabelledImages(Protocol):
    """A split: images `(N, C, H, W)`, and labels `(N,)` and generative factors `(N, F)` if it has any."""

    @property
    def images(self) -> NDArray[np.uint8]:
        """uint8; a pixel is `x = value / 255`."""
        ...

    @property
    def labels(self) -> Labels | None:
        """Non-negative classes."""
        ...

    @property
    def factors(self) -> Labels | None:
        """Non-negative indices of each factor's value."""
        ...


@dataclass(frozen=True)
class Evaluation:
    """Scores and codes of one model.

    Attributes:
        metrics: the numbers of metrics/evaluation.json; nats per image unless a name says otherwise.
        units: one row per unit, all with the same keys; None where a number does not apply.
        codes: the posterior of every image of the splits `train` and `test`.
    """

    metrics: Scores
    units: list[Scores]
    codes: dict[str, CodeDistribution]


def evaluate(
    model: EncodingModel,
    train: LabelledImages,
    test: LabelledImages,
    importance_samples: int,
    seed: int,
    device: str = "auto",
    progress: Progress | None = None,
    *,
    factors: Sequence[str] | None = None,
    repeats: int = 5,
) -> Evaluation:
    """Score a model on all images of both splits.

    Args:
        model: measured in evaluation mode and left as it was.
        train: the split that the model was trained on; majority maps are fitted on its labels.
        test: the split that is scored.
        importance_samples: K of the log-likelihood estimate. There is none if some image is not in the
            likelihood's support (grey pixels under a Bernoulli): the distortion is a cross-entropy then.
        seed: of the codes that are drawn.
        device: a torch device, or `auto`: CUDA or Apple's MPS where there is one.
        progress: called with what is being done, how far it is, how much there is, and the state in words.
        factors: names of the images' generative factors; None where they are not known.
        repeats: of the disentanglement scores, at least 2.

    Raises:
        DataError: a split has fewer than two images.
        NonFiniteError: a score is not finite for some image.
    """
    for name, split in (("train", train), ("test", test)):
        if len(split.images) < 2:
            raise DataError(
                f"{name} split: a standard error needs at least 2 images, got {len(split.images)}"
            )
    with measured(model, device) as place:
        generator = torch.Generator(place).manual_seed(seed)
        parts = elbo_parts(model, test.images, generator, progress, "ELBO, test split")
        train_parts = elbo_parts(model, train.images, generator, progress, "ELBO, training split")
        in_support = bool(parts.in_support.all() and train_parts.in_support.all())
        metrics: Scores = {"likelihood_in_support": in_support} | _elbo_scores(parts, in_support)
        if in_support:
            estimates = log_likelihood(model, test.images, importance_samples, generator, progress)
            metrics |= _mean("log_likelihood_iwae", estimates) | {"importance_samples": importance_samples}

    units = _unit_scores(parts)
    if test.labels is not None:
        _add(units, _information_scores(parts.posterior, test.labels, seed))
    if train.labels is not None and test.labels is not None:
        _add(units, _agreement_scores(train_parts.posterior, train.labels, parts.posterior, test.labels))
    if factors and train.factors is not None and test.factors is not None:
        metrics["disentanglement"] = _factor_scores(
            train_parts.posterior,
            parts.posterior,
            train.factors,
            test.factors,
            names=factors,
            active=[scores["active"] for scores in units.values()],
            repeats=repeats,
            seed=seed,
            progress=progress,
        )
    metrics["active_units"] = sum(scores["active"] for scores in units.values())
    metrics["units"] = units
    metrics["train"] = _elbo_scores(train_parts, in_support)
    return Evaluation(
        metrics,
        [
            {"unit": unit} | {column: scores.get(column) for column in UNIT_COLUMNS}
            for unit, scores in units.items()
        ],
        {"train": train_parts.posterior, "test": parts.posterior},
    )


UNIT_COLUMNS = (
    "rate",
    "rate_se",
    "activity",
    "active",
    "label_information",
    "label_information_shuffled",
    "accuracy",
    "accuracy_se",
    "accuracy_train",
    "nmi",
)
"""What plots/units.csv says of each unit."""


def _elbo_scores(parts: ElboParts, in_support: bool) -> Scores:
    real = parts.posterior.latents.continuous
    return (
        {"images": len(parts.distortion)}
        | _mean("distortion", parts.distortion)
        | {"distortion_kind": "negative log-likelihood" if in_support else "cross-entropy"}
        | _mean("rate", parts.rate)
        | _mean("rate_continuous", parts.rate_per_unit[:, :real].sum(-1))
        | _mean("rate_discrete", parts.rate_per_unit[:, real:].sum(-1))
        | _mean("elbo" if in_support else "negative_cross_entropy_minus_rate", parts.elbo)
        | _mean("mse", parts.squared_error)
    )


def _unit_scores(parts: ElboParts) -> dict[str, Scores]:
    activity, active = active_units(parts.posterior)
    return {
        unit: _mean("rate", parts.rate_per_unit[:, j])
        | {"activity": float(activity[j]), "active": bool(active[j])}
        for j, unit in enumerate(parts.posterior.latents.units)
    }


def _information_scores(posterior: CodeDistribution, labels: Labels, seed: int) -> dict[str, Scores]:
    shuffled = np.random.default_rng(seed).permutation(labels)
    chance = label_information(posterior, shuffled)
    return {
        unit: {"label_information": information, "label_information_shuffled": chance[unit]}
        for unit, information in label_information(posterior, labels).items()
    }


def _agreement_scores(
    train: CodeDistribution, train_labels: Labels, test: CodeDistribution, test_labels: Labels
) -> dict[str, Scores]:
    """How well each categorical unit's most probable class names the label, by the training majority map."""
    # Two seconds, and not every set has labels.
    from sklearn.metrics import normalized_mutual_info_score

    scores = {}
    for unit, train_probs, test_probs in zip(
        test.latents.discrete_units, train.probs, test.probs, strict=True
    ):
        train_classes, test_classes = train_probs.argmax(-1).numpy(), test_probs.argmax(-1).numpy()
        majority = majority_map(train_classes, train_labels, train_probs.shape[-1])
        scores[unit] = (
            _mean("accuracy", torch.from_numpy(majority[test_classes] == test_labels).double())
            | {"accuracy_train": float((majority[train_classes] == train_labels).mean())}
            | {"nmi": float(normalized_mutual_info_score(test_labels, test_classes))}
            | {"majority_map": majority.tolist()}
        )
    return scores


def _factor_scores(
    train: CodeDistribution,
    test: CodeDistribution,
    train_factors: Labels,
    test_factors: Labels,
    names: Sequence[str],
    active: list[bool],
    repeats: int,
    seed: int,
    progress: Progress | None,
) -> Scores | None:
    """The known-factor table and the disentanglement scores; None if no factor varies.

    The table is one list per unit, in the order of `factors`, beside the same for shuffled factors.
    """
    varying = np.flatnonzero((np.ptp(train_factors, axis=0) > 0) & (np.ptp(test_factors, axis=0) > 0))
    if not len(varying):
        return None
    # It brings scikit-learn, two seconds, and not every set has factors.
    from vmivae.evaluation.disentanglement import disentanglement_scores

    columns = np.concatenate([train_factors, test_factors])[:, varying].T
    numbered = np.stack([np.unique(column, return_inverse=True)[1] for column in columns], axis=1)
    train_factors, test_factors = numbered[: len(train_factors)], numbered[len(train_factors) :]
    generator = np.random.default_rng(seed)
    chosen = generator.permutation(len(test_factors))[:FACTOR_IMAGES]
    posterior, known = test[torch.from_numpy(chosen)], test_factors[chosen]
    tables = {
        "information": factor_information(posterior, known),
        "information_shuffled": factor_information(posterior, generator.permutation(known)),
    }
    return (
        {
            "factors": [names[int(column)] for column in varying],
            "values": (numbered.max(axis=0) + 1).tolist(),
            "entropies": factor_entropies(known).tolist(),
            "images": len(known),
            "repeats": repeats,
            "active_units": [unit for unit, used in zip(test.latents.units, active, strict=True) if used],
        }
        | {name: dict(zip(test.latents.units, table.tolist(), strict=True)) for name, table in tables.items()}
        | {
            "scores": disentanglement_scores(
                train, test, train_factors, test_factors, active, repeats, seed, progress
            )
        }
    )


def _add(units: dict[str, Scores], more: dict[str, Scores]) -> None:
    for unit, scores in more.items():
        units[unit] |= scores


def _mean(name: str, values: Tensor) -> Scores:
    """The mean over images and its standard error, `s / √N` with N − 1 degrees of freedom."""
    wrong = int((~values.isfinite()).sum())
    if wrong:
        raise NonFiniteError(f"{name}: not finite for {wrong} of {len(values)} images")
    return {name: float(values.mean()), f"{name}_se": float(values.std()) / math.sqrt(len(values))}
