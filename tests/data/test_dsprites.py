"""The published format of dSprites: three arrays that must agree, and a pickle that is never opened."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vmivae.data import load_prepared, prepare
from vmivae.data.dsprites import load_dsprites
from vmivae.errors import DataError

SIZES = (1, 3, 2, 4, 2, 2)
CLASSES = np.stack(np.unravel_index(np.arange(96), SIZES), axis=1)
VALUES = CLASSES * [1, 1, 0.5, 2 * np.pi / 3, 1, 1] + [1, 1, 0.5, 0, 0, 0]
IMAGES = np.random.default_rng(0).integers(0, 2, (96, 8, 8), dtype=np.uint8)


def saved(folder: Path, **changes: np.ndarray | None) -> Path:
    arrays: dict[str, np.ndarray | None] = {
        "metadata": np.array({"title": "a pickle"}, dtype=object),
        "imgs": IMAGES,
        "latents_values": VALUES,
        "latents_classes": CLASSES,
    }
    arrays |= changes
    np.savez_compressed(folder / "dsprites.npz", **{k: v for k, v in arrays.items() if v is not None})
    return folder


def test_factors_are_the_varying_ones_by_name(tmp_path: Path) -> None:
    source = load_dsprites(saved(tmp_path))
    assert source.factors == ("shape", "scale", "orientation", "position x", "position y")
    np.testing.assert_array_equal(source.train.factors, CLASSES[:, 1:])
    np.testing.assert_array_equal(np.asarray(source.train.images), 255 * IMAGES)
    assert source.test is None


def test_images_keep_their_factors_through_the_split(tmp_path: Path) -> None:
    prepare(tmp_path / "out", source="dsprites", root=saved(tmp_path) / "dsprites.npz", image_size=8)
    prepared = load_prepared(tmp_path / "out")
    assert (len(prepared.train), len(prepared.test)) == (86, 10)
    rows = {tuple(row): image for row, image in zip(CLASSES[:, 1:], IMAGES, strict=True)}
    for split in (prepared.train, prepared.test):
        assert split.factors is not None
        for row, image in zip(split.factors, split.images, strict=True):
            np.testing.assert_array_equal(image[0], 255 * rows[tuple(row)])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"imgs": None}, "has no array imgs, got latents_classes, latents_values, metadata"),
        ({"latents_values": None}, "has no array latents_values"),
        ({"imgs": np.array([None] * 96)}, "imgs holds Python objects"),
        ({"latents_classes": CLASSES.astype(object)}, "latents_classes holds Python objects"),
        ({"imgs": 2 * IMAGES}, "imgs must be 0 or 1"),
        ({"imgs": IMAGES.astype(float)}, "imgs must be 0 or 1, (N, H, W), got float64"),
        ({"imgs": IMAGES[:, 0]}, "imgs must be 0 or 1, (N, H, W), got uint8 (96, 8)"),
        ({"imgs": IMAGES[:90]}, "latents_classes must be whole numbers ≥ 0, (90, 6), got int64 (96, 6)"),
        ({"latents_classes": CLASSES[:, 1:]}, "latents_classes must be whole numbers ≥ 0, (96, 6)"),
        ({"latents_classes": VALUES}, "latents_classes must be whole numbers"),
        ({"latents_classes": CLASSES - 1}, "numbers out of range"),
        ({"latents_values": VALUES * np.nan}, "numbers out of range"),
        ({"latents_values": VALUES[::-1]}, "latents_values of shape must rise with latents_classes"),
        ({"latents_values": np.roll(VALUES, 1, axis=0)}, "disagree on the shape of image"),
    ],
)
def test_another_file_is_refused_in_one_line(
    changes: dict[str, np.ndarray | None], words: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError) as caught:
        load_dsprites(saved(tmp_path, **changes))
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'dsprites.npz'}: ")
    assert words in message
    assert "\n" not in message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"must hold one \.npz file, got none"):
        load_dsprites(tmp_path)
    with pytest.raises(DataError, match=r"not found; data\.root names the \.npz file or its folder"):
        load_dsprites(tmp_path / "dsprites.npz")
