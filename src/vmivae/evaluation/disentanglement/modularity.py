"""Modularity and explicitness (Ridgeway & Mozer 2018, section 3)."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import mutual_info_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from vmivae.evaluation.disentanglement.representation import Indices, Representation, Table

BINS = 20
SHUFFLES = 20
SURE = 5.0
"""Standard deviations above chance from which on a unit counts as informed."""


def modularity(representation: Representation, generator: np.random.Generator) -> float:
    """Whether each unit knows about one factor only; the mean over the units that know about any.

    Information between binned units and factors is estimated too high by an amount that grows with the number
    of values. What shuffled factors give is therefore subtracted, and a unit that is nowhere clearly above
    it is left out: of nothing no share can be taken. Without any informed unit the score is 0.
    """
    units = representation.binned(BINS)
    information = information_table(units, representation.factors)
    shuffled = np.stack(
        [information_table(units, generator.permutation(representation.factors)) for _ in range(SHUFFLES)]
    )
    chance, noise = shuffled.mean(axis=0), shuffled.std(axis=0, ddof=1)
    informed = (information - chance > SURE * noise).any(axis=1)
    return concentration((information - chance)[informed]) if informed.any() else 0.0


def concentration(information: Table) -> float:
    """`mean_i (1 − Σ_{f ≠ best} I_if² / (I_i,best² (F − 1)))`.

    Args:
        information: `(units, factors)`; each row has a positive entry. With a single factor the score is 1.
    """
    best = information.max(axis=1)
    others = (information**2).sum(axis=1) - best**2
    return float(np.mean(1 - others / (best**2 * max(1, information.shape[1] - 1))))


def information_table(units: Indices, factors: Indices) -> Table:
    """`I(unit; factor)` of class indices `(N, units)` and `(N, factors)`, in nats."""
    return np.array(
        [[mutual_info_score(None, None, contingency=_counts(a, b)) for b in factors.T] for a in units.T]
    )


def explicitness(train: Representation, test: Representation) -> float | None:
    """How well a logistic regression on the whole code tells each value of a factor from the others.

    The area under the ROC curve on `test` of each value's probability, averaged over the values of a factor,
    then over factors; at chance one half. A categorical unit is read as one-hot columns.

    Returns:
        None where no factor has two values in both.
    """
    features, _ = train.features()
    unseen, _ = test.features()
    areas = []
    for factor in range(train.factors.shape[1]):
        values = train.factors[:, factor]
        if len(np.unique(values)) < 2:
            continue
        classifier = make_pipeline(StandardScaler(), LogisticRegression(C=100.0))
        with warnings.catch_warnings():
            # It stops after so many steps; its ranking is settled long before its probabilities.
            warnings.simplefilter("ignore", ConvergenceWarning)
            classifier.fit(features, values)
        probabilities = classifier.predict_proba(unseen)
        truths = test.factors[:, factor][:, None] == classifier.classes_
        ranked = [
            roc_auc_score(truth, probability)
            for truth, probability in zip(truths.T, probabilities.T, strict=True)
            if 0 < truth.sum() < len(truth)
        ]
        if ranked:
            areas.append(np.mean(ranked))
    return float(np.mean(areas)) if areas else None


def _counts(first: Indices, second: Indices) -> NDArray[np.int64]:
    columns = int(second.max()) + 1
    counts = np.bincount(first * columns + second, minlength=(int(first.max()) + 1) * columns)
    return counts.reshape(-1, columns)
