from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_files import random_images

from vmivae.data.pictures import picture_channels, read_picture
from vmivae.errors import DataError

GREY = random_images(6, 5)
COLOUR = random_images(6, 5, 3)


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "webp", "ppm", "PNG"])
def test_lossless_formats_give_their_pixels(suffix: str, tmp_path: Path) -> None:
    Image.fromarray(COLOUR).save(
        path := tmp_path / f"a.{suffix}", **({"lossless": True} if suffix == "webp" else {})
    )
    assert picture_channels(path) == 3
    np.testing.assert_array_equal(read_picture(path), COLOUR)


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "pgm"])
def test_grey_stays_grey(suffix: str, tmp_path: Path) -> None:
    Image.fromarray(GREY).save(path := tmp_path / f"a.{suffix}")
    assert picture_channels(path) == 1
    np.testing.assert_array_equal(read_picture(path), GREY)


@pytest.mark.parametrize(("suffix", "mode"), [("png", "P"), ("gif", "P"), ("jpg", "CMYK"), ("png", "RGBA")])
def test_other_modes_are_colour(suffix: str, mode: str, tmp_path: Path) -> None:
    red = np.zeros((6, 5, 3), dtype=np.uint8)
    red[..., 0] = 255
    Image.fromarray(red).convert(mode).save(path := tmp_path / f"a.{suffix}")
    assert picture_channels(path) == 3
    np.testing.assert_allclose(read_picture(path).astype(int), red, atol=3)


def test_one_bit_is_black_and_white(tmp_path: Path) -> None:
    Image.fromarray(GREY > 127).save(path := tmp_path / "a.png")
    assert picture_channels(path) == 1
    np.testing.assert_array_equal(read_picture(path), (GREY > 127) * 255)


@pytest.mark.parametrize("suffix", ["png", "tif", "pgm"])
def test_sixteen_bits_are_scaled_not_clipped(suffix: str, tmp_path: Path) -> None:
    deep = np.array([[0, 128, 129, 257, 32768, 65535]], dtype=np.uint16)
    Image.fromarray(deep).save(path := tmp_path / f"a.{suffix}")
    assert picture_channels(path) == 1
    np.testing.assert_array_equal(read_picture(path), [[0, 0, 1, 1, 128, 255]])


def test_floating_point_in_the_unit_range_is_scaled(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0.0, 0.5, 1.0]], dtype=np.float32)).save(path := tmp_path / "a.tif")
    np.testing.assert_array_equal(read_picture(path), [[0, 128, 255]])


@pytest.mark.parametrize("value", [255.0, -0.1, np.nan])
def test_floating_point_out_of_range_is_refused(value: float, tmp_path: Path) -> None:
    Image.fromarray(np.array([[0.0, value]], dtype=np.float32)).save(path := tmp_path / "a.tif")
    with pytest.raises(DataError, match=r"a\.tif: floating-point pixels must lie in \[0, 1\]"):
        read_picture(path)


@pytest.mark.parametrize(("mode", "expected"), [("RGBA", [255, 255, 255]), ("LA", 255)])
def test_transparent_pixels_are_white(mode: str, expected: object, tmp_path: Path) -> None:
    Image.new("RGBA", (2, 2), (0, 0, 0, 0)).convert(mode).save(path := tmp_path / "a.png")
    np.testing.assert_array_equal(read_picture(path)[0, 0], expected)


def test_a_photograph_is_turned_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # taken with the camera on its side: to be turned by 90° clockwise
    Image.fromarray(COLOUR).save(path := tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(read_picture(path), np.rot90(COLOUR, -1))


def test_of_several_frames_the_first(tmp_path: Path) -> None:
    frames = [Image.new("L", (4, 4), value) for value in (10, 200)]
    frames[0].save(path := tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert np.unique(read_picture(path)) == [10]


@pytest.mark.parametrize("suffix", ["png", "jpg", "gif", "tif", "bmp", "webp", "ppm"])
def test_damage_is_always_a_data_error(suffix: str, tmp_path: Path) -> None:
    """Cut at every 7th byte, or with random bytes: read, or refused in one line, never a traceback."""
    random = np.random.default_rng(0)
    Image.fromarray(random_images(16, 16, 3)).save(path := tmp_path / f"a.{suffix}")
    whole = path.read_bytes()
    damaged = [whole[:cut] for cut in range(0, len(whole), 7)]
    for _ in range(60):
        content = bytearray(whole)
        for position in random.integers(0, len(whole), 4):
            content[position] = random.integers(256)
        damaged.append(bytes(content))
    refused = 0
    for content in damaged:
        path.write_bytes(content)
        try:
            assert read_picture(path).dtype == np.uint8
        except DataError as error:
            assert "\n" not in str(error)  # noqa: PT017
            refused += 1
    assert refused > 0
