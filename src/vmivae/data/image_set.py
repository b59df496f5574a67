"""What a source hands over: images one by one, and what is known about each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


class Images(Protocol):
    """A sequence of pictures, each uint8 `(H, W)` (grey) or `(H, W, 3)` (RGB).

    A numpy array `(N, H, W)` or `(N, H, W, 3)` is one; pictures in files are read when asked for.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


@runtime_checkable
class Selectable(Protocol):
    """Images that can be selected before they are made."""

    def select(self, indices: NDArray[np.int64], /) -> Images:
        """The images at `indices`, in that order."""
        ...


class Selection:
    """Some of `images`, in the order of `indices`."""

    def __init__(self, images: Images, indices: NDArray[np.int64]) -> None:
        self._images = images
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int, /) -> Any:
        return self._images[int(self._indices[index])]


@dataclass(frozen=True)
class ImageSet:
    """Images, with labels `(N,)` and generative factors `(N, F)`, both int64, where they are known."""

    images: Images
    labels: NDArray[np.int64] | None = None
    factors: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.images)

    def select(self, indices: NDArray[np.int64]) -> ImageSet:
        """The images at `indices`, in that order."""
        images = self.images
        return ImageSet(
            images.select(indices) if isinstance(images, Selectable) else Selection(images, indices),
            None if self.labels is None else self.labels[indices],
            None if self.factors is None else self.factors[indices],
        )


@dataclass(frozen=True)
class Source:
    """An image set as its files give it.

    `test` is None for a set that has no split of its own. `channels` is 1 or 3. `classes` names the labels
    `0 … K-1`, `factors` the columns of the factors.
    """

    name: str
    train: ImageSet
    test: ImageSet | None
    channels: int
    classes: tuple[str, ...] | None = None
    factors: tuple[str, ...] | None = None
