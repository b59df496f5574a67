import json
from pathlib import Path

import numpy as np
import pytest
from small_files import random_images

from vmivae.data import Split, load_prepared, prepare
from vmivae.errors import DataError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.savez(tmp_path / "a.npz", images=random_images(10, 8, 8), labels=np.arange(10) % 2)
    prepare(tmp_path / "prepared", source="npz", root=tmp_path / "a.npz", image_size=8)
    return tmp_path / "prepared"


def test_images_are_mapped_read_only(folder: Path) -> None:
    prepared = load_prepared(folder)
    assert isinstance(prepared.train.images, np.memmap)
    assert not prepared.train.images.flags.writeable
    assert len(prepared.train) == 9
    assert prepared.train.factors is None
    assert prepared.card.classes == ["0", "1"]


def test_a_missing_set_says_what_makes_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data_card\.json: not found; `dvc repro prepare` makes it"):
        load_prepared(tmp_path)


def damage_card(folder: Path) -> None:
    (folder / "data_card.json").write_text("{")


def drop_key(folder: Path) -> None:
    card = json.loads((folder / "data_card.json").read_text())
    del card["train"]
    (folder / "data_card.json").write_text(json.dumps(card))


def shorten(folder: Path) -> None:
    np.save(folder / "test_images.npy", np.load(folder / "test_images.npy")[:0])


def objects(folder: Path) -> None:
    np.save(folder / "test_labels.npy", np.array([None], dtype=object))


def truncate(folder: Path) -> None:
    path = folder / "train_images.npy"
    path.write_bytes(path.read_bytes()[:-8])


@pytest.mark.parametrize("damage", [damage_card, drop_key, shorten, objects, truncate])
def test_a_damaged_set_is_refused(damage: object, folder: Path) -> None:
    damage(folder)  # type: ignore[operator]
    with pytest.raises(DataError, match="is no prepared set") as caught:
        load_prepared(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("file", ["train_images.npy", "test_labels.npy"])
def test_a_missing_array_is_named(file: str, folder: Path) -> None:
    (folder / file).unlink()
    with pytest.raises(DataError, match=f"{file}: not found"):
        load_prepared(folder)


@pytest.mark.parametrize("budget", [0, 2**30])
def test_tensor_holds_the_images_whether_they_fit_or_not(tmp_path, monkeypatch, budget):
    images = np.arange(2 * 3 * 16, dtype=np.uint8).reshape(2, 3, 4, 4)
    np.save(tmp_path / "images.npy", images)
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    monkeypatch.setattr("vmivae.data.prepared.RESIDENT_BYTES", budget)
    tensor = Split(mapped, None, None).tensor()
    np.testing.assert_array_equal(tensor.numpy(), images)
    assert np.shares_memory(tensor.numpy(), mapped) == (budget == 0)
