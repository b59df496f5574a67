"""Pictures in files, opened with care: the files are a stranger's."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from vmivae.errors import DataError

SUFFIXES = (
    ".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pbm", ".pgm", ".ppm", ".pnm",
)  # fmt: skip
# No format here that runs another program (EPS) or fetches anything.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
_DEEP_MODES = ("I", "I;16", "I;16B", "I;16L", "I;16N")
_GREY_MODES = ("1", "L", "LA", "La", "F", *_DEEP_MODES)


class Pictures:
    """Picture files as a sequence of uint8 arrays, `(H, W)` or `(H, W, 3)`; each is read when asked for."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int, /) -> NDArray[np.uint8]:
        return read_picture(self._files[index])


def picture_channels(path: Path) -> int:
    """1 for a grey picture, 3 for one in colour, from the file's header alone.

    Raises:
        DataError: as `read_picture`, where the header shows it.
    """
    with _opened(path) as image:
        return 1 if image.mode in _GREY_MODES else 3


def read_picture(path: Path) -> NDArray[np.uint8]:
    """Read a picture: upright (EXIF), 8 bits deep, on white where it is transparent, the first of its frames.

    16-bit grey values are scaled to 8 bits; floating-point ones must lie in [0, 1].

    Returns:
        uint8, `(H, W)` for a grey picture, `(H, W, 3)` otherwise.

    Raises:
        DataError: the file is corrupt, of another format, too large, or has values out of range.
    """
    with _opened(path) as image:
        grey = image.mode in _GREY_MODES
        upright = ImageOps.exif_transpose(image)
        if upright.mode == "F":
            return _from_unit_range(np.asarray(upright), path)
        if upright.mode in _DEEP_MODES:
            return _from_16_bits(np.asarray(upright), path)
        if upright.has_transparency_data:
            white = Image.new("RGBA", upright.size, "white")
            upright = Image.alpha_composite(white, upright.convert("RGBA"))
        return np.asarray(upright.convert("L" if grey else "RGB"))


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    if path.exists() and not path.is_file():
        raise DataError(f"{path}: is no regular file")
    try:
        with warnings.catch_warnings():
            # Pillow only warns of a picture between one and two times its limit, and of damage that it skips.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            warnings.filterwarnings("ignore", category=UserWarning, module="PIL")
            with Image.open(path, formats=_FORMATS) as image:
                yield image
    except DataError:
        raise
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise DataError(
            f"{path}: declares too many pixels (decompression bomb); "
            f"at most {Image.MAX_IMAGE_PIXELS} are accepted"
        ) from None
    except UnidentifiedImageError:
        raise DataError(
            f"{path}: is corrupt or no picture of a known format ({', '.join(_FORMATS)})"
        ) from None
    except Exception as error:  # a decoder that meets damaged data may raise anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path}: is corrupt and cannot be read as a picture ({reason})") from None


def _from_unit_range(values: NDArray[np.float32], path: Path) -> NDArray[np.uint8]:
    if not (values.min() >= 0 and values.max() <= 1):
        raise DataError(
            f"{path}: floating-point pixels must lie in [0, 1], got {values.min():g} to {values.max():g}"
        )
    return np.rint(values * 255).astype(np.uint8)


def _from_16_bits(values: NDArray[np.int32], path: Path) -> NDArray[np.uint8]:
    if values.min() < 0 or values.max() > 65535:
        raise DataError(f"{path}: pixels must lie in 0 to 65535, got {values.min()} to {values.max()}")
    return np.rint(values / 257).astype(np.uint8)
