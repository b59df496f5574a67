"""The FactorVAE score (Kim & Mnih 2018, section 4): which unit varies least when a factor is held fixed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vmivae.evaluation.disentanglement.representation import Groups, Indices, Representation, Table

IMAGES = 64
"""With the same value of one factor, in each vote."""
TRAIN, TEST = 10_000, 5_000
"""Votes that the classifier is fitted on, and votes that it is scored on."""
_AT_ONCE = 1000


def factorvae_score(representation: Representation, generator: np.random.Generator) -> float | None:
    """Accuracy of the majority vote: from the unit that varies least to the factor that is fixed.

    A real unit's variance is divided by its variance over all images. A categorical unit's is the
    probability that two of the images differ in class, divided by the same over all images.

    Returns:
        A share of votes, at chance one over the number of factors; None where no factor has two values that
        two images share.
    """
    groups = Groups(representation.factors)
    if not groups.usable:
        return None
    votes = []
    for count in (TRAIN, TEST):
        factors, images = groups.draw(count, IMAGES, generator)
        units = np.concatenate(
            [
                relative_variances(representation, images[start : start + _AT_ONCE]).argmin(axis=1)
                for start in range(0, count, _AT_ONCE)
            ]
        )
        votes.append(count_votes(units, factors, representation.units, representation.factors.shape[1]))
    return majority_accuracy(*votes)


def relative_variances(representation: Representation, images: NDArray[np.int64]) -> NDArray[np.float64]:
    """Variance of each unit within rows of images `(rows, L)`, over its variance in all: `(rows, units)`."""
    spread = [representation.real[images].var(axis=1)]
    overall = [representation.real.var(axis=0)]
    for unit, size in enumerate(representation.sizes):
        hot = np.eye(size)[representation.categories[:, unit]]
        shares, all_shares = hot[images].mean(axis=1), hot.mean(axis=0)
        spread.append(1 - (shares**2).sum(axis=1, keepdims=True))
        overall.append(np.array([1 - (all_shares**2).sum()]))
    total = np.concatenate(overall)
    # A unit that never changes says nothing of any factor: it must not win the vote.
    return np.concatenate(spread, axis=1) / np.where(total > 0, total, 1.0) + np.where(total > 0, 0.0, np.inf)


def count_votes(units: Indices, factors: Indices, unit_count: int, factor_count: int) -> Table:
    """How often each unit varied least while each factor was fixed: `(units, factors)`."""
    table = np.zeros((unit_count, factor_count))
    np.add.at(table, (units, factors), 1)
    return table


def majority_accuracy(train: Table, test: Table) -> float:
    """Share of the votes in `test` that are for the factor that each unit mostly votes for in `train`."""
    factor = train.argmax(axis=1)
    return float(test[np.arange(len(test)), factor].sum() / test.sum())
