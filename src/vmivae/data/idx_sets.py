"""MNIST and the sets published in its format: Fashion-MNIST, Kuzushiji-MNIST, EMNIST.

The files are read where they lie. Only a download needs torchvision, for its addresses and checksums.
"""

from __future__ import annotations

import string
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vmivae.data.download import fetch, from_mirrors
from vmivae.data.idx import read_idx
from vmivae.data.image_set import ImageSet, Source
from vmivae.errors import DataError

_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_CLOTHES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
_KANA = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")
# The lower-case letters that `bymerge` and `balanced` keep apart from their capitals.
_MERGED = string.digits + string.ascii_uppercase + "abdefghnqrt"
_EMNIST_CLASSES = {
    "byclass": string.digits + string.ascii_uppercase + string.ascii_lowercase,
    "bymerge": _MERGED,
    "balanced": _MERGED,
    "letters": string.ascii_lowercase,
    "digits": string.digits,
    "mnist": string.digits,
}


def load_mnist(root: Path) -> Source:
    """MNIST: 60,000 + 10,000 digits, 28×28."""
    return _load("mnist", root, "MNIST", _FILES, tuple(string.digits), _get_files)


def load_fashion_mnist(root: Path) -> Source:
    """Fashion-MNIST: 60,000 + 10,000 articles of clothing, 28×28."""
    return _load("fashion_mnist", root, "FashionMNIST", _FILES, _CLOTHES, _get_files)


def load_kmnist(root: Path) -> Source:
    """Kuzushiji-MNIST: 60,000 + 10,000 cursive Japanese characters, 28×28."""
    return _load("kmnist", root, "KMNIST", _FILES, _KANA, _get_files)


def load_emnist(root: Path, split: str) -> Source:
    """EMNIST: handwritten digits and letters, 28×28, upright, in one of its six splits."""
    files = [
        f"emnist-{split}-{part}-{kind}"
        for part in ("train", "test")
        for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
    ]
    # EMNIST's files hold columns where MNIST's hold rows, and number the letters from 1.
    return _load(
        f"emnist/{split}",
        root,
        "EMNIST",
        files,
        tuple(_EMNIST_CLASSES[split]),
        _get_emnist,
        by_columns=True,
        first_label=1 if split == "letters" else 0,
    )


def _load(
    name: str,
    root: Path,
    dataset: str,
    files: Sequence[str],
    classes: tuple[str, ...],
    get: Callable[[str, Sequence[str], Path], None],
    *,
    by_columns: bool = False,
    first_label: int = 0,
) -> Source:
    raw = root / dataset / "raw"
    places = (root, raw)
    paths = _find(files, places)
    if paths is None:
        absent = ", ".join(file for file in files if not _find([file], places))
        advice = (
            f"put {absent} (as they are or as .gz) there, or set data.root to the folder that holds all four"
        )
        fetch(name, raw, [f"{file}.gz" for file in files], lambda place: get(dataset, files, place), advice)
        paths = _find(files, places) or []
    splits = []
    for images_file, labels_file in (paths[:2], paths[2:]):
        images, labels = read_idx(images_file, 3), read_idx(labels_file, 1)
        if len(images) != len(labels):
            raise DataError(
                f"{labels_file}: has {len(labels)} labels, but {images_file} has {len(images)} images"
            )
        numbers = _numbered(labels, labels_file, len(classes), first_label)
        splits.append(ImageSet(images.transpose(0, 2, 1) if by_columns else images, numbers))
    return Source(name, splits[0], splits[1], channels=1, classes=classes)


def _find(files: Sequence[str], places: Sequence[Path]) -> list[Path] | None:
    """The files in the first place that has all of them, plain or gzipped."""
    for place in places:
        forms = [[path for path in (place / file, place / f"{file}.gz") if path.is_file()] for file in files]
        if all(forms):
            return [form[0] for form in forms]
    return None


def _numbered(labels: NDArray[np.uint8], file: Path, classes: int, first: int) -> NDArray[np.int64]:
    """Labels as class numbers from 0."""
    numbers = labels.astype(np.int64) - first
    wrong = np.flatnonzero((numbers < 0) | (numbers >= classes))
    if len(wrong):
        raise DataError(
            f"{file}: labels must lie in {first} to {first + classes - 1}, "
            f"got {labels[wrong[0]]} for image {wrong[0]}"
        )
    return numbers


def _get_files(dataset: str, files: Sequence[str], folder: Path) -> None:
    from torchvision import datasets

    published = getattr(datasets, dataset)
    for file, md5 in published.resources:
        from_mirrors([mirror + file for mirror in published.mirrors], folder, md5)


def _get_emnist(dataset: str, files: Sequence[str], folder: Path) -> None:
    from torchvision.datasets import EMNIST

    from_mirrors([EMNIST.url], folder, EMNIST.md5)
    with zipfile.ZipFile(folder / Path(EMNIST.url).name) as archive:
        for file in files:
            (folder / f"{file}.gz").write_bytes(archive.read(f"gzip/{file}.gz"))
