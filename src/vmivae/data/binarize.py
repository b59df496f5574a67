"""Grey pixels made binary: by a threshold, or as draws with the grey value as probability."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_SEEDS = {"train": 20160901, "test": 20160902}


def thresholded(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """0 where a pixel is below one half (uint8 below 128), 255 elsewhere. Any shape."""
    return np.where(images >= 128, np.uint8(255), np.uint8(0))


def binarized(images: Tensor, generator: torch.Generator) -> Tensor:
    """Draw every pixel from a Bernoulli whose probability is its grey value `x/255` (Burda et al. 2016).

    Args:
        images: uint8, any shape.
        generator: where the draws come from; on the device of `images`.

    Returns:
        uint8 of the same shape, each pixel 0 or 255.

    Example:
        >>> import torch
        >>> binarized(torch.tensor([0, 255], dtype=torch.uint8), torch.Generator().manual_seed(0))
        tensor([  0, 255], dtype=torch.uint8)
    """
    import torch

    # One of 255 equally likely values lies below x in x of 255 cases: the probability is exact.
    draws = torch.randint(255, images.shape, generator=generator, device=images.device, dtype=torch.uint8)
    return (draws < images).to(torch.uint8) * 255


def fixed_generator(split: str) -> torch.Generator:
    """The CPU generator of the one draw of `split` ("train" or "test") that measurements are made on.

    It does not depend on any parameter: two models are compared on the same binary images.
    """
    import torch

    return torch.Generator().manual_seed(_SEEDS[split])
