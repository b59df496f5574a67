"""A folder of pictures: flat, or one sub-folder per class, with or without `train` and `test`."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from vmivae.data.image_set import ImageSet, Source
from vmivae.data.pictures import SUFFIXES, Pictures, picture_channels
from vmivae.errors import DataError

_SPLITS = ("train", "test")
_UNLABELLED = ""


def load_folder(root: Path) -> Source:
    """Pictures below `root`, of any size and mode; RGB when any of them is in colour.

    - Pictures in `root` itself: no labels.
    - Sub-folders: each is a class, numbered in the order of their names; pictures may lie deeper.
    - `train` and `test`: the set's own split, each of them laid out in one of the two ways above.

    Hidden files, and files whose suffix is no picture's, are passed over.

    Raises:
        DataError: no picture, a class without any, pictures beside class folders, splits whose classes
            disagree, a link that leads out of `root`, or a picture that is corrupt.
    """
    if not root.is_dir():
        raise DataError(
            f"{root}: is no folder; with data.source: folder, data.root names the folder of pictures"
        )
    files, folders = _listed(root, root)
    names = [folder.name for folder in folders]
    if names in (["train"], ["test"]):
        raise DataError(
            f"{root}: has the folder {names[0]} alone; a split of its own needs both train and test"
        )
    if not set(_SPLITS) <= set(names):
        layout = _layout(root, root)
        classes = _classes(layout)
        channels = _channels([layout])
        return Source("folder", _image_set(layout, classes), None, channels=channels, classes=classes)
    beside = [path.name for path in (*folders, *files) if path.name not in _SPLITS]
    if beside:
        raise DataError(f"{root / beside[0]}: belongs to neither train nor test, the folders beside it")
    train, test = (_layout(root / split, root) for split in _SPLITS)
    classes = _classes(train)
    for name in test:
        if name not in train:
            raise DataError(
                f"{root / 'test' / name}: is not among the classes of {root / 'train'}, "
                f"{', '.join(classes or ['none'])}"
            )
    return Source(
        "folder",
        _image_set(train, classes),
        _image_set(test, classes),
        channels=_channels([train, test]),
        classes=classes,
    )


def _layout(folder: Path, root: Path) -> dict[str, list[Path]]:
    """The pictures of each class, or all of them under no name."""
    files, folders = _listed(folder, root)
    if files and folders:
        raise DataError(
            f"{folder}: has pictures ({files[0].name}) beside folders ({folders[0].name}); "
            "put every picture into a class folder, or none"
        )
    layout = {path.name: _pictures_below(path, root) for path in folders} if folders else {_UNLABELLED: files}
    for name, pictures in layout.items():
        if not pictures:
            raise DataError(f"{folder / name}: has no pictures ({', '.join(SUFFIXES)})")
    return layout


def _pictures_below(folder: Path, root: Path) -> list[Path]:
    found, waiting = [], [folder]
    while waiting:
        files, folders = _listed(waiting.pop(), root)
        found += files
        waiting += reversed(folders)
    return found


def _listed(folder: Path, root: Path) -> tuple[list[Path], list[Path]]:
    """Pictures and folders in `folder`, by name; hidden ones left out, links out of `root` refused."""
    files, folders = [], []
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror})") from None
    for path in (folder / name for name in names if not name.startswith(".")):
        picture = path.suffix.lower() in SUFFIXES
        if path.is_symlink() and (picture or path.is_dir()):
            _check_link(path, root)
        if path.is_dir():
            folders.append(path)
        elif picture:
            files.append(path)
    return files, folders


def _check_link(path: Path, root: Path) -> None:
    target = Path(os.path.realpath(path))
    if not target.is_relative_to(root.resolve()):
        raise DataError(f"{path}: is a link that leads out of {root}; put the picture itself there")
    if not target.is_file():
        raise DataError(f"{path}: is a link to a folder or to nothing; put the pictures themselves there")


def _classes(layout: dict[str, list[Path]]) -> tuple[str, ...] | None:
    return None if _UNLABELLED in layout else tuple(layout)


def _channels(layouts: list[dict[str, list[Path]]]) -> int:
    return max(
        picture_channels(path) for layout in layouts for pictures in layout.values() for path in pictures
    )


def _image_set(layout: dict[str, list[Path]], classes: tuple[str, ...] | None) -> ImageSet:
    files = [path for pictures in layout.values() for path in pictures]
    if classes is None:
        return ImageSet(Pictures(files))
    labels = [classes.index(name) for name, pictures in layout.items() for _ in pictures]
    return ImageSet(Pictures(files), np.array(labels, dtype=np.int64))
