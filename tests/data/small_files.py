"""Small image sets in every format, for tests."""

from __future__ import annotations

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
from PIL import Image


def random_images(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def idx_bytes(array: np.ndarray) -> bytes:
    header = struct.pack(f">HBB{array.ndim}I", 0, 0x08, array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


def write_idx_set(
    folder: Path, *, zipped: bool = False, train: int = 20, test: int = 10
) -> dict[str, np.ndarray]:
    """The four files of MNIST with few images; labels count 0 … 9 over and over."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {}
    for split, count, seed in (("train", train, 1), ("t10k", test, 2)):
        arrays[f"{split}-images-idx3-ubyte"] = random_images(count, 28, 28, seed=seed)
        arrays[f"{split}-labels-idx1-ubyte"] = np.arange(count) % 10
    for name, array in arrays.items():
        content = idx_bytes(array)
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    return arrays


def write_picture(path: Path, *, size: tuple[int, int] = (40, 36), mode: str = "RGB", seed: int = 0) -> None:
    """A picture of random pixels, `size` as (width, height)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = random_images(size[1], size[0], 4, seed=seed)
    Image.fromarray(pixels).convert("RGB").convert(mode).save(path)


def write_class_folders(root: Path, *, each: int = 4, mode: str = "RGB") -> None:
    for label, name in enumerate(("cat", "ant", "bee")):
        for number in range(each):
            write_picture(root / name / f"{number}.png", mode=mode, seed=10 * label + number)


def fingerprint(root: Path) -> dict[str, tuple[str, int]]:
    """Content and time of change of every file below `root`."""
    return {
        str(path.relative_to(root)): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
