"""Figures of decoded images: reconstructions, prior samples, traversals, categories, the manifold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from torch import Tensor

from vmivae.mutual_information.pairs import sample_images, seeded
from vmivae.reporting.results import Results, Unit
from vmivae.reporting.style import CYCLE, GREY, INK, WIDTH, Picture, canvas, colour, plain, png

REACH = 2.5  # prior standard deviations on each side
STEPS = 11  # images in a traversal
ROWS_PER_PAGE = 20
MOST_TRAVERSED = 100  # units
OVERVIEW_ROWS = 12
GRID_CATEGORIES = 12  # up to here a category is a column; above, the categories fill lines of ten
MOST_CATEGORIES = 100
MOST_PIXELS = 2**22  # decoded at once
SIDE = 128  # pixels of a picture in a figure; larger ones are averaged down
LARGEST_TILE = 0.5  # inches

Pixels = NDArray[np.float32]  # (…, C, H, W) in [0, 1]


class Decoder:
    """The model as a maker of pictures: means of p(x|z) for codes, and codes to start from."""

    def __init__(self, results: Results, seed: int) -> None:
        self._model = results.model
        self.latents = results.latents
        self._seed = seed
        self._pixels = int(np.prod(results.images.shape[1:]))
        self.base = self._model.prior.mean.new_zeros(self.latents.size)
        for unit in self.latents.discrete_units:
            self.base[self.latents.columns[unit].start + int(results.usage(unit).argmax())] = 1.0

    def means(self, codes: Tensor) -> Pixels:
        """Mean images `(…, C, H, W)` of codes `(…, size)`."""
        flat = codes.reshape(-1, self.latents.size)
        block = max(1, MOST_PIXELS // self._pixels)
        with torch.inference_mode():
            images = np.concatenate(
                [thumbnails(self._model.likelihood(part).mean) for part in torch.split(flat, block)]
            )
        return images.reshape(*codes.shape[:-1], *images.shape[1:])

    def samples(self, codes: Tensor) -> Pixels:
        """One image drawn from p(x|z) for each of the codes `(N, size)`."""
        with seeded(self._seed, "report: images", codes.device):
            return thumbnails(sample_images(self._model, codes))

    def prior_codes(self, shape: Sequence[int], figure: str) -> Tensor:
        """Codes `(*shape, size)` drawn from the prior; each figure has a stream of its own."""
        with seeded(self._seed, f"report: {figure}", self.base.device) as generator:
            return self._model.prior.sample(shape, generator=generator)

    def encode(self, images: Tensor) -> Tensor:
        """The middle of the posterior: means of the real units, the most probable categories; `(N, size)`."""
        with torch.inference_mode():
            posterior = self._model.posterior(images)
        blocks = [
            torch.nn.functional.one_hot(block.argmax(-1), block.shape[-1]).to(posterior.mean.dtype)
            for block in posterior.log_probs
        ]
        return torch.cat([posterior.mean, *blocks], dim=-1)

    def traversal(self, unit: Unit, steps: int = STEPS) -> Pixels:
        """One unit varied, all others at rest, `(n, C, H, W)`: a real unit over ±2.5, or each category."""
        columns = self.latents.columns[unit.name]
        if unit.classes is None:
            codes = self.base.repeat(steps, 1)
            codes[:, columns.start] = torch.linspace(-REACH, REACH, steps)
        else:
            codes = self.base.repeat(unit.classes, 1)
            codes[:, columns] = torch.eye(unit.classes)
        return self.means(codes)


def thumbnails(images: Tensor) -> Pixels:
    """Images `(N, C, H, W)` within [0, 1] and no larger than a figure can show."""
    factor = -(-max(images.shape[-2:]) // SIDE)
    if factor > 1:
        images = torch.nn.functional.avg_pool2d(images, factor)
    pixels: Pixels = images.clamp(0, 1).float().numpy()
    return pixels


def overview(results: Results, decoder: Decoder) -> Picture:
    """A row of images per unit and beside it the information of that unit."""
    units = results.units[:OVERVIEW_ROWS]
    varied = [_at_most(STEPS, results, unit, decoder.traversal(unit)) for unit in units]
    rows = np.ones((len(units), STEPS, *varied[0].shape[1:]), dtype=np.float32)
    blank = np.ones((len(units), STEPS), dtype=bool)
    for place, images in enumerate(varied):
        rows[place, : len(images)] = images
        blank[place, : len(images)] = False
    aspect = rows.shape[-2] / rows.shape[-1]
    picture_width = 0.7 * WIDTH
    height = picture_width / STEPS * aspect * len(units)
    bottom, top = 0.55, 0.3
    figure = canvas(height + bottom + top)
    figure.set_layout_engine("none")
    total = height + bottom + top
    left = 0.07
    axes = figure.add_axes((left, bottom / total, picture_width / WIDTH, height / total))
    _show(axes, rows, blank)
    _row_names(axes, [unit.name for unit in units])
    if any(unit.classes is None for unit in units):
        marks = [0.5, STEPS / 2, STEPS - 0.5]
        axes.set_xticks(marks, [f"−{REACH}", "0", f"+{REACH}"])
        axes.set_xlabel("value of the real unit (prior standard deviations)" if len(units) else "")
    if any(unit.classes for unit in units):
        sort = "categories" if len({unit.classes for unit in units if unit.classes}) > 1 else "its categories"
        axes.set_title(f"real unit: low to high · categorical unit: {sort}", fontsize=8.2, color=GREY, pad=4)
    bars_left = left + picture_width / WIDTH + 0.015
    bars = figure.add_axes((bars_left, bottom / total, 0.985 - bars_left, height / total))
    places = np.arange(len(units)) + 0.5
    values = np.array([unit.lower for unit in units])
    errors = 2 * np.array([unit.lower_se for unit in units])
    bars.barh(places, values, height=0.62, color=[colour(unit.name) for unit in units], alpha=0.85)
    bars.errorbar(values, places, xerr=errors, fmt="none", ecolor=INK, elinewidth=0.9, capsize=1.8)
    widest = max(float((values + errors).max()), 0.1)
    for place, value, error in zip(places, values, errors, strict=True):
        bars.text(
            max(value, 0) + error + 0.06 * widest,
            place,
            f"{value:.2f}".replace("-", "−"),
            va="center",
            fontsize=7.8,
        )
    bars.set_ylim(len(units), 0)
    bars.set_xlim(min(0.0, float(values.min())), 1.45 * widest)
    bars.set_yticks([])
    bars.spines["left"].set_visible(False)
    bars.axvline(0, color=GREY, lw=0.7)
    bars.set_xlabel("nats, at least")
    bars.xaxis.set_major_locator(MaxNLocator(nbins=3, steps=[1, 2, 5, 10]))
    bars.xaxis.set_major_formatter("{x:g}")
    return Picture(
        "overview",
        "A row of decoded images per unit, and a bar with its information",
        "What each unit does, and how much it knows."
        + (
            f" The {OVERVIEW_ROWS} of {len(results.units)} units with the most information."
            if len(results.units) > OVERVIEW_ROWS
            else ""
        )
        + " Each row varies one unit and keeps the others at rest; the bar is the lower bound on what "
        "that unit alone tells about the image (± 2 standard errors).",
        png(figure),
    )


def reconstructions(results: Results, decoder: Decoder, images: NDArray[np.uint8]) -> Picture:
    """Held-out images `(N, C, H, W)`, their reconstructions, and one draw of each, in lines of ten."""
    pixels = torch.from_numpy(images.astype(np.float32) / 255)
    shown = thumbnails(pixels)
    codes = decoder.encode(pixels)
    means = decoder.means(codes)
    draws = decoder.samples(codes)
    count = 10
    lines = -(-len(images) // count)
    rows = np.ones((3 * lines, count, *shown.shape[1:]), dtype=np.float32)
    blank = np.ones((3 * lines, count), dtype=bool)
    for index in range(len(images)):
        line, column = divmod(index, count)
        for offset, source in enumerate((shown, means, draws)):
            rows[3 * line + offset, column] = source[index]
            blank[3 * line + offset, column] = False
    names = ["image", "mean", "draw"] * lines
    return Picture(
        "reconstructions",
        "Held-out images, their reconstructions and a random draw for each",
        "Held-out images; below each its reconstruction (the mean image of p(x|z) at the middle of its "
        "posterior); below that one image drawn from p(x|z). The information is measured between codes "
        "and draws of this kind. The images are the first of "
        f"{'each class' if results.labels is not None else 'the set'}.",
        _grid(rows, names, blank=blank, breaks=3),
    )


def prior_samples(results: Results, decoder: Decoder) -> Picture:
    """Mean images of codes drawn from the prior."""
    codes = decoder.prior_codes((8, 10), "prior samples")
    return Picture(
        "prior_samples",
        "Eighty images decoded from random codes",
        "New images: codes drawn from the prior, each shown as the mean image of p(x|z). They look like "
        "data where the prior and the codes of real images overlap.",
        _grid(decoder.means(codes)),
    )


def traversals(results: Results, decoder: Decoder) -> list[Picture]:
    """A row per real unit over ±2.5 prior standard deviations, on as many pages as are needed."""
    units = results.real_units[:MOST_TRAVERSED]
    found = []
    values = np.linspace(-REACH, REACH, STEPS)
    marks = ["" if place % (STEPS // 2) else _mark(value) for place, value in enumerate(values)]
    pages = [units[start : start + ROWS_PER_PAGE] for start in range(0, len(units), ROWS_PER_PAGE)]
    for number, page in enumerate(pages, start=1):
        rows = np.stack([decoder.traversal(unit) for unit in page])
        name = "traversals" if len(pages) == 1 else f"traversals_{number}"
        at = "" if len(pages) == 1 else f" (page {number} of {len(pages)})"
        cap = (
            f" The {MOST_TRAVERSED} with the most information are shown."
            if len(results.real_units) > len(units)
            else ""
        )
        rest = " and the categorical units in their most used category" if results.latents.discrete else ""
        found.append(
            Picture(
                name,
                f"A row of decoded images for each real unit{at}",
                f"Traversals of the real units{at}, most information first (nats at the right).{cap} Each "
                f"row varies one unit from −{REACH} to +{REACH} prior standard deviations, with the other "
                f"real units at 0{rest}. A row whose images are all alike belongs to a unit that the "
                "decoder ignores.",
                _grid(
                    rows,
                    [unit.name for unit in page],
                    right=[f"{unit.lower:.2f}".replace("-", "−") for unit in page],
                    columns=marks,
                    xlabel="value of the unit (prior standard deviations)",
                ),
            )
        )
    return found


def categories(results: Results, decoder: Decoder, unit: Unit) -> Picture:
    """A grid per categorical unit: a column per category, rows of different styles."""
    assert unit.classes is not None
    columns = decoder.latents.columns[unit.name]
    if unit.classes <= GRID_CATEGORIES:
        styles = 6 if results.latents.size > unit.classes else 1
        codes = decoder.prior_codes((styles,), f"styles of {unit.name}")
        codes[0] = decoder.base
        codes = codes[:, None].repeat(1, unit.classes, 1)
        codes[..., columns] = torch.eye(unit.classes)
        marks = [str(category) for category in range(unit.classes)]
        if unit.majority and results.classes:
            names = _majority(results, unit)
            if all(len(name) <= 3 for name in names):
                marks = [
                    f"{mark}\n“{name}”" if name else mark for mark, name in zip(marks, names, strict=True)
                ]
        rows = (
            "first row: the other units at rest; below: each row one random draw of them"
            if styles > 1
            else ""
        )
        named = (
            " In quotes: the class that a category mostly gets." if any("“" in mark for mark in marks) else ""
        )
        return Picture(
            f"categories_{unit.name}",
            f"A column of decoded images for each category of {unit.name}",
            f"The {unit.classes} categories of {unit.name}, one per column"
            + (f" ({rows})." if rows else ".")
            + named
            + " A useful unit changes what is drawn from column to column, and keeps it within a column.",
            _grid(decoder.means(codes), columns=marks, xlabel=f"category of {unit.name}"),
        )
    order = np.argsort(-results.usage(unit.name), kind="stable")[:MOST_CATEGORIES]
    images = decoder.traversal(unit)[order]
    lines = -(-len(order) // 10)
    rows_of_ten = np.ones((lines * 10, *images.shape[1:]), dtype=np.float32)
    rows_of_ten[: len(images)] = images
    blank = (np.arange(lines * 10) >= len(images)).reshape(lines, 10)
    cap = f" The {MOST_CATEGORIES} most used." if unit.classes > MOST_CATEGORIES else " Most used first."
    return Picture(
        f"categories_{unit.name}",
        f"A decoded image for each category of {unit.name}",
        f"Categories of {unit.name} ({unit.classes} in all), the other units at rest.{cap}",
        _grid(rows_of_ten.reshape(lines, 10, *images.shape[1:]), blank=blank),
    )


def manifold(results: Results, decoder: Decoder) -> Picture | None:
    """The plane of two real units, decoded; None unless there are exactly two."""
    if results.latents.continuous != 2:
        return None
    side = 15
    line = torch.linspace(-REACH, REACH, side)
    codes = decoder.base.repeat(side, side, 1)
    codes[..., 0] = line
    codes[..., 1] = line.flip(0)[:, None]
    marks = [_mark(value) for value in np.linspace(-REACH, REACH, 5)]
    rest = ", the categorical units in their most used category" if results.latents.discrete else ""
    figure = canvas(WIDTH)
    axes = figure.add_subplot()
    _show(axes, decoder.means(codes), gap=0)
    places = np.linspace(0.5, side - 0.5, 5)
    axes.set_xticks(places, marks)
    axes.set_yticks(places, marks[::-1])
    axes.set_xlabel("z0 (prior standard deviations)")
    axes.set_ylabel("z1 (prior standard deviations)")
    return Picture(
        "manifold",
        "A plane of decoded images over the two real units",
        f"The plane of the two real units, decoded on a grid from −{REACH} to +{REACH}{rest}. Neighbours "
        "should look alike.",
        png(figure),
    )


def codes_map(results: Results) -> Picture | None:
    """Posterior means of held-out images in the plane of the real units; None unless there are two."""
    if results.latents.continuous != 2:
        return None
    codes = np.asarray(results.codes[:3000])
    figure = canvas(WIDTH)
    axes = figure.add_subplot()
    classes = results.classes
    if results.labels is None or not classes or len(classes) > 10:
        axes.plot(codes[:, 0], codes[:, 1], ".", ms=3, color=colour("z0"), alpha=0.5, mew=0)
        named = ""
    else:
        labels = np.asarray(results.labels[:3000])
        for index, name in enumerate(classes):
            chosen = codes[labels == index]
            if not len(chosen):
                continue
            axes.plot(chosen[:, 0], chosen[:, 1], ".", ms=3, color=CYCLE[index], alpha=0.55, mew=0)
            x, y = np.median(chosen[:, 0]), np.median(chosen[:, 1])
            axes.text(
                x,
                y,
                plain(name),
                ha="center",
                va="center",
                fontsize=8.5,
                fontweight="bold",
                color=CYCLE[index],
                bbox={
                    "boxstyle": "round,pad=0.2",
                    "fc": "white",
                    "ec": CYCLE[index],
                    "lw": 0.6,
                    "alpha": 0.85,
                },
            )
        named = " Colours and names: the labels; a name stands at the median of its class."
    axes.set_xlabel("z0")
    axes.set_ylabel("z1")
    axes.set_aspect("equal", adjustable="datalim")
    axes.grid()
    return Picture(
        "codes_map",
        "Points: posterior means of held-out images in the plane of the two real units",
        f"Where held-out images lie in that plane: the means of their posteriors.{named}",
        png(figure),
    )


def _at_most(count: int, results: Results, unit: Unit, images: Pixels) -> Pixels:
    """All images of a traversal, or those of the most used categories, in their order."""
    if len(images) <= count:
        return images
    return images[np.sort(np.argsort(-results.usage(unit.name), kind="stable")[:count])]


def _mark(value: float) -> str:
    return f"{value:+g}".replace("-", "−") if value else "0"


def _majority(results: Results, unit: Unit) -> list[str]:
    """The class that each category mostly gets; nothing for a category that no held-out image has."""
    used = results.usage(unit.name) > 0
    return [
        plain(results.classes[label]) if used[category] else ""
        for category, label in enumerate(unit.majority)
    ]


def _grid(
    rows: Pixels,
    names: Sequence[str] = (),
    right: Sequence[str] = (),
    columns: Sequence[str] = (),
    xlabel: str = "",
    blank: NDArray[np.bool_] | None = None,
    breaks: int = 0,
) -> bytes:
    """Images `(R, N, C, H, W)` as one picture with names left and right of the rows and below the columns."""
    count, across = rows.shape[:2]
    left = 0.5 if names else 0.02
    rim = 0.38 if right else 0.02
    label_lines = max((mark.count("\n") + 1 for mark in columns), default=0)
    bottom = 0.02 + (0.08 + 0.145 * label_lines if columns else 0) + (0.21 if xlabel else 0)
    spaces = 0.08 * (count // breaks - 1) if breaks else 0.0
    inner = min(WIDTH - left - rim, LARGEST_TILE * across)
    left += (WIDTH - left - rim - inner) / 2
    height = inner / across * (rows.shape[3] / rows.shape[4]) * count
    total = height + spaces + bottom + 0.02
    figure = canvas(total)
    figure.set_layout_engine("none")
    size = breaks or count
    for start in range(0, count, size):
        part = rows[start : start + size]
        below = (
            bottom
            + (height + spaces)
            - (start / count * height + (start // size) * 0.08)
            - len(part) / count * height
        )
        axes = figure.add_axes(
            (left / WIDTH, below / total, inner / WIDTH, len(part) / count * height / total)
        )
        _show(axes, part, None if blank is None else blank[start : start + size])
        axes.set_xticks([])
        if names:
            _row_names(axes, names[start : start + size])
        for place, text in enumerate(right[start : start + size]):
            axes.text(across + 0.12, place + 0.5, text, va="center", fontsize=8.2, color=INK)
    if columns:
        axes.set_xticks(np.arange(across) + 0.5, columns)
    axes.set_xlabel(xlabel)
    return png(figure)


def _row_names(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(np.arange(len(names)) + 0.5, names)
    for tick, name in zip(axes.get_yticklabels(), names, strict=True):
        tick.set_color(colour(name) if name[1:].isdigit() else INK)


def _show(axes: Axes, rows: Pixels, blank: NDArray[np.bool_] | None = None, gap: int | None = None) -> None:
    """Tile images `(R, N, C, H, W)` onto axes whose unit is one image, first row on top."""
    count, across, channels, height, width = rows.shape
    gap = max(1, width // 24) if gap is None else gap
    sheet = np.ones((count, across, 3, height + gap, width + gap), dtype=np.float32)
    sheet[..., gap // 2 : gap // 2 + height, gap // 2 : gap // 2 + width] = (
        rows if channels == 3 else rows[:, :, :1].repeat(3, axis=2)
    )
    if blank is not None:
        sheet[blank] = 1.0
    tiled = sheet.transpose(0, 3, 1, 4, 2).reshape(count * (height + gap), across * (width + gap), 3)
    axes.imshow(tiled, extent=(0, across, count, 0), aspect="auto", interpolation="auto")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, pad=2)
