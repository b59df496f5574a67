"""Sprites: white shapes on black whose generative factors are known, drawn here in the format of dSprites.

A square, an ellipse and a heart of equal area, in several sizes, turned and moved about; 64×64, binary. The
format and the order of factors are those of dSprites (Matthey et al. 2017); the pixels are our own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vmivae.data.image_set import ImageSet, Source
from vmivae.errors import ParameterError

SIDE = 64
AREA = 400.0
"""Of every shape at scale 1, in pixels."""
FIRST, LAST = 16.0, 47.0
"""Where the centre is at positions 0 and 1, in pixels: no shape ever touches the border."""
_TOGETHER = 128
FACTORS = ("shape", "scale", "orientation", "position x", "position y")

_SQUARE = math.sqrt(AREA) / 2  # half a side
_ELLIPSE = math.sqrt(AREA / (2 * math.pi))  # the shorter half axis; the other one is twice as long
# A square on its corner with half a disc on each upper side: a² + 2·π(a/2)²/2.
_HEART = math.sqrt(AREA / (1 + math.pi / 4))
_TIP = _HEART / math.sqrt(2)  # from the middle of that square to its corners
_HEART_CENTRE = _TIP * (math.pi / 8 + 1 / 6) / (1 + math.pi / 4)  # of gravity, above that middle


@dataclass(frozen=True)
class SpriteGrid:
    """How many values each factor takes, and how many images of their combinations there are.

    Attributes:
        shape: the first so many of square, ellipse and heart.
        scale: values from 0.5 to 1, evenly spaced (a single one is 1).
        orientation: angles from 0 to 2π, both included as in dSprites: the first and the last look the same
            (a single one is 0).
        position_x: columns of the centre from left to right, 0 to 1 (a single one is in the middle).
        position_y: rows of the centre from top to bottom, likewise.
        count: how many images, drawn from all combinations without repetition; None for all of them.
        seed: of that draw.
    """

    shape: int = 3
    scale: int = 6
    orientation: int = 40
    position_x: int = 32
    position_y: int = 32
    count: int | None = None
    seed: int = 0

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of each factor."""
        return self.shape, self.scale, self.orientation, self.position_x, self.position_y

    @property
    def combinations(self) -> int:
        """Number of all images that the grid has."""
        return math.prod(self.sizes)

    def classes(self) -> NDArray[np.int64]:
        """Index of each factor's value, image by image: `(N, 5)`; the last factor changes fastest."""
        chosen = np.arange(self.combinations)
        if self.count is not None:
            chosen = np.sort(
                np.random.default_rng(self.seed).choice(self.combinations, self.count, replace=False)
            )
        return np.stack(np.unravel_index(chosen, self.sizes), axis=1).astype(np.int64)

    def values(self, classes: NDArray[np.int64]) -> NDArray[np.float64]:
        """What the indices `(N, 5)` stand for: shape 0 to 2, scale, angle in radians, positions in [0, 1]."""
        scales = [
            np.arange(self.shape),
            np.linspace(0.5, 1, self.scale) if self.scale > 1 else [1.0],
            np.linspace(0, 2 * math.pi, self.orientation),
            np.linspace(0, 1, self.position_x) if self.position_x > 1 else [0.5],
            np.linspace(0, 1, self.position_y) if self.position_y > 1 else [0.5],
        ]
        return np.stack(
            [np.asarray(scale, dtype=float)[classes[:, f]] for f, scale in enumerate(scales)], axis=1
        )


class Sprites:
    """Images of the given factor values `(N, 5)` as a sequence, drawn when asked for.

    Neighbours are drawn together: one at a time would take four times as long.
    """

    def __init__(self, values: NDArray[np.float64]) -> None:
        self._values = values
        self._drawn = range(0)
        self._images = np.empty((0, SIDE, SIDE), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: int, /) -> NDArray[np.uint8]:
        if index not in self._drawn:
            first = index - index % _TOGETHER
            self._drawn = range(first, min(first + _TOGETHER, len(self)))
            self._images = render(self._values[first : first + _TOGETHER])
        image: NDArray[np.uint8] = self._images[index - self._drawn.start]
        return image

    def select(self, indices: NDArray[np.int64], /) -> Sprites:
        """The images at `indices`, in that order."""
        return Sprites(self._values[indices])


def load_sprites(grid: SpriteGrid) -> Source:
    """The sprites of a grid, with the indices of their factors' values.

    Raises:
        ParameterError: more images are asked for than the grid has.
    """
    if grid.count is not None and grid.count > grid.combinations:
        raise ParameterError(
            f"data.sprites.count: must be ≤ {grid.combinations}, all combinations of the factors' values, "
            f"got {grid.count}"
        )
    classes = grid.classes()
    return Source(
        "sprites",
        ImageSet(Sprites(grid.values(classes)), factors=classes),
        None,
        channels=1,
        factors=FACTORS,
    )


def render(values: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Draw sprites: a pixel is white where its centre lies inside the shape.

    An angle turns the shape clockwise as displayed; at 0 the square stands on a side, the ellipse is upright
    and the heart's tip points down.

    Args:
        values: `(N, 5)`: shape (0 square, 1 ellipse, 2 heart), scale, angle in radians, position x and y
            in [0, 1].

    Returns:
        uint8 `(N, 64, 64)`, each pixel 0 or 255.
    """
    scale, angle, x, y = (column[:, None, None] for column in values.T[1:])
    pixels = np.arange(SIDE) + 0.5
    right = (pixels[None, None, :] - (FIRST + x * (LAST - FIRST))) / scale
    down = (pixels[None, :, None] - (FIRST + y * (LAST - FIRST))) / scale
    cos, sin = np.cos(angle), np.sin(angle)
    # Where the pixel is in the shape's own frame, at scale 1; v points up.
    u, v = cos * right + sin * down, sin * right - cos * down
    inside = np.empty(u.shape, dtype=bool)
    for number, contains in enumerate((_in_square, _in_ellipse, _in_heart)):
        chosen = values[:, 0] == number
        inside[chosen] = contains(u[chosen], v[chosen])
    return inside.astype(np.uint8) * np.uint8(255)


Coordinates = NDArray[np.float64]


def _in_square(u: Coordinates, v: Coordinates) -> NDArray[np.bool_]:
    return np.maximum(abs(u), abs(v)) <= _SQUARE


def _in_ellipse(u: Coordinates, v: Coordinates) -> NDArray[np.bool_]:
    inside: NDArray[np.bool_] = u**2 + (v / 2) ** 2 <= _ELLIPSE**2
    return inside


def _in_heart(u: Coordinates, v: Coordinates) -> NDArray[np.bool_]:
    u, v = abs(u), v + _HEART_CENTRE
    in_square = u + abs(v) <= _TIP
    in_disc = (u - _TIP / 2) ** 2 + (v - _TIP / 2) ** 2 <= (_HEART / 2) ** 2
    return in_square | in_disc
