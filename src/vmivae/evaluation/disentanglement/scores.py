"""All disentanglement scores of one model, each the mean over repeats on fresh halves of the images."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from vmivae.evaluation.disentanglement.betavae import betavae_score
from vmivae.evaluation.disentanglement.dci import dci
from vmivae.evaluation.disentanglement.factorvae import factorvae_score
from vmivae.evaluation.disentanglement.irs import irs
from vmivae.evaluation.disentanglement.mig import mutual_information_gap
from vmivae.evaluation.disentanglement.modularity import explicitness, modularity
from vmivae.evaluation.disentanglement.representation import Indices, Representation
from vmivae.evaluation.disentanglement.sap import sap
from vmivae.evaluation.factors import factor_entropies, factor_information
from vmivae.model import CodeDistribution
from vmivae.progress import Progress

TRAIN, TEST = 10_000, 5_000
"""The most images that predictors are fitted on and scored on (Locatello et al. 2019)."""
IMAGES = 10_000
"""The most test images that information is measured on (likewise)."""
SCORES = (
    "mig",
    "dci_disentanglement",
    "dci_completeness",
    "dci_informativeness",
    "sap",
    "factorvae",
    "betavae",
    "irs",
    "modularity",
    "explicitness",
)

Values = dict[str, float | None]


def disentanglement_scores(
    train: CodeDistribution,
    test: CodeDistribution,
    train_factors: Indices,
    test_factors: Indices,
    active: list[bool],
    repeats: int,
    seed: int,
    progress: Progress | None = None,
) -> dict[str, Values]:
    """Score the codes of a model by the known factors of its images.

    Each repeat takes half of each split's images at random, at most the sample sizes above; so the spread
    over repeats is about the standard error of a score on all of them. Predictors are fitted on images of the
    training split and scored on the test split. The scores that compare images with the same value of a
    factor take them from both halves.

    Args:
        train: posteriors of the training images, batch shape `(N,)`.
        test: posteriors of the test images, `(M,)`.
        train_factors: `(N, F)`, the index of each factor's value.
        test_factors: `(M, F)`. A factor that does not vary in both halves is left out of that repeat.
        active: whether each unit is in use. MIG looks at all units, the other scores at these.
        repeats: at least 2.
        seed: of all draws.
        progress: called after each repeat.

    Returns:
        For each of `SCORES` its `mean` and its `std` over repeats, both None where the score is not defined
        for these images and units.
    """
    found: dict[str, list[float]] = {name: [] for name in SCORES}
    for repeat in range(repeats):
        generator = np.random.default_rng([seed, repeat])
        fitted, scored = (
            _half(len(train_factors), TRAIN, generator),
            _half(len(test_factors), IMAGES, generator),
        )
        varying = _varying(train_factors[fitted]) & _varying(test_factors[scored[:TEST]])
        if varying.any():
            posterior, factors = test[torch.from_numpy(scored)], test_factors[scored][:, varying]
            entropies = factor_entropies(factors)
            values: Values = {
                "mig": mutual_information_gap(factor_information(posterior, factors), entropies)
            }
            if any(active):
                train_half = Representation.of(
                    train[torch.from_numpy(fitted)], train_factors[fitted][:, varying], active
                )
                values |= _of_active_units(
                    train_half, Representation.of(posterior, factors, active), generator
                )
            for name, value in values.items():
                if value is not None:
                    found[name].append(value)
        if progress:
            progress("disentanglement", repeat + 1, repeats, "")
    return {
        name: {
            "mean": float(np.mean(values)) if values else None,
            "std": float(np.std(values, ddof=1)) if len(values) > 1 else None,
        }
        for name, values in found.items()
    }


def _of_active_units(train: Representation, test: Representation, generator: np.random.Generator) -> Values:
    both = train.join(test)
    scored = test.select(np.arange(min(TEST, len(test))))
    parts = dci(train, scored, int(generator.integers(2**31)))
    return {
        "dci_disentanglement": parts.disentanglement,
        "dci_completeness": parts.completeness,
        "dci_informativeness": parts.informativeness,
        "sap": sap(train, scored),
        "factorvae": factorvae_score(both, generator),
        "betavae": betavae_score(both, generator),
        "irs": irs(both),
        "modularity": modularity(test, generator),
        "explicitness": explicitness(train, scored),
    }


def _half(count: int, most: int, generator: np.random.Generator) -> Indices:
    return generator.permutation(count)[: max(1, min(most, count // 2))]


def _varying(factors: Indices) -> NDArray[np.bool_]:
    varying: NDArray[np.bool_] = np.ptp(factors, axis=0) > 0
    return varying
