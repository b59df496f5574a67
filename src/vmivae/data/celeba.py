"""CelebA (aligned and cropped), read by torchvision; its 40 attributes are the generative factors."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from vmivae.data.download import fetch
from vmivae.data.image_set import ImageSet, Source
from vmivae.data.pictures import Pictures
from vmivae.errors import DataError


def load_celeba(root: Path) -> Source:
    """CelebA: 162,770 + 19,962 photographs of faces, RGB, 178×218. Its validation part is unused."""
    from torchvision.datasets import CelebA

    folder = root / CelebA.base_folder
    archive, *lists = [file for _, _, file in CelebA.file_list]
    pictures = Path(archive).stem
    if not all((folder / name).exists() for name in (pictures, *lists)):
        fetch(
            "celeba",
            folder,
            [pictures, *lists],
            _get,
            f"put {', '.join(lists)} and the unpacked {pictures} there",
        )
    splits = []
    for split in ("train", "test"):
        try:
            found = CelebA(root, split)
        except Exception as error:  # torchvision's reader raises many kinds
            reason = " ".join(str(error).split())
            raise DataError(
                f"{folder}: one of {', '.join(lists)} is not the published file ({reason})"
            ) from None
        files = [folder / pictures / name for name in found.filename]
        splits.append(ImageSet(Pictures(files), factors=found.attr.numpy().astype(np.int64)))
    # The list of attributes ends in a blank, which torchvision reads as one more name.
    names = tuple(name for name in found.attr_names if name)
    return Source("celeba", splits[0], splits[1], channels=3, factors=names)


def _get(folder: Path) -> None:
    from torchvision.datasets import CelebA

    CelebA(folder, download=True)
    for file in (folder / CelebA.base_folder).iterdir():
        file.rename(folder / file.name)
