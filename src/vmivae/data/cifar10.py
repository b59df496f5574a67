"""CIFAR-10 in its binary version.

torchvision reads the Python version, a set of pickles, and unpickling runs whatever code a file contains.
The binary version, from the same page, holds the same images as plain bytes.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vmivae.data.download import fetch, from_mirrors
from vmivae.data.image_set import ImageSet, Source
from vmivae.data.limits import MAX_ARRAY_BYTES
from vmivae.errors import DataError

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
_ARCHIVE = "cifar-10-binary.tar.gz"
_FOLDER = "cifar-10-batches-bin"
_TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
_TEST = ("test_batch.bin",)
_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_RECORD = 1 + 3 * 32 * 32
# Twice what the largest file in the archive has, and twice as many files.
_MEMBER_BYTES = 2 * 10_000 * _RECORD
_MEMBERS = 16


def load_cifar10(root: Path) -> Source:
    """CIFAR-10: 50,000 + 10,000 photographs, RGB, 32×32.

    The six `.bin` files are looked for in `root` and in its folder `cifar-10-batches-bin`, then inside
    `cifar-10-binary.tar.gz`.
    """
    files = (*_TRAIN, *_TEST)
    for folder in (root, root / _FOLDER):
        if all((folder / file).is_file() for file in files):
            return _source({file: (folder / file, _read_file(folder / file)) for file in files})
    archive = root / _ARCHIVE
    if not archive.is_file():
        pickled = (
            "; the Python version that is there is not read: it is made of pickles"
            if (root / "cifar-10-batches-py").exists() or (root / "cifar-10-python.tar.gz").exists()
            else ""
        )
        advice = f"put the binary version, {_ARCHIVE} or its {', '.join(files)}, there{pickled}"
        fetch("cifar10", root, [_ARCHIVE], lambda place: from_mirrors([URL], place, MD5), advice)
    return _source(_read_archive(archive, files))


def _source(content: dict[str, tuple[Path, bytes]]) -> Source:
    train, test = (_image_set([content[file] for file in files]) for files in (_TRAIN, _TEST))
    return Source("cifar10", train, test, channels=3, classes=_CLASSES)


def _read_file(path: Path) -> bytes:
    if path.stat().st_size > MAX_ARRAY_BYTES:
        raise DataError(f"{path}: is larger than the {MAX_ARRAY_BYTES} bytes that are accepted")
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None


def _read_archive(path: Path, files: Sequence[str]) -> dict[str, tuple[Path, bytes]]:
    content = {}
    try:
        with _Bounded(path) as unzipped, tarfile.open(fileobj=unzipped, mode="r:") as archive:
            for number, member in enumerate(iter(archive.next, None), start=1):
                if number > _MEMBERS or member.size > _MEMBER_BYTES:
                    raise ValueError(f"{_MEMBERS} files of {_MEMBER_BYTES} bytes are accepted")
                file = Path(member.name).name
                if file in files and member.isfile():
                    content[file] = (path / file, archive.extractfile(member).read())  # type: ignore[union-attr]
    except (OSError, EOFError, ValueError, tarfile.TarError, zlib.error) as error:
        raise DataError(f"{path}: is a truncated or damaged archive ({error})") from None
    absent = [file for file in files if file not in content]
    if absent:
        raise DataError(f"{path}: does not contain {', '.join(absent)}")
    return content


class _Bounded(gzip.GzipFile):
    """A gzip file of which no more than an archive's file is read at once, whatever tar headers declare."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= _MEMBER_BYTES:
            raise ValueError(f"at most {_MEMBER_BYTES} bytes are read at once")
        return super().read(size)


def _image_set(batches: Sequence[tuple[Path, bytes]]) -> ImageSet:
    records = np.concatenate([_records(path, content) for path, content in batches])
    images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return ImageSet(images, records[:, 0].astype(np.int64))


def _records(path: Path, content: bytes) -> NDArray[np.uint8]:
    if not content or len(content) % _RECORD:
        raise DataError(
            f"{path}: is truncated or no CIFAR-10 file, "
            f"its {len(content)} bytes are not whole records of {_RECORD}"
        )
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, _RECORD)
    if records[:, 0].max() >= len(_CLASSES):
        raise DataError(f"{path}: labels must be 0 to {len(_CLASSES) - 1}, got {records[:, 0].max()}")
    return records
