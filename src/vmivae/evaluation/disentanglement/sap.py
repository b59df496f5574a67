"""The separated attribute predictability score (Kumar et al. 2018), in its form for factors of classes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import recall_score
from sklearn.tree import DecisionTreeClassifier

from vmivae.evaluation.disentanglement.representation import Representation, Table, gap


def sap(train: Representation, test: Representation) -> float:
    """How much better the best unit alone predicts a factor than the second best, averaged over factors."""
    return gap(predictability(train, test))


def predictability(train: Representation, test: Representation) -> Table:
    """How well each unit alone tells each factor's value: `(units, factors)`.

    Thresholds on the unit, one fewer than the factor has values, are fitted on `train` (greedily, by a
    decision tree); a categorical unit's classes take their place. The score is the balanced accuracy on
    `test`, rescaled so that guessing has 0 and knowing 1.
    """
    features, owners = train.features()
    unseen, _ = test.features()
    scores = np.zeros((train.units, train.factors.shape[1]))
    for factor in range(train.factors.shape[1]):
        values = train.factors[:, factor]
        leaves = len(np.unique(values))
        for unit in range(train.units):
            columns = owners == unit
            tree = DecisionTreeClassifier(
                max_leaf_nodes=max(leaves, int(columns.sum())), class_weight="balanced", random_state=0
            )
            tree.fit(features[:, columns], values)
            scores[unit, factor] = _above_chance(test.factors[:, factor], tree.predict(unseen[:, columns]))
    return scores


def _above_chance(truth: NDArray[np.int64], guess: NDArray[np.int64]) -> float:
    values = np.unique(truth)
    recall = recall_score(truth, guess, labels=values, average="macro", zero_division=0.0)
    return float((recall - 1 / len(values)) / (1 - 1 / len(values)))
