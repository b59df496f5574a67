import numpy as np
import torch

from vmivae.data import binarized, fixed_generator
from vmivae.data.binarize import thresholded


def test_threshold_is_one_half() -> None:
    pixels = np.array([0, 1, 127, 128, 254, 255], dtype=np.uint8)
    np.testing.assert_array_equal(thresholded(pixels), [0, 0, 0, 255, 255, 255])


def test_draws_have_the_grey_value_as_probability() -> None:
    values = torch.tensor([1, 51, 128, 254], dtype=torch.uint8)
    count = 200_000
    draws = binarized(values.repeat(count, 1), torch.Generator().manual_seed(0))
    assert draws.dtype == torch.uint8
    assert set(draws.unique().tolist()) == {0, 255}
    probability = values.double() / 255
    error = (draws.double() / 255).mean(dim=0) - probability
    assert (error.abs() < 4 * (probability * (1 - probability) / count).sqrt()).all()


def test_black_and_white_stay() -> None:
    pixels = torch.tensor([0, 255], dtype=torch.uint8).repeat(10_000, 1)
    assert torch.equal(binarized(pixels, torch.Generator().manual_seed(3)), pixels)


def test_the_fixed_draw_repeats_and_leaves_the_global_state() -> None:
    pixels = torch.full((1000,), 100, dtype=torch.uint8)
    before = torch.get_rng_state()
    first, second = (binarized(pixels, fixed_generator("test")) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, binarized(pixels, fixed_generator("train")))
    assert torch.equal(torch.get_rng_state(), before)
