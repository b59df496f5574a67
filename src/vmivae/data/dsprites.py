"""dSprites (Matthey et al. 2017) as published: binary images and their generative factors in one .npz."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmivae.data.image_set import ImageSet, Source
from vmivae.data.npz import Arrays, npz_file, open_arrays
from vmivae.errors import DataError

_ARRAYS = ("imgs", "latents_classes", "latents_values")
# The first column, colour, has a single value: it is no factor of variation.
_COLUMNS = ("colour", "shape", "scale", "orientation", "position x", "position y")


def load_dsprites(root: Path) -> Source:
    """dSprites: 737,280 sprites, 64×64, with the indices of their factors' values as factors.

    Its description, a pickle, is never opened.

    Args:
        root: the published file, or the folder that holds it and no other .npz file.

    Raises:
        DataError: the file is missing or damaged, or its arrays are not those of dSprites. One line naming
            file and array.
    """
    path = npz_file(root)
    with open_arrays(path) as arrays:
        images, classes, values = (_read(arrays, name) for name in _ARRAYS)
    if images.dtype not in (np.uint8, np.bool_) or images.ndim != 3 or images.size == 0 or images.max() > 1:
        raise DataError(f"{path}: imgs must be 0 or 1, (N, H, W), got {images.dtype} {images.shape}")
    for name, array, kinds, what in (
        ("latents_classes", classes, "iu", "whole numbers ≥ 0"),
        ("latents_values", values, "f", "finite numbers"),
    ):
        if array.dtype.kind not in kinds or array.shape != (len(images), len(_COLUMNS)):
            raise DataError(
                f"{path}: {name} must be {what}, ({len(images)}, {len(_COLUMNS)}), "
                f"got {array.dtype} {array.shape}"
            )
    if classes.min() < 0 or classes.max() >= len(images) or not np.isfinite(values).all():
        raise DataError(f"{path}: latents_classes or latents_values has numbers out of range")
    for column, name in enumerate(_COLUMNS):
        _check_values(path, name, classes[:, column], values[:, column])
    pixels = images.astype(np.uint8, copy=False)
    np.multiply(pixels, 255, out=pixels)
    return Source(
        "dsprites",
        ImageSet(pixels, factors=classes[:, 1:].astype(np.int64)),
        None,
        channels=1,
        factors=_COLUMNS[1:],
    )


def _read(arrays: Arrays, name: str) -> NDArray[Any]:
    if name not in arrays.names:
        raise DataError(
            f"{arrays.path}: has no array {name}, got {', '.join(sorted(arrays.names)) or 'none'}; "
            "data.source: npz reads other files"
        )
    return arrays.array(name)


def _check_values(path: Path, name: str, classes: NDArray[Any], values: NDArray[Any]) -> None:
    """Each class has one value, and a larger class a larger value."""
    value = np.full(int(classes.max()) + 1, np.nan)
    value[classes] = values
    wrong = np.flatnonzero(value[classes] != values)
    if len(wrong):
        raise DataError(
            f"{path}: latents_classes and latents_values disagree on the {name} of image {wrong[0]}"
        )
    if (np.diff(value[~np.isnan(value)]) <= 0).any():
        raise DataError(f"{path}: latents_values of {name} must rise with latents_classes")
