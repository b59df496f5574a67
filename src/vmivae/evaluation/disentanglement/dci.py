"""Disentanglement, completeness and informativeness (Eastwood & Williams 2018)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestRegressor
from sklearn.metrics import r2_score

from vmivae.evaluation.disentanglement.representation import Representation, Table

TREES = 10
LEAST_LEAF = 2
"""Images in a leaf at least: a tree that fits single images learns noise."""


@dataclass(frozen=True)
class Dci:
    """The three scores; 1 is best."""

    disentanglement: float
    completeness: float
    informativeness: float


def dci(train: Representation, test: Representation, seed: int) -> Dci:
    """Fit a random forest per factor on `train`; score its importances, and its predictions on `test`.

    The forests predict the index of the factor's value. A categorical unit is read as one-hot columns, whose
    importances are added. Informativeness is the share of a factor's variance that is predicted, R², averaged
    over factors; the paper gives the error, the square root of 1 − R² for one factor.
    """
    features, owners = train.features()
    unseen, _ = test.features()
    factors = train.factors.shape[1]
    importance = np.zeros((train.units, factors))
    predicted = []
    for factor in range(factors):
        forest = RandomForestRegressor(TREES, min_samples_leaf=LEAST_LEAF, random_state=seed)
        forest.fit(features, train.factors[:, factor])
        np.add.at(importance[:, factor], owners, forest.feature_importances_)
        predicted.append(r2_score(test.factors[:, factor], forest.predict(unseen)))
    return Dci(disentanglement(importance), completeness(importance), float(np.mean(predicted)))


def disentanglement(importance: Table) -> float:
    """`Σ_i ρ_i (1 − H_K(P_i))`: whether each unit matters to one factor only.

    `P_i` is unit i's row, normalised, `H_K` its entropy to the base of the number of factors, and `ρ_i` the
    unit's share of all importance.

    Args:
        importance: `(units, factors)`, non-negative.
    """
    total = importance.sum()
    if not total:
        return 0.0
    return float(_concentration(importance) @ importance.sum(axis=1) / total)


def completeness(importance: Table) -> float:
    """`mean_j (1 − H_D(P_j))`: whether each factor needs one unit only; the base is the number of units.

    Args:
        importance: `(units, factors)`, non-negative.
    """
    return float(np.mean(_concentration(importance.T)))


def _concentration(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 for a row with a single entry, 0 for an even one or one of zeros."""
    if rows.shape[1] == 1:
        return np.ones(len(rows))
    totals = rows.sum(axis=1, keepdims=True)
    even = np.full_like(rows, 1 / rows.shape[1])
    shares = np.divide(rows, totals, out=even, where=totals > 0)
    logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    found: NDArray[np.float64] = 1 + (shares * logs).sum(axis=1) / math.log(rows.shape[1])
    return found
