"""CIFAR-10, SVHN and CelebA, from small files in their own formats."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from small_files import random_images, write_picture

from vmivae.data import prepare
from vmivae.data.celeba import load_celeba
from vmivae.data.cifar10 import load_cifar10
from vmivae.data.svhn import load_svhn


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


@pytest.mark.parametrize("place", [".", "cifar-10-batches-bin", "cifar-10-binary.tar.gz"])
def test_cifar10_from_its_binary_version(place: str, tmp_path: Path) -> None:
    images, labels = random_images(12, 3, 32, 32), np.arange(12, dtype=np.uint8) % 10
    records = np.concatenate([labels[:, None], images.reshape(12, -1)], axis=1)
    folder = tmp_path / "files" if place.endswith("gz") else tmp_path / place
    folder.mkdir(exist_ok=True)
    for number in range(1, 6):
        (folder / f"data_batch_{number}.bin").write_bytes(records[2 * (number - 1) : 2 * number].tobytes())
    (folder / "test_batch.bin").write_bytes(records[10:].tobytes())
    if place.endswith("gz"):
        with tarfile.open(tmp_path / place, "w:gz") as archive:
            archive.add(folder, "cifar-10-batches-bin")
    source = load_cifar10(tmp_path)
    assert source.test is not None
    assert (len(source.train), len(source.test), source.channels) == (10, 2, 3)
    np.testing.assert_array_equal(source.train.images[5], images[5].transpose(1, 2, 0))
    np.testing.assert_array_equal(source.test.labels, labels[10:])
    assert source.classes is not None
    assert source.classes[3] == "cat"


def test_svhn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision.datasets import SVHN

    images = random_images(10, 32, 32, 3)
    published = {}
    for split in ("train", "test"):
        path = tmp_path / f"{split}_32x32.mat"
        scipy.io.savemat(path, {"X": images.transpose(1, 2, 3, 0), "y": np.arange(1, 11)[:, None]})
        published[split] = ["http://nowhere.invalid/", path.name, md5(path)]
    monkeypatch.setattr(SVHN, "split_list", published)
    source = load_svhn(tmp_path)
    np.testing.assert_array_equal(source.train.images[4], images[4])
    np.testing.assert_array_equal(source.train.labels, [1, 2, 3, 4, 5, 6, 7, 8, 9, 0])


def test_celeba_has_its_attributes_as_factors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision.datasets import CelebA

    folder = tmp_path / "celeba"
    names = [f"{number:06}.jpg" for number in range(6)]
    for number, name in enumerate(names):
        write_picture(folder / "img_align_celeba" / name, size=(20, 26), seed=number)
    rows = {
        "list_attr_celeba.txt": ["6", "Bald Smiling "] + [f"{name}  1 -1" for name in names],
        "identity_CelebA.txt": [f"{name} 7" for name in names],
        "list_bbox_celeba.txt": ["6", "image_id x_1 y_1 width height"]
        + [f"{name} 1 2 3 4" for name in names],
        "list_landmarks_align_celeba.txt": ["6", "a b"] + [f"{name} 1 2" for name in names],
        "list_eval_partition.txt": [
            f"{name} {part}" for name, part in zip(names, (0, 0, 0, 1, 2, 2), strict=True)
        ],
    }
    for file, lines in rows.items():
        (folder / file).write_text("\n".join(lines) + "\n")
    published = [("", "", "img_align_celeba.zip")] + [("", md5(folder / file), file) for file in rows]
    monkeypatch.setattr(CelebA, "file_list", published)
    source = load_celeba(tmp_path)
    assert source.test is not None
    assert (len(source.train), len(source.test), source.classes) == (3, 2, None)
    assert source.factors == ("Bald", "Smiling")
    np.testing.assert_array_equal(source.test.factors, [[1, 0], [1, 0]])
    card = prepare(tmp_path / "out", source="celeba", root=tmp_path, image_size=16)
    assert (card.image_shape, card.factors, card.classes) == ([3, 16, 16], ["Bald", "Smiling"], None)
