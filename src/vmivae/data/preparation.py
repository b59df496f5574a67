"""From any source to the prepared set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vmivae.data.celeba import load_celeba
from vmivae.data.cifar10 import load_cifar10
from vmivae.data.dsprites import load_dsprites
from vmivae.data.embedded import load_digits, load_mnist5k
from vmivae.data.folder import load_folder
from vmivae.data.idx_sets import load_emnist, load_fashion_mnist, load_kmnist, load_mnist
from vmivae.data.image_set import ImageSet, Source
from vmivae.data.npz import load_npz
from vmivae.data.prepared import CARD, DataCard, write_prepared
from vmivae.data.sprites import SpriteGrid, load_sprites
from vmivae.data.svhn import load_svhn
from vmivae.errors import DataError, ParameterError
from vmivae.progress import Progress

TEST_FRACTION = 0.1
SPLIT_SEED = 0

# These sets are found by their folder alone.
_LOADERS: dict[str, Callable[[Path], Source]] = {
    "mnist5k": lambda root: load_mnist5k(),
    "digits": lambda root: load_digits(),
    "mnist": load_mnist,
    "fashion_mnist": load_fashion_mnist,
    "kmnist": load_kmnist,
    "svhn": load_svhn,
    "cifar10": load_cifar10,
    "celeba": load_celeba,
    "dsprites": load_dsprites,
    "folder": load_folder,
    "npz": load_npz,
}
_CHANNELS = {"grey": 1, "rgb": 3}


def prepare(
    out: str | Path,
    *,
    source: str,
    root: str | Path = "data/raw",
    image_size: int = 32,
    channels: str = "auto",
    binarize: str = "none",
    test_fraction: float = TEST_FRACTION,
    split_seed: int = SPLIT_SEED,
    split: str | None = None,
    sprites: Mapping[str, int | None] | None = None,
    progress: Progress | None = None,
) -> DataCard:
    """Make the prepared set of a source in the folder `out`; an earlier one there is replaced.

    The arguments are those of `data` in params.yaml. The same files and arguments give the same bytes. Files
    below `root` are read, never changed; a set that is absent is downloaded there.

    Args:
        out: folder of the prepared set.
        source: "mnist5k", "digits", "mnist", "fashion_mnist", "kmnist", "emnist", "svhn", "cifar10",
            "celeba", "sprites", "dsprites", "folder" or "npz".
        root: the folder (for npz also the file) that holds the set.
        image_size: height and width in pixels.
        channels: "auto" (what the set has), "grey" or "rgb".
        binarize: "none"; "threshold": pixels become 0 or 255; "dynamic": they stay grey here and are drawn
            where they are used (`vmivae.data.binarized`).
        test_fraction: share of the test images, for sets without a split of their own.
        split_seed: seed of that split.
        split: which EMNIST ("balanced", "byclass", "bymerge", "letters", "digits" or "mnist").
        sprites: which sprites, by the names of `vmivae.data.sprites.SpriteGrid`; without them all 737,280.

    Raises:
        DataError: files are missing, malformed or disagree. One line that names the file.
        ParameterError: an argument has no effect with this source, or `root` lies in `out`.
    """
    out, root = Path(out), Path(root)
    _check_replaceable(out, root)
    found = _load(source, root, split, SpriteGrid(**(sprites or {})))  # type: ignore[arg-type]
    if found.test is None:
        train, test = _drawn_split(found, test_fraction, split_seed)
    else:
        _refuse_without_effect(source, "test_fraction", test_fraction, TEST_FRACTION)
        _refuse_without_effect(source, "split_seed", split_seed, SPLIT_SEED)
        train, test = found.train, found.test
    return write_prepared(
        out,
        found,
        train,
        test,
        image_size=image_size,
        channels=_CHANNELS.get(channels, found.channels),
        binarize=binarize,
        progress=progress,
    )


def _load(source: str, root: Path, split: str | None, grid: SpriteGrid) -> Source:
    if source == "sprites":
        return load_sprites(grid)
    if source == "emnist":
        if split is None:
            raise ParameterError(
                "data.split: must name one of EMNIST's splits with data.source: emnist, got null"
            )
        return load_emnist(root, split)
    return _LOADERS[source](root)


def _check_replaceable(out: Path, root: Path) -> None:
    """Nothing but an earlier prepared set is ever replaced."""
    if root.resolve().is_relative_to(out.resolve()):
        raise ParameterError(f"data.root: must lie outside {out}, which is replaced, got {root}")
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise DataError(f"{out}: is no folder; move it away so that the prepared set can be written there")
    if out.exists() and any(out.iterdir()) and not (out / CARD).exists():
        raise DataError(
            f"{out}: holds files other than a prepared set; move them away, they would be replaced"
        )


def _refuse_without_effect(source: str, key: str, value: float, default: float) -> None:
    if value != default:
        raise ParameterError(
            f"data.{key}: has no effect, {source} has a test split of its own here; "
            f"leave it at {default}, got {value}"
        )


def _drawn_split(source: Source, fraction: float, seed: int) -> tuple[ImageSet, ImageSet]:
    """Split at random by `seed`; in proportion to the classes where each has enough images for that."""
    from sklearn.model_selection import train_test_split

    count = len(source.train)
    wanted = max(1, round(fraction * count))
    if wanted >= count:
        raise DataError(
            f"{source.name}: {count} images cannot be split with data.test_fraction: {fraction}; "
            "both splits need at least one"
        )
    labels = source.train.labels
    train, test = train_test_split(
        np.arange(count),
        test_size=wanted,
        random_state=seed,
        stratify=labels if _can_stratify(labels, wanted) else None,
    )
    return source.train.select(train), source.train.select(test)


def _can_stratify(labels: NDArray[np.int64] | None, wanted: int) -> bool:
    if labels is None:
        return False
    _, counts = np.unique(labels, return_counts=True)
    return bool(counts.min() >= 2 and min(wanted, len(labels) - wanted) >= len(counts))
