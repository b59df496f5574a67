from pathlib import Path

import numpy as np
import pytest
from small_files import random_images

from vmivae.data.npz import load_npz

GREY = random_images(6, 8, 9)
COLOUR = random_images(6, 8, 9, 3)


def saved(tmp_path: Path, **arrays: np.ndarray) -> Path:
    np.savez_compressed(tmp_path / "mine.npz", **arrays)
    return tmp_path


@pytest.mark.parametrize(
    ("images", "expected", "channels"),
    [
        (GREY, GREY, 1),
        (GREY[:, None], GREY, 1),
        (GREY[..., None], GREY, 1),
        (COLOUR, COLOUR, 3),
        (COLOUR.transpose(0, 3, 1, 2), COLOUR, 3),
        (np.asfortranarray(GREY), GREY, 1),
    ],
    ids=["NHW", "N1HW", "NHW1", "NHW3", "N3HW", "Fortran order"],
)
def test_every_layout(images: np.ndarray, expected: np.ndarray, channels: int, tmp_path: Path) -> None:
    source = load_npz(saved(tmp_path, images=images))
    np.testing.assert_array_equal(source.train.images, expected)
    assert (source.channels, source.test, source.classes) == (channels, None, None)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4"])
def test_floating_point_is_rounded_to_the_nearest_level(dtype: object, tmp_path: Path) -> None:
    levels = np.arange(256).reshape(1, 16, 16).repeat(2, axis=0)
    source = load_npz(saved(tmp_path, images=(levels / 255).astype(dtype)))
    np.testing.assert_array_equal(source.train.images, levels)


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8])
def test_zeros_and_ones_are_black_and_white(dtype: type, tmp_path: Path) -> None:
    bits = GREY > 127
    source = load_npz(saved(tmp_path, images=bits.astype(dtype)))
    np.testing.assert_array_equal(source.train.images, bits * 255)


def test_a_dark_split_beside_a_bright_one_is_not_scaled(tmp_path: Path) -> None:
    source = load_npz(saved(tmp_path, train_images=GREY, test_images=GREY % 2))
    assert source.test is not None
    np.testing.assert_array_equal(source.test.images, GREY % 2)


@pytest.mark.parametrize(
    ("labels", "numbers", "classes"),
    [
        ([5, 3, 3, 10, 5, 3], [1, 0, 0, 2, 1, 0], ("3", "5", "10")),
        ([-1, 1, -1, 1, 1, 1], [0, 1, 0, 1, 1, 1], ("-1", "1")),
        (["b", "a", "b", "b", "a", "a"], [1, 0, 1, 1, 0, 0], ("a", "b")),
        ([b"b", b"a", b"b", b"b", b"a", b"a"], [1, 0, 1, 1, 0, 0], ("a", "b")),
    ],
)
def test_labels_become_class_numbers(
    labels: list[object], numbers: list[int], classes: tuple[str, ...], tmp_path: Path
) -> None:
    source = load_npz(saved(tmp_path, images=GREY, labels=np.array(labels)))
    np.testing.assert_array_equal(source.train.labels, numbers)
    assert source.classes == classes


@pytest.mark.parametrize("form", ["{split}_{part}", "{part}_{split}"])
@pytest.mark.parametrize(("images", "labels"), [("images", "labels"), ("x", "y")])
def test_own_split_numbers_classes_over_both_splits(
    form: str, images: str, labels: str, tmp_path: Path
) -> None:
    arrays = {
        form.format(split="train", part=images): GREY,
        form.format(split="test", part=images): GREY[:2],
        form.format(split="train", part=labels): np.array([0, 2, 4, 0, 2, 4]),
        form.format(split="test", part=labels): np.array([3, 4]),
    }
    source = load_npz(saved(tmp_path, **arrays))
    assert source.test is not None
    assert source.classes == ("0", "2", "3", "4")
    np.testing.assert_array_equal(source.train.labels, [0, 1, 3, 0, 1, 3])
    np.testing.assert_array_equal(source.test.labels, [2, 3])


def test_the_file_of_dsprites(tmp_path: Path) -> None:
    """Its own names, binary pixels, and an object array that is never opened."""
    arrays = {
        "imgs": (GREY > 127).astype(np.uint8),
        "latents_classes": np.arange(12).reshape(6, 2),
        "latents_values": np.zeros((6, 2)),
        "metadata": np.array({"title": "sprites"}, dtype=object),
    }
    source = load_npz(saved(tmp_path, **arrays) / "mine.npz")
    np.testing.assert_array_equal(source.train.factors, arrays["latents_classes"])
    assert source.factors == ("factor 0", "factor 1")
    assert set(np.unique(source.train.images)) == {0, 255}


def test_factor_names(tmp_path: Path) -> None:
    source = load_npz(
        saved(
            tmp_path, images=GREY, factors=np.zeros((6, 2), np.int8), factor_names=np.array(["size", "hue"])
        )
    )
    assert source.factors == ("size", "hue")
    assert source.train.factors is not None
    assert source.train.factors.dtype == np.int64
