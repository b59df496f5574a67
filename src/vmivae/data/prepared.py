"""The prepared set: uint8 arrays and a data card in one folder, whatever the images came from."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.format import write_array_header_1_0
from numpy.typing import NDArray

from vmivae.data.binarize import binarized, fixed_generator, thresholded
from vmivae.data.image_set import ImageSet, Source
from vmivae.data.resize import fitted
from vmivae.errors import DataError
from vmivae.files import read_json, replace_directory, write_json
from vmivae.progress import Progress

if TYPE_CHECKING:
    from torch import Tensor

CARD = "data_card.json"
SPLITS = ("train", "test")
RESIDENT_BYTES = 2**30
_CHUNK = 1024


@dataclass(frozen=True)
class SplitCard:
    """One split in numbers: `channel_mean` of `x = uint8/255`, and how many images each class has."""

    count: int
    channel_mean: list[float]
    label_histogram: dict[str, int] | None


@dataclass(frozen=True)
class DataCard:
    """What a prepared set is.

    `image_shape` is `[C, H, W]`; `grey_pixels` the fraction of pixels that are neither 0 nor 255; `hash` the
    SHA-256 of all arrays, so equal hashes are equal data.
    """

    source: str
    image_shape: list[int]
    binarize: str
    grey_pixels: float
    train: SplitCard
    test: SplitCard
    classes: list[str] | None
    factors: list[str] | None
    hash: str

    def __str__(self) -> str:
        shape = "×".join(str(length) for length in self.image_shape)
        classes = f"{len(self.classes)} classes" if self.classes else "no labels"
        factors = f", {len(self.factors)} factors" if self.factors else ""
        return f"{self.source}: {self.train.count} + {self.test.count} images {shape}, {classes}{factors}"


@dataclass(frozen=True)
class Split:
    """`images` uint8 `(N, C, H, W)`, memory-mapped, read-only; `labels` `(N,)` and `factors` `(N, F)`."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64] | None
    factors: NDArray[np.int64] | None

    def __len__(self) -> int:
        return len(self.images)

    def tensor(self) -> Tensor:
        """The images, in memory up to `RESIDENT_BYTES`; beyond, the file is read where images are used."""
        import torch

        if self.images.nbytes <= RESIDENT_BYTES:
            return torch.from_numpy(np.array(self.images))
        with warnings.catch_warnings():
            # Nothing writes to the tensor, which PyTorch could not hinder.
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            return torch.from_numpy(self.images)


@dataclass(frozen=True)
class Prepared:
    """A prepared set. Pixels are `x = uint8/255`, in [0, 1]."""

    train: Split
    test: Split
    card: DataCard

    def measured(self) -> Prepared:
        """The set that models are measured on: with `binarize: dynamic` one fixed draw of each split.

        The draw depends on nothing but the images: every model is measured on the same binary ones.
        """
        if self.card.binarize != "dynamic":
            return self
        return replace(self, train=_drawn(self.train, "train"), test=_drawn(self.test, "test"))


def load_prepared(path: str | Path = "data/prepared") -> Prepared:
    """Open a prepared set; images stay on disk until they are used.

    Raises:
        DataError: the folder is missing, incomplete or not what its data card says.
    """
    path = Path(path)
    try:
        content = read_json(path / CARD)
        parts = {split: SplitCard(**content[split]) for split in SPLITS}
        card = DataCard(**{**content, **parts})
        splits = [_load_split(path, split, card) for split in SPLITS]
    except FileNotFoundError as error:
        raise DataError(f"{error.filename}: not found; `dvc repro prepare` makes it") from None
    except Exception as error:  # damaged headers of arrays make NumPy raise anything
        reason = " ".join(str(error).split())
        raise DataError(
            f"{path}: is no prepared set ({reason}); `dvc repro --force prepare` remakes it"
        ) from None
    return Prepared(splits[0], splits[1], card)


def write_prepared(
    path: Path,
    source: Source,
    train: ImageSet,
    test: ImageSet,
    *,
    image_size: int,
    channels: int,
    binarize: str,
    progress: Progress | None = None,
) -> DataCard:
    """Write both splits and the data card, all or nothing; the same input gives the same bytes.

    Images are read, fitted and written one by one.

    Raises:
        DataError: an image cannot be read, or a class or factor has a name that is not text.
    """
    done, total = 0, len(train) + len(test)
    _check_names(source)
    with replace_directory(path) as folder:
        for split, images in zip(SPLITS, (train, test), strict=True):
            shape = (len(images), channels, image_size, image_size)
            # Not memory-mapped: on a full disk that ends the process without a word.
            with (folder / f"{split}_images.npy").open("wb") as out:
                write_array_header_1_0(out, {"descr": "|u1", "fortran_order": False, "shape": shape})
                for index in range(len(images)):
                    picture = fitted(images.images[index], image_size, channels)
                    out.write((thresholded(picture) if binarize == "threshold" else picture).tobytes())
                    done += 1
                    if progress and (done % _CHUNK == 0 or done == total):
                        progress("images", done, total, source.name)
            for name, values in (("labels", images.labels), ("factors", images.factors)):
                if values is not None:
                    np.save(folder / f"{split}_{name}.npy", values.astype("<i8"))
        card = _describe(folder, source, binarize)
        write_json(folder / CARD, asdict(card))
    return card


def _check_names(source: Source) -> None:
    for name in (*(source.classes or ()), *(source.factors or ())):
        if not name.isascii() and any("\ud800" <= letter <= "\udfff" for letter in name):
            raise DataError(f"{source.name}: the class or factor {name!a} is not UTF-8 text; rename it")


def _describe(folder: Path, source: Source, binarize: str) -> DataCard:
    arrays = {file.stem: np.load(file, mmap_mode="r") for file in sorted(folder.glob("*.npy"))}
    parts, grey = {}, 0
    for split in SPLITS:
        images = arrays[f"{split}_images"]
        total = np.zeros(images.shape[1], dtype=np.int64)
        for start in range(0, len(images), _CHUNK):
            chunk = images[start : start + _CHUNK]
            total += chunk.sum(axis=(0, 2, 3), dtype=np.int64)
            grey += int(np.count_nonzero((chunk != 0) & (chunk != 255)))
        scale = 255 * (images.size // images.shape[1])
        parts[split] = SplitCard(
            count=len(images),
            channel_mean=[int(value) / scale for value in total],
            label_histogram=_histogram(arrays.get(f"{split}_labels"), source.classes),
        )
    pixels = sum(arrays[f"{split}_images"].size for split in SPLITS)
    return DataCard(
        source=source.name,
        image_shape=list(arrays["train_images"].shape[1:]),
        binarize=binarize,
        grey_pixels=grey / pixels,
        train=parts["train"],
        test=parts["test"],
        classes=list(source.classes) if source.classes else None,
        factors=list(source.factors) if source.factors else None,
        hash=_content_hash(arrays),
    )


def _histogram(labels: NDArray[np.int64] | None, classes: Sequence[str] | None) -> dict[str, int] | None:
    if labels is None or classes is None:
        return None
    counts = np.bincount(labels, minlength=len(classes))
    return {name: int(count) for name, count in zip(classes, counts, strict=True)}


def _content_hash(arrays: dict[str, NDArray[Any]]) -> str:
    """SHA-256 over name, type, shape and values of each array, by name."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(array.data.cast("B"))
    return digest.hexdigest()


def _drawn(split: Split, name: str) -> Split:
    import torch

    generator = fixed_generator(name)
    images = np.empty_like(split.images, subok=False)
    for start in range(0, len(images), _CHUNK):
        grey = torch.from_numpy(np.array(split.images[start : start + _CHUNK]))
        images[start : start + _CHUNK] = binarized(grey, generator).numpy()
    return replace(split, images=images)


def _load_split(path: Path, split: str, card: DataCard) -> Split:
    count = getattr(card, split).count
    images = np.load(path / f"{split}_images.npy", mmap_mode="r", allow_pickle=False)
    if images.dtype != np.uint8 or images.shape != (count, *card.image_shape):
        raise ValueError(f"{split}_images.npy is {images.dtype} {images.shape}, not as in {CARD}")
    labels = _load_known(path / f"{split}_labels.npy", (count,), bool(card.classes))
    factors = _load_known(path / f"{split}_factors.npy", (count, len(card.factors or ())), bool(card.factors))
    return Split(images, labels, factors)


def _load_known(file: Path, shape: tuple[int, ...], known: bool) -> NDArray[np.int64] | None:
    if not known:
        return None
    values: NDArray[np.int64] = np.load(file, allow_pickle=False)
    if values.dtype != np.int64 or values.shape != shape:
        raise ValueError(f"{file.name} is {values.dtype} {values.shape}, not as in {CARD}")
    return values
