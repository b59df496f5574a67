"""The β-VAE score (Higgins et al. 2017, section 3): which factor do two images share?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from vmivae.evaluation.disentanglement.representation import Groups, Representation

PAIRS = 64
"""Of images with the same value of one factor, averaged for each point."""
TRAIN, TEST = 10_000, 5_000
_AT_ONCE = 1000


def betavae_score(representation: Representation, generator: np.random.Generator) -> float | None:
    """Accuracy of a linear classifier from the mean difference of codes to the factor that is shared.

    Returns:
        A share of points, at chance one over the number of factors; None where fewer than two factors have
        two values that two images share.
    """
    groups = Groups(representation.factors)
    if len(groups.usable) < 2:
        return None
    points = []
    for count in (TRAIN, TEST):
        factors, images = groups.draw(count, 2 * PAIRS, generator)
        rows = [
            differences(representation, images[start : start + _AT_ONCE])
            for start in range(0, count, _AT_ONCE)
        ]
        points.append((np.concatenate(rows), factors))
    # Differences are scaled so that the unit of a code plays no part.
    classifier = make_pipeline(StandardScaler(), LogisticRegression(C=100.0, max_iter=500))
    classifier.fit(*points[0])
    return float(classifier.score(*points[1]))


def differences(representation: Representation, images: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean of `|z − z′|` over pairs in rows of images `(rows, 2L)`: `(rows, units)`.

    A categorical unit's difference is 0 where the classes agree and 1 where they do not.
    """
    first, second = np.split(images, 2, axis=1)
    real, categories = representation.real, representation.categories
    return np.concatenate(
        [
            abs(real[first] - real[second]).mean(axis=1),
            (categories[first] != categories[second]).mean(axis=1),
        ],
        axis=1,
    )
