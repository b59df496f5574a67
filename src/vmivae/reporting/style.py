"""One look for all figures: a page-width canvas, a palette safe for colour-blind readers, identical bytes."""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib import style as matplotlib_style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

# Okabe & Ito, Color Universal Design (2008).
BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY = "#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7", "#56b4e9"
INK, GREY, LIGHT = "#222222", "#767676", "#d9d9d9"
CYCLE = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, "#6a3d9a", "#8c564b", "#3b3b3b", "#999933")

WIDTH = 4.8  # inches; small enough that 9 pt stays readable on a phone, two fit side by side on a desk
DPI = 220

_STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 8.8,
    "axes.titlesize": 8.8,
    "axes.labelsize": 8.8,
    "xtick.labelsize": 8.2,
    "ytick.labelsize": 8.2,
    "legend.fontsize": 8.2,
    "legend.frameon": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.color": GREY,
    "ytick.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": LIGHT,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.5,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "text.parse_math": False,  # a class may be called "$1$"
}


@dataclass(frozen=True)
class Picture:
    """A finished figure: its file name without .png, what it shows, what to look at, and its PNG bytes."""

    name: str
    alt: str
    caption: str
    png: bytes

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels, as the PNG's header says."""
        width, height = struct.unpack(">II", self.png[16:24])
        return width, height


@contextmanager
def figures() -> Iterator[None]:
    """Matplotlib's own defaults plus the look of the report; the user's settings return at the end."""
    with matplotlib_style.context(["default", _STYLE]), matplotlib.rc_context():
        yield


def canvas(height: float, width: float = WIDTH) -> Figure:
    """An empty figure of `width` × `height` inches, unknown to pyplot."""
    return Figure(figsize=(width, height), dpi=DPI, layout="constrained")


def png(figure: Figure) -> bytes:
    """The figure as PNG, without anything in it that could differ between two runs."""
    agg: Any = FigureCanvasAgg(figure)
    agg.draw()
    buffer = io.BytesIO()
    Image.fromarray(np.asarray(agg.buffer_rgba())).convert("RGB").save(buffer, "PNG")
    return buffer.getvalue()


def bits_axis(axes: Axes) -> None:
    """A second scale in bits above an axis in nats."""
    bits: Any = axes.secondary_xaxis("top", functions=(_bits, _nats))
    bits.set_xlabel("bits")
    bits.spines["top"].set_visible(True)


def _bits(nats: Any) -> Any:
    return nats / math.log(2)


def _nats(bits: Any) -> Any:
    return bits * math.log(2)


def colour(unit: str) -> str:
    """Blue for a real unit, vermilion for a categorical one."""
    return VERMILION if unit.startswith("c") else BLUE


def plain(text: str, most: int = 18) -> str:
    """A name from the data as one short line that a figure can show."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= most else line[: most - 1] + "…"
