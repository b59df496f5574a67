"""Arrays in a NumPy .npz file, read without unpickling anything."""

from __future__ import annotations

import io
import math
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from vmivae.data.image_set import ImageSet, Source
from vmivae.data.limits import MAX_ARRAY_BYTES, MAX_NAME_CHARACTERS
from vmivae.errors import DataError

# What an array may be called; x and y are Keras's names, the last ones those of dSprites.
_NAMES = {
    "images": ("images", "x", "imgs"),
    "labels": ("labels", "y"),
    "factors": ("factors", "latents_classes"),
    "factor_names": ("factor_names",),
}
_CHUNK = 1024
# NumPy itself reads a header of any length into memory before it refuses one that is too long.
_HEADER_BYTES = 10_000


def load_npz(root: Path) -> Source:
    """Images, labels and generative factors from one .npz file.

    Images are `(N, H, W)`, `(N, C, H, W)` or `(N, H, W, C)` with C = 1 or 3; uint8, bool, or floating-point
    in [0, 1]. A set whose uint8 pixels are nothing but 0 and 1 is binary, as a bool one is. Labels `(N,)` are
    whole numbers or text: their distinct values, sorted, are the classes. Factors `(N, F)` are whole numbers.

    Names are `images`, `labels`, `factors` (or `x`, `y`; or `imgs`, `latents_classes`); for a set with its
    own split `train_images`, `test_images` … (or `x_train`, `x_test` …). `factor_names` `(F,)` is optional.

    Args:
        root: the file, or the folder that holds it and no other .npz file.

    Raises:
        DataError: the file is missing or damaged, lacks images, or has an array of another shape, type or
            range, arrays that do not belong together, or Python objects. One line naming file and array.
    """
    path = npz_file(root)
    with open_arrays(path) as arrays:
        own_split = arrays.key("images", "train") is not None
        if own_split and arrays.key("images", None) is not None:
            raise DataError(f"{path}: has both images for train and images without a split; keep one of them")
        splits = [_Split(arrays, split) for split in (("train", "test") if own_split else (None,))]
        names = arrays.read("factor_names", None)
    for part in ("labels", "factors", "shape"):
        _check_agreement(path, part, splits)
    _scale_binary(splits)
    classes = _number_labels(path, splits)
    sets = [ImageSet(split.images, split.labels, split.factors) for split in splits]
    return Source(
        "npz",
        sets[0],
        sets[1] if own_split else None,
        channels=3 if splits[0].images.ndim == 4 else 1,
        classes=classes,
        factors=_factor_names(path, names, splits[0].factors),
    )


@contextmanager
def open_arrays(path: Path) -> Iterator[Arrays]:
    """The arrays of an .npz file, to be read one by one.

    Raises:
        DataError: the file is damaged, or an array in it is. One line naming it.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            yield Arrays(path, archive)
    except DataError:
        raise
    except Exception as error:  # damaged archives and headers make their readers raise anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path}: is damaged or no .npz file ({reason})") from None


class Arrays:
    """The arrays of one file, each checked by its declared type and size before it is read."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path = path
        self._archive = archive
        self.names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]

    def key(self, part: str, split: str | None) -> str | None:
        """The name under which the file has `part` of `split`."""
        accepted = accepted_names(part, split)
        found = [name for name in self.names if name in accepted]
        if len(found) > 1:
            raise DataError(
                f"{self.path}: has {found[0]} and {found[1]} for the same thing; keep one of them"
            )
        return found[0] if found else None

    def read(self, part: str, split: str | None) -> NDArray[Any] | None:
        """The array, or None where the file has none."""
        key = self.key(part, split)
        return None if key is None else self.array(key)

    def array(self, key: str) -> NDArray[Any]:
        """The array of that name, which the file has."""
        with self._archive.open(f"{key}.npy") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            start = io.BytesIO(file.read(_HEADER_BYTES))
            version = npy.read_magic(start)
            header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, _, dtype = header(start)
        if dtype.hasobject:
            raise DataError(f"{self.path}: {key} holds Python objects, which are never unpickled")
        size = math.prod(shape) * dtype.itemsize
        if size > MAX_ARRAY_BYTES:
            raise DataError(
                f"{self.path}: {key} declares {size} bytes, more than the {MAX_ARRAY_BYTES} accepted"
            )
        if dtype.kind in "US" and dtype.itemsize > MAX_NAME_CHARACTERS * (4 if dtype.kind == "U" else 1):
            raise DataError(
                f"{self.path}: {key} declares texts of more than {MAX_NAME_CHARACTERS} characters"
            )
        if size > self._archive.getinfo(f"{key}.npy").file_size:
            raise DataError(f"{self.path}: {key} is truncated, its shape {shape} needs {size} bytes")
        with self._archive.open(f"{key}.npy") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            array: NDArray[Any] = npy.read_array(file, allow_pickle=False)
        return array


class _Split:
    """Images as uint8 `(N, H, W)` or `(N, H, W, 3)`, labels as the file has them, factors as int64."""

    def __init__(self, arrays: Arrays, split: str | None) -> None:
        path, key = arrays.path, arrays.key("images", split)
        images = arrays.read("images", split)
        if images is None or key is None:
            raise DataError(
                f"{path}: has no array {' or '.join(accepted_names('images', split))}, "
                f"got {', '.join(sorted(arrays.names)) or 'none'}"
            )
        self.where = f"{path}: {key}"
        self.integral = images.dtype == np.uint8
        self.images = _eight_bits(_channels_last(images, self.where), self.where)
        self.labels: NDArray[Any] | None = self._beside(
            arrays, "labels", split, "iubUS", "whole numbers or text", 1
        )
        self.factors: NDArray[Any] | None = self._beside(arrays, "factors", split, "iub", "whole numbers", 2)
        if self.factors is not None:
            self.factors = self.factors.astype(np.int64)
        self.shape = self.images.shape[1:]

    def _beside(
        self, arrays: Arrays, part: str, split: str | None, kinds: str, accepted: str, dimensions: int
    ) -> NDArray[Any] | None:
        values = arrays.read(part, split)
        if values is None:
            return None
        where = f"{arrays.path}: {arrays.key(part, split)}"
        if values.dtype.kind not in kinds:
            raise DataError(f"{where} must be {accepted}, got {values.dtype}")
        if values.ndim != dimensions or len(values) != len(self.images) or values.size == 0:
            shape = "(N,)" if dimensions == 1 else "(N, F)"
            raise DataError(
                f"{where} must be {shape} with N = {len(self.images)} as the images, got {values.shape}"
            )
        return values


def accepted_names(part: str, split: str | None) -> list[str]:
    """Every name that an array may have in the file.

    Args:
        part: "images", "labels", "factors" or "factor_names".
        split: "train" or "test"; None for a set without a split of its own.
    """
    if split is None:
        return list(_NAMES[part])
    return [form for name in _NAMES[part] for form in (f"{split}_{name}", f"{name}_{split}")]


def npz_file(root: Path) -> Path:
    """The file that `root` is, or the one .npz file of the folder that it is.

    Raises:
        DataError: there is none, or more than one.
    """
    if not root.is_dir():
        if not root.is_file():
            raise DataError(f"{root}: not found; data.root names the .npz file or its folder")
        return root
    files = sorted(file for file in root.glob("*.npz") if file.is_file())
    if len(files) != 1:
        names = ", ".join(file.name for file in files) or "none"
        raise DataError(f"{root}: must hold one .npz file, got {names}; data.root may name the file itself")
    return files[0]


def _channels_last(images: NDArray[Any], where: str) -> NDArray[Any]:
    """`(N, H, W)` for grey, `(N, H, W, 3)` for RGB."""
    accepted = "(N, H, W), (N, C, H, W) or (N, H, W, C) with C = 1 or 3"
    if images.ndim not in (3, 4) or 0 in images.shape:
        raise DataError(f"{where} must be {accepted}, got {images.shape}")
    if images.ndim == 3:
        return images
    first, last = images.shape[1] in (1, 3), images.shape[3] in (1, 3)
    if first == last:
        fault = "could be either of the last two" if first else "has neither"
        raise DataError(f"{where} must be {accepted}, got {images.shape}, which {fault}")
    if first:
        images = images.transpose(0, 2, 3, 1)
    return images[..., 0] if images.shape[3] == 1 else images


def _eight_bits(images: NDArray[Any], where: str) -> NDArray[np.uint8]:
    if images.dtype == np.uint8:
        return images
    if images.dtype == np.bool_:
        return images.astype(np.uint8) * np.uint8(255)
    if images.dtype.kind != "f":
        raise DataError(f"{where} must be uint8, bool, or floating-point in [0, 1], got {images.dtype}")
    result = np.empty(images.shape, dtype=np.uint8)
    for start in range(0, len(images), _CHUNK):
        chunk = images[start : start + _CHUNK]
        least, most = chunk.min(), chunk.max()
        if np.isnan(least):
            first = start + int(np.isnan(chunk).reshape(len(chunk), -1).any(axis=1).argmax())
            raise DataError(f"{where} has NaN in image {first}")
        if least < 0 or most > 1:
            raise DataError(f"{where} must lie in [0, 1] when floating-point, got {least:g} to {most:g}")
        result[start : start + _CHUNK] = np.rint(chunk.astype(np.float64) * 255)
    return result


def _scale_binary(splits: list[_Split]) -> None:
    if all(split.integral and split.images.max() <= 1 for split in splits):
        for split in splits:
            np.multiply(split.images, 255, out=split.images)


def _check_agreement(path: Path, part: str, splits: list[_Split]) -> None:
    values = [getattr(split, part) for split in splits]
    if part == "shape":
        if any(value != values[0] for value in values):
            raise DataError(f"{path}: train and test images differ in shape, {values[0]} and {values[1]}")
    elif any((value is None) != (values[0] is None) for value in values):
        having, lacking = ("train", "test") if values[1] is None else ("test", "train")
        raise DataError(f"{path}: has {part} for {having} but none for {lacking}")


def _number_labels(path: Path, splits: list[_Split]) -> tuple[str, ...] | None:
    """Replace the labels by the numbers of their classes; the names of the classes."""
    labels = [split.labels for split in splits if split.labels is not None]
    if not labels:
        return None
    texts = {values.dtype.kind in "US" for values in labels}
    if len(texts) > 1:
        raise DataError(f"{path}: labels must be text in both splits or numbers in both")
    if texts == {True}:
        try:
            labels = [
                np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values for values in labels
            ]
        except UnicodeDecodeError:
            raise DataError(f"{path}: labels must be UTF-8 where they are text") from None
    values, numbers = np.unique(np.concatenate(labels), return_inverse=True)
    for split, part in zip(splits, np.split(numbers, [len(labels[0])]), strict=False):
        split.labels = part.astype(np.int64)
    return tuple(str(value) for value in values)


def _factor_names(
    path: Path, names: NDArray[Any] | None, factors: NDArray[np.int64] | None
) -> tuple[str, ...] | None:
    if factors is None:
        return None
    if names is None:
        return tuple(f"factor {column}" for column in range(factors.shape[1]))
    if names.dtype.kind != "U" or names.shape != (factors.shape[1],):
        raise DataError(
            f"{path}: factor_names must be {factors.shape[1]} texts, one per factor, "
            f"got {names.dtype} {names.shape}"
        )
    return tuple(str(name) for name in names)
