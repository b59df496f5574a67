"""The page of a comparison: the table that a paper could print, and its figures, in one HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from vmivae.comparison.grid import GridRun
from vmivae.comparison.table import Line, Metrics, Spread
from vmivae.files import replace_file
from vmivae.reporting import template
from vmivae.reporting.style import BLUE, CYCLE, GREY, INK, Picture, canvas, figures, png
from vmivae.reporting.tables import DISENTANGLEMENT
from vmivae.reporting.words import decimals, number

MARKERS = "os^Dv"
# Tables of a page's width, each with the scores whose titles begin so.
TABLES = {
    "What training reached, and what the whole code knows, in nats": (
        "distortion",
        "rate",
        "ELBO",
        "−cross-entropy",
        "I(z; x)",
    ),
    "Categorical and chosen units: information in nats": ("I(c", "I(z"),
    "Share of images that are named right where each category is named after its commonest class": (
        "accuracy",
    ),
    "Real units, the most informative of each run first: lower bound of their information in nats": (
        "real unit",
    ),
    "Disentanglement, against the factors that made the images: scores, at most 1": (
        "mig",
        "sap",
        "betavae",
        "factorvae",
        "irs",
    ),
}


def write_page(
    path: Path,
    title: str,
    command: str,
    lines: Sequence[Line],
    runs: Sequence[GridRun],
    metrics: Mapping[str, Metrics],
) -> None:
    """Write the page at `path`.

    Args:
        path: of the HTML file.
        title: of the comparison.
        command: that remakes it.
        lines: of the tables, in order.
        runs: behind them.
        metrics: of each run, by the name of its experiment.
    """
    with figures():
        pictures = [plane(runs, metrics), intervals(lines)]
    page = template.page(
        "comparison",
        "comparison.html",
        title,
        command=command,
        lines=lines,
        pictures=pictures,
        tables=tables(lines),
        label=label,
        shown=shown,
    )
    with replace_file(path) as file:
        file.write_text(page, "utf-8")


def tables(lines: Sequence[Line]) -> dict[str, list[str]]:
    """Captions, and which scores each table has; those that no caption names come last."""
    left = list(dict.fromkeys(title for line in lines for title in line.scores))
    found = {}
    for caption, beginnings in TABLES.items():
        chosen = [title for title in left if title.startswith(beginnings)]
        left = [title for title in left if title not in chosen]
        if chosen:
            found[caption] = chosen
    if left:
        found["Disentanglement, further scores, at most 1"] = left
    return found


def label(title: str) -> str:
    """A score's title at the head of its column: the caption says what ranked units are and have."""
    if title in DISENTANGLEMENT:
        return DISENTANGLEMENT[title][0]
    ranked = title.startswith("real unit ")
    return title.removeprefix("real unit ").removesuffix(", lower") if ranked else title


def shown(spread: Spread | None) -> str:
    """`1.23 ± 0.04`, with the decimals that the standard deviation asks for."""
    if spread is None:
        return "–"
    if spread.stddev is None:
        return number(spread.mean)
    digits = decimals(spread.stddev)
    return f"{number(spread.mean, digits)} ± {number(spread.stddev, digits)}"


def plane(runs: Sequence[GridRun], metrics: Mapping[str, Metrics]) -> Picture:
    """Rate and distortion of every run (Alemi et al. 2018)."""
    methods = list(dict.fromkeys(run.method for run in runs))
    variants = list(dict.fromkeys(run.variant for run in runs))
    figure = canvas(3.4)
    axes = figure.add_subplot()
    for run in runs:
        row = metrics[run.experiment]
        axes.plot(
            row["evaluation.rate"],
            row["evaluation.distortion"],
            MARKERS[variants.index(run.variant) % len(MARKERS)],
            color=CYCLE[methods.index(run.method) % len(CYCLE)],
            ms=5,
            alpha=0.85,
            mew=0,
        )
    for place, method in enumerate(methods):
        axes.plot([], [], "o", color=CYCLE[place % len(CYCLE)], ms=5, label=method)
    for place, variant in enumerate(variants if len(variants) > 1 else []):
        axes.plot([], [], MARKERS[place % len(MARKERS)], color=GREY, ms=5, label=variant)
    axes.grid(True)
    axes.set_xlabel("rate, nats per image")
    axes.set_ylabel("distortion, nats per image")
    axes.legend(loc="upper right")
    return Picture(
        "plane",
        "Points in the plane of rate and distortion, one per run",
        "Every run on held-out images: what the code costs (rate) and what it saves (distortion). Colour: "
        "method. Shape: variant. Along a line of slope −1 the ELBO is the same; below it, it is better.",
        png(figure),
    )


def intervals(lines: Sequence[Line]) -> Picture:
    """Mean bounds of the information of the whole code and of each categorical or chosen unit."""
    titles = [title for line in lines for title in line.scores if title.endswith(", upper")]
    names = list(dict.fromkeys(title.removesuffix(", upper") for title in titles))
    figure = canvas(0.7 + 0.22 * len(lines), width=2 * 4.8 if len(names) > 1 else 4.8)
    for place, name in enumerate(names):
        axes = figure.add_subplot(1, len(names), place + 1)
        for row, line in enumerate(lines):
            low, high = line.scores.get(f"{name}, lower"), line.scores.get(f"{name}, upper")
            if low is None or high is None:
                continue
            axes.plot([low.mean, high.mean], [row, row], color=BLUE, lw=4, solid_capstyle="butt")
            left, right = low.mean - (low.stddev or 0), high.mean + (high.stddev or 0)
            axes.plot([left, right], [row, row], color=INK, lw=0.9)
        axes.set_yticks(
            range(len(lines)), [f"{line.method}, {line.variant}" for line in lines] if not place else []
        )
        axes.set_ylim(len(lines) - 0.5, -0.5)
        axes.axvline(0, color=GREY, lw=0.7)
        axes.set_xlabel(f"{name.replace('x', 'x̃')}, nats")
    return Picture(
        "intervals",
        "Intervals of information, by method and variant",
        "What the code, and each categorical or chosen unit, knows about the image: from the mean lower to "
        "the mean upper bound (blue), widened by their standard deviations over seeds (black).",
        png(figure),
    )
