"""The baseline's images: files as torchvision reads them, a `DataLoader` with `ToTensor` and workers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


def write_dataset(images: NDArray[np.uint8], folder: Path) -> None:
    """Write `(N, C, H, W)` images as torchvision reads them: MNIST's files if grey, else a folder of PNGs."""
    if images.shape[1] == 1:
        raw = folder / "MNIST" / "raw"
        raw.mkdir(parents=True)
        for split in ("train", "t10k"):
            sizes = np.array(images[:, 0].shape, dtype=">i4").tobytes()
            (raw / f"{split}-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03" + sizes + images.tobytes())
            labels = b"\0\0\x08\x01" + sizes[:4] + bytes(len(images))
            (raw / f"{split}-labels-idx1-ubyte").write_bytes(labels)
        return
    (folder / "pictures").mkdir(parents=True)
    for number, image in enumerate(images):
        Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0))).save(
            folder / "pictures" / f"{number:06}.png"
        )


def read_dataset(folder: Path, batch_size: int, workers: int) -> DataLoader[tuple[Tensor, Tensor]]:
    """The loader of what `write_dataset` wrote: shuffled, full batches, workers that stay between epochs."""
    transform = transforms.ToTensor()
    grey = (folder / "MNIST").exists()
    dataset = (
        datasets.MNIST(folder, transform=transform)
        if grey
        else datasets.ImageFolder(folder, transform=transform)
    )
    return DataLoader(
        dataset,
        batch_size=batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        # The default on Linux up to Python 3.13, but not in a process that was itself spawned.
        multiprocessing_context="fork" if workers else None,
    )
