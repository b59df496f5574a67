"""Densities of one-dimensional Gaussian mixtures with many components, and their entropies.

A mixture of N components of very different widths is evaluated on a uniform grid in time proportional to N.
Each component is laid on a grid whose step is a quarter to a half of its own standard deviation σ, where only
some 70 points matter. Such a grid loses nothing: what lies above its Nyquist frequency is at most
`exp(−2π²) ≈ 3e-9` of the component. So the coarse grids are brought to the finest one by band-limited
(Fourier) interpolation and added.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

REACH = 8.5
"""Standard deviations beyond which a component is left out (less than 1e-16 of its mass)."""

FINEST = 2**18
"""The most points of a grid. Components narrower than twice its step are widened to that."""

_COMPONENTS_AT_ONCE = 2**14


class Grid:
    """A periodic uniform grid that holds every component of a mixture and resolves the narrowest one.

    Args:
        mean: `(N,)`.
        stddev: `(N,)`, positive.
    """

    def __init__(self, mean: Array, stddev: Array) -> None:
        self._start = float((mean - REACH * stddev).min())
        self._length = float((mean + REACH * stddev).max()) - self._start
        # One level finer than the narrowest component: f·log f bends more than f.
        self.points = min(FINEST, 2 * int(self._points_for(stddev).max()))

    @property
    def step(self) -> float:
        """Distance between points."""
        return self._length / self.points

    def density(self, mean: Array, stddev: Array) -> Array:
        """Density at every point of the equally weighted mixture of `(M,)` components: `(points,)`."""
        levels = self._points_for(stddev)
        density = np.zeros(1)
        for points in np.unique(levels):
            chosen = levels == points
            density = _resample(density, points) + self._sum(mean[chosen], stddev[chosen], int(points))
        return _resample(density, self.points) / len(mean)

    def entropy(self, density: Array) -> float:
        """`−∫ f log f` of a density at the grid's points, by the trapezoid rule, in nats.

        Interpolation leaves noise of either sign where the density is all but zero; it counts as zero there.
        """
        positive = density[density > 0]
        return -self.step * float(positive @ np.log(positive))

    def _points_for(self, stddev: Array) -> NDArray[np.int64]:
        """Points of the coarsest grid, a power of two, whose step is at most half of each σ."""
        wanted = np.ceil(np.log2(2 * self._length / stddev)).astype(np.int64)
        return 2 ** np.minimum(wanted, int(math.log2(FINEST)))

    def _sum(self, mean: Array, stddev: Array, points: int) -> Array:
        """Sum of the components' densities on the grid of `points` points, each within its reach."""
        step = self._length / points
        stddev = np.maximum(stddev, 2 * step)
        reach = math.ceil(REACH * stddev.max() / step)
        offsets = np.arange(-reach, reach + 1)
        total = np.zeros(points)
        for first in range(0, len(mean), _COMPONENTS_AT_ONCE):
            part = slice(first, first + _COMPONENTS_AT_ONCE)
            position = ((mean[part] - self._start) / step)[:, None]
            nearest = np.rint(position).astype(np.int64)
            width = stddev[part, None] / step
            values = np.exp(-0.5 * ((offsets - (position - nearest)) / width) ** 2)
            values /= math.sqrt(2 * math.pi) * stddev[part, None]
            total += np.bincount(
                ((nearest + offsets) % points).ravel(), weights=values.ravel(), minlength=points
            )
        return total


def _resample(density: Array, points: int) -> Array:
    """Band-limited interpolation of a periodic grid to `points` points."""
    if len(density) == points:
        return density
    return np.fft.irfft(np.fft.rfft(density), n=points) * (points / len(density))
