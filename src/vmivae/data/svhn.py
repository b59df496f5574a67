"""Street View House Numbers, cropped to 32×32, read by torchvision (MATLAB files, through SciPy)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from vmivae.data.download import fetch, from_mirrors
from vmivae.data.image_set import ImageSet, Source
from vmivae.errors import DataError


def load_svhn(root: Path) -> Source:
    """SVHN: 73,257 + 26,032 digits, RGB, 32×32."""
    from torchvision.datasets import SVHN

    splits = []
    for split in ("train", "test"):
        _, file, md5 = SVHN.split_list[split]
        if not (root / file).is_file():
            fetch("svhn", root, [file], partial(_get, split), f"put {file} there")
        try:
            found = SVHN(root, split)
        except Exception as error:  # torchvision's and SciPy's readers raise many kinds
            reason = " ".join(str(error).split())
            raise DataError(
                f"{root / file}: is not the published file with MD5 {md5} ({reason}); "
                "remove it to download it anew"
            ) from None
        splits.append(ImageSet(found.data.transpose(0, 2, 3, 1), found.labels))
    return Source("svhn", splits[0], splits[1], channels=3, classes=tuple("0123456789"))


def _get(split: str, folder: Path) -> None:
    from torchvision.datasets import SVHN

    url, _, md5 = SVHN.split_list[split]
    from_mirrors([url], folder, md5)
