"""IDX files, the format of MNIST and its successors: uint8 arrays behind a header of big-endian lengths."""

from __future__ import annotations

import gzip
import math
import zlib
from io import BufferedIOBase
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vmivae.data.limits import MAX_ARRAY_BYTES
from vmivae.errors import DataError

_GZIP = b"\x1f\x8b"
_UINT8 = 0x08
# Deflate cannot expand its input further than this (zlib's technical details).
_MOST_EXPANSION = 1032


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Read a uint8 IDX file, gzipped or not (told by its content, not its name).

    No more than the declared size is ever read into memory.

    Args:
        path: the file.
        dimensions: how many the array must have: 3 for images `(N, H, W)`, 1 for labels `(N,)`.

    Raises:
        DataError: the file is unreadable, has another magic number, declares no or too much content, is
            truncated, or goes on after its end.
    """
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == _GZIP
            most = path.stat().st_size * (_MOST_EXPANSION if zipped else 1)
            file.seek(0)
            if zipped:
                with gzip.GzipFile(fileobj=file) as content:
                    return _read(path, content, dimensions, most)
            return _read(path, file, dimensions, most)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: is a truncated or damaged gzip file ({error})") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None


def _read(path: Path, file: BufferedIOBase, dimensions: int, most: int) -> NDArray[np.uint8]:
    header = file.read(4 * (1 + dimensions))
    if not header:
        raise DataError(f"{path}: is empty")
    magic, expected = header[:4].hex(), f"{_UINT8 << 8 | dimensions:08x}"
    if magic != expected:
        raise DataError(
            f"{path}: magic number must be 0x{expected} (IDX, uint8, {dimensions}-d), got 0x{magic}"
        )
    shape = tuple(int(length) for length in np.frombuffer(header[4 : len(header) // 4 * 4], dtype=">u4"))
    if len(shape) < dimensions:
        raise DataError(f"{path}: is truncated inside its header")
    size = math.prod(shape)
    declared = f"declares {'×'.join(map(str, shape))} = {size} bytes"
    if size == 0:
        raise DataError(f"{path}: is empty, it {declared}")
    if size > MAX_ARRAY_BYTES:
        raise DataError(f"{path}: {declared}, more than the {MAX_ARRAY_BYTES} that are accepted")
    if size > most:
        raise DataError(f"{path}: is truncated, it {declared} but cannot hold more than {most}")
    content = file.read(size)
    if len(content) < size:
        raise DataError(f"{path}: is truncated, it {declared} but holds {len(content)}")
    if file.read(1):
        raise DataError(f"{path}: has trailing bytes, it {declared} but goes on after them")
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)
