"""What disentanglement scores look at: each image's code, unit by unit, and the factors that made the image.

A real unit stands for its posterior mean, a categorical unit for its most probable class.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vmivae.model import CodeDistribution

Table = NDArray[np.float64]
"""Units × factors."""
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Representation:
    """Codes and factors of N images. The units are the real ones, then the categorical ones.

    Attributes:
        factors: `(N, F)`, the index of each factor's value.
        real: `(N, D)`.
        categories: `(N, J)`, non-negative.
        sizes: number of classes of each categorical unit, `(J,)`.
    """

    factors: Indices
    real: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))
    categories: Indices = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64))
    sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        count = len(self.factors)
        if not self.real.size:
            object.__setattr__(self, "real", np.empty((count, 0)))
        if not self.categories.size:
            object.__setattr__(self, "categories", np.empty((count, 0), dtype=np.int64))

    @classmethod
    def of(cls, posterior: CodeDistribution, factors: Indices, active: list[bool]) -> Representation:
        """The active units of the posteriors of N images.

        A unit that is not active is left out: its mean hardly moves, but a learner that takes no notice of
        scale would read it like any other.
        """
        real = posterior.latents.continuous
        means = posterior.mean.double().numpy()[:, active[:real]]
        blocks = [block for block, used in zip(posterior.probs, active[real:], strict=True) if used]
        classes = [block.argmax(-1).numpy() for block in blocks]
        return cls(
            factors,
            means,
            np.stack(classes, axis=1) if classes else np.empty((len(factors), 0), dtype=np.int64),
            tuple(block.shape[-1] for block in blocks),
        )

    def __len__(self) -> int:
        return len(self.factors)

    @property
    def units(self) -> int:
        """How many units there are."""
        return int(self.real.shape[1] + self.categories.shape[1])

    def select(self, indices: Indices) -> Representation:
        """The images at `indices`."""
        return Representation(self.factors[indices], self.real[indices], self.categories[indices], self.sizes)

    def join(self, other: Representation) -> Representation:
        """The images of both, those of `other` last."""
        return Representation(
            np.concatenate([self.factors, other.factors]),
            np.concatenate([self.real, other.real]),
            np.concatenate([self.categories, other.categories]),
            self.sizes,
        )

    def features(self) -> tuple[NDArray[np.float64], Indices]:
        """What a learner reads: real units as they are, a categorical one as one-hot columns.

        Returns:
            `(N, D + ΣK)`, and the unit that each column belongs to.
        """
        blocks = [np.eye(size)[self.categories[:, unit]] for unit, size in enumerate(self.sizes)]
        real = self.real.shape[1]
        owners = np.repeat(np.arange(self.units), [1] * real + list(self.sizes))
        return np.concatenate([self.real, *blocks], axis=1), owners

    def binned(self, bins: int) -> Indices:
        """Every unit as a class index, `(N, units)`: real units in `bins` bins of equal width."""
        least, most = self.real.min(axis=0), self.real.max(axis=0)
        width = np.where(most > least, most - least, 1.0) / bins
        indices = np.floor((self.real - least) / width).astype(np.int64)
        return np.concatenate([np.minimum(indices, bins - 1), self.categories], axis=1)


def gap(scores: Table) -> float:
    """How far, for each factor, the best unit is ahead of the second best; the mean over factors.

    Args:
        scores: `(units, factors)`; where there is only one unit, the second best has 0.
    """
    if len(scores) == 1:
        return float(scores.mean())
    second, best = np.sort(scores, axis=0)[-2:]
    return float((best - second).mean())


class Groups:
    """Images that share the value of a factor.

    Args:
        factors: `(N, F)`.
    """

    def __init__(self, factors: Indices) -> None:
        self._order = np.argsort(factors, axis=0, kind="stable")
        self._starts, self._counts = [], []
        for column in factors.T:
            counts = np.bincount(column)
            shared = counts >= 2
            self._starts.append((np.cumsum(counts) - counts)[shared])
            self._counts.append(counts[shared])
        self.usable = [factor for factor, counts in enumerate(self._counts) if len(counts) >= 2]
        """Factors with at least two values that at least two images have each."""

    def draw(
        self, count: int, size: int, generator: np.random.Generator
    ) -> tuple[Indices, NDArray[np.int64]]:
        """Draw a factor, one of its values and `size` images that have it, `count` times.

        Returns:
            The factors `(count,)` and the images `(count, size)`; an image may come more than once.
        """
        chosen = np.asarray(self.usable)[generator.integers(len(self.usable), size=count)]
        images = np.empty((count, size), dtype=np.int64)
        for factor in self.usable:
            rows = np.flatnonzero(chosen == factor)
            value = generator.integers(len(self._counts[factor]), size=len(rows))[:, None]
            within = generator.random((len(rows), size)) * self._counts[factor][value]
            places = self._starts[factor][value] + within.astype(np.int64)
            images[rows] = self._order[places, factor]
        return chosen, images
