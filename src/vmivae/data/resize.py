"""Any picture to one size and one number of channels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def fitted(picture: NDArray[np.uint8], size: int, channels: int) -> NDArray[np.uint8]:
    """Bring a picture to `(channels, size, size)`.

    The shorter side is resized to `size` (bilinear, antialiased), then the centre is cropped. RGB becomes
    grey by ITU-R 601 luma, grey becomes RGB by repetition. A picture of that size keeps its pixels.

    Args:
        picture: uint8 `(H, W)` or `(H, W, 3)`.
        size: height and width of the result.
        channels: 1 or 3.
    """
    height, width = picture.shape[:2]
    if picture.ndim == 3 and channels == 1:
        picture = np.asarray(Image.fromarray(picture).convert("L"))
    if (height, width) != (size, size):
        short = min(height, width)
        # The crop falls on whole pixels of the resized picture; only what it shows is computed, so that a
        # strip of 1 × 100,000 pixels costs nothing.
        left = (round(width * size / short) - size) // 2 * short / size
        top = (round(height * size / short) - size) // 2 * short / size
        box = (left, top, left + short, top + short)
        picture = np.asarray(
            Image.fromarray(picture).resize((size, size), Image.Resampling.BILINEAR, box=box)
        )
    if picture.ndim == 3:
        return picture.transpose(2, 0, 1)
    return np.broadcast_to(picture, (channels, size, size))
