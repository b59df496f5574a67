import numpy as np
import pytest
from PIL import Image
from small_files import random_images

from vmivae.data.resize import fitted


def test_a_picture_of_the_size_keeps_its_pixels() -> None:
    grey, colour = random_images(32, 32), random_images(32, 32, 3)
    np.testing.assert_array_equal(fitted(grey, 32, 1), grey[None])
    np.testing.assert_array_equal(fitted(colour, 32, 3), colour.transpose(2, 0, 1))


@pytest.mark.parametrize(("height", "width"), [(32, 33), (32, 50), (45, 32)])
def test_a_picture_with_the_shorter_side_right_is_only_cropped(height: int, width: int) -> None:
    picture = random_images(height, width)
    top, left = (height - 32) // 2, (width - 32) // 2
    np.testing.assert_array_equal(fitted(picture, 32, 1)[0], picture[top : top + 32, left : left + 32])


def test_a_gradient_along_the_longer_side_shows_its_middle() -> None:
    picture = np.broadcast_to(np.arange(200, dtype=np.uint8), (100, 200))
    # Columns 50 to 150 at half size; away from the edges a linear ramp resizes to itself.
    np.testing.assert_allclose(fitted(picture, 50, 1)[0, 25], 50.5 + 2 * np.arange(50), atol=1)


def test_downsizing_is_antialiased() -> None:
    board = (np.indices((64, 64)).sum(axis=0) % 2 * 255).astype(np.uint8)
    small = fitted(board, 16, 1)
    assert small.min() >= 120
    assert small.max() <= 135


@pytest.mark.parametrize(("height", "width"), [(90, 60), (61, 127), (20, 20)])
def test_agrees_with_resize_then_centre_crop(height: int, width: int) -> None:
    rows, columns = np.indices((height, width)) / min(height, width)
    waves = [np.sin(5 * rows + 3 * columns + phase) for phase in range(3)]
    picture = np.rint(127.5 + 127 * np.stack(waves, axis=-1)).astype(np.uint8)
    short = min(height, width)
    size = round(width * 32 / short), round(height * 32 / short)
    whole = np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.BILINEAR))
    left, top = (size[0] - 32) // 2, (size[1] - 32) // 2
    expected = whole[top : top + 32, left : left + 32].transpose(2, 0, 1)
    # A longer side that is no whole number of pixels is rounded there: a shift of under half a pixel.
    np.testing.assert_allclose(fitted(picture, 32, 3).astype(int), expected, atol=6)


def test_a_long_strip_needs_no_room() -> None:
    assert fitted(np.full((1, 200_000), 7, dtype=np.uint8), 512, 3).shape == (3, 512, 512)


def test_channels_are_converted() -> None:
    colour = np.zeros((8, 8, 3), dtype=np.uint8)
    colour[...] = (200, 100, 50)
    grey = fitted(colour, 8, 1)
    assert np.unique(grey) == [124]  # 0.299·200 + 0.587·100 + 0.114·50 = 124.2
    np.testing.assert_array_equal(fitted(grey[0], 8, 3), np.full((3, 8, 8), 124))
