"""How a code agrees with labels that the model never saw. Information in nats."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vmivae.evaluation.mixtures import Grid
from vmivae.model import CodeDistribution

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


def majority_map(classes: Labels, labels: Labels, count: int) -> Labels:
    """The commonest label among the images of each class of a categorical unit.

    To be fitted on the training split and scored on the test split: on its own images it flatters.

    Args:
        classes: `(N,)`, each image's most probable class, in `0 … count − 1`.
        labels: `(N,)`, non-negative.
        count: number of classes K.

    Returns:
        `(K,)` labels. A class that no image has gets the commonest label of all; of equally common labels the
        smallest is taken.
    """
    table = np.zeros((count, int(labels.max()) + 1), dtype=np.int64)
    np.add.at(table, (classes, labels), 1)
    table[table.sum(1) == 0] = table.sum(0)
    majority: Labels = table.argmax(1)
    return majority


def label_information(posterior: CodeDistribution, labels: Labels) -> dict[str, float]:
    """`I(unit; label)` of every unit, in nats, for a code drawn from the posteriors of the given images.

    It is exact for the empirical distribution over these N images. Where posteriors are narrow and images
    of a label few, that lies above the value for unseen images; shuffled labels show by about how much.

    Args:
        posterior: `q(z|x)` of N images, batch shape `(N,)`.
        labels: `(N,)`.

    Returns:
        One number for each unit, by its name.
    """
    latents = posterior.latents
    mean, stddev = posterior.mean.double().numpy(), posterior.stddev.double().numpy()
    real = [real_information(mean[:, i], stddev[:, i], labels) for i in range(latents.continuous)]
    categorical = [categorical_information(block.double(), labels) for block in posterior.probs]
    return dict(zip(latents.units, real + categorical, strict=True))


def categorical_information(probs: Tensor, labels: Labels) -> float:
    """`I(c; label) = H(E π) − E_label H(E[π|label])` from class probabilities `(N, K)`, in nats."""
    given_label = 0.0
    for label in np.unique(labels):
        chosen = labels == label
        given_label += chosen.mean() * _entropy(probs[torch.from_numpy(chosen)].mean(0))
    return _entropy(probs.mean(0)) - given_label


def real_information(mean: Array, stddev: Array, labels: Labels) -> float:
    """`I(z; label) = H(q̄(z)) − E_label H(q̄(z|label))` of one real unit, in nats.

    Each `q̄` is a mixture of `N(mean_n, stddev_n²)`, integrated on a grid that resolves the narrowest of them.

    Args:
        mean: `(N,)`.
        stddev: `(N,)`, positive.
        labels: `(N,)`.
    """
    grid = Grid(mean, stddev)
    density = np.zeros(grid.points)
    given_label = 0.0
    for label in np.unique(labels):
        chosen = labels == label
        conditional = grid.density(mean[chosen], stddev[chosen])
        given_label += chosen.mean() * grid.entropy(conditional)
        density += chosen.mean() * conditional
    return float(grid.entropy(density) - given_label)


def _entropy(probs: Tensor) -> float:
    """`−Σ p log p` of class probabilities `(K,)`, in nats."""
    return float(torch.special.entr(probs).sum())
