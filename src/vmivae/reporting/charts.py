"""Figures of numbers: information, rate, training curves, agreement with labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from vmivae.reporting.results import Column, Results, Unit
from vmivae.reporting.style import (
    BLUE,
    CYCLE,
    GREY,
    INK,
    LIGHT,
    ORANGE,
    SKY,
    VERMILION,
    Picture,
    bits_axis,
    canvas,
    colour,
    plain,
    png,
)

MOST_UNITS = 40  # bars in one figure
MOST_CLASSES = 100  # rows or columns of a heat map
MOST_FACTORS = 40  # columns of the known-factor table
MOST_LINES = 8  # coloured lines in one panel; the rest is grey
ERROR_BARS = 2.0  # standard errors on each side of a point


def information(results: Results) -> Picture:
    """The bound for the whole code and each group, beside what the encoder knows and the rate."""
    found = results.information
    rows: list[tuple[str, float, float, float | None, float | None, str]] = [
        ("whole code", found["lower"], found["lower_se"], found["upper"], found["upper_se"], INK)
    ]
    groups = {
        name: group
        for name, group in found["groups"].items()
        if (results.latents.continuous if name == "continuous" else results.latents.discrete)
    }
    if len(groups) > 1:
        for name, label, shade in (
            ("continuous", "real units", BLUE),
            ("discrete", "categorical units", VERMILION),
        ):
            group = groups[name]
            error = group.get("lower_se", group.get("se", 0.0))
            rows.append((label, group["lower"], error, group.get("upper"), group.get("upper_se"), shade))
    beside = []
    if found["encoder_information"] is not None:
        beside.append(("encoder", found["encoder_information"], found.get("encoder_information_se")))
    if found["rate"] is not None:
        beside.append(("rate", found["rate"], found.get("rate_se")))

    figure = canvas(0.95 + 0.29 * (len(rows) + len(beside)))
    axes = figure.add_subplot()
    for y, (_, lower, error, upper, upper_error, shade) in enumerate(rows):
        bars: dict[str, Any] = {"color": shade, "capsize": 0 if upper is None else 3.5, "ms": 4.5}
        axes.errorbar(lower, y, xerr=ERROR_BARS * error, fmt="o" if upper is None else "none", **bars)
        if upper is not None:
            axes.plot([lower, upper], [y, y], color=shade, lw=6, alpha=0.6, solid_capstyle="butt")
            axes.errorbar(upper, y, xerr=ERROR_BARS * (upper_error or 0.0), fmt="none", **bars)
        else:
            # An open end: the truth is somewhere to the right.
            axes.annotate(
                "",
                (lower, y),
                xytext=(24, 0),
                textcoords="offset points",
                arrowprops={"arrowstyle": "<-", "color": shade, "lw": 1.0, "shrinkB": 4},
            )
    for y, (_, value, error) in enumerate(beside, start=len(rows)):
        axes.errorbar(
            value, y, xerr=ERROR_BARS * (error or 0.0), fmt="D", color=GREY, ms=4.5, mfc="white", capsize=3
        )
    if found["encoder_limit"] is not None:
        axes.plot([found["encoder_limit"]] * 2, [len(rows) - 0.3, len(rows) + 0.3], color=GREY, lw=1.5)
    labels = [row[0] for row in rows] + [row[0] for row in beside]
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.set_xlabel("nats")
    axes.grid(axis="x")
    lowest = min(0.0, *(row[1] - ERROR_BARS * row[2] for row in rows))
    axes.set_xlim(left=lowest, right=1.12 * axes.get_xlim()[1])
    axes.tick_params(axis="y", length=0)
    bits_axis(axes)
    caption = "Information between a code and the image drawn from it. Error bars: ± 2 standard errors."
    if found["upper"] is None:
        caption += " Arrows: lower bounds, the truth lies at or to the right of each."
    if beside:
        caption += (
            " Diamonds, for comparison: what the encoder’s code knows of its own image (tick: its limit "
            "log N), and the rate."
        )
    return Picture(
        "information",
        "Points with error bars: information of the whole code and of its groups, in nats and bits",
        caption,
        png(figure),
    )


def information_per_unit(results: Results) -> Picture:
    """A bar per unit, its rate beside it."""
    units = results.units[:MOST_UNITS]
    figure = canvas(1.15 + 0.21 * len(units))
    axes = figure.add_subplot()
    places = np.arange(len(units))
    two_sided = any(unit.upper is not None for unit in units)
    axes.barh(
        places,
        [unit.lower for unit in units],
        height=0.68,
        color=[colour(unit.name) for unit in units],
        alpha=0.85,
    )
    axes.errorbar(
        [unit.lower for unit in units],
        places,
        xerr=[ERROR_BARS * unit.lower_se for unit in units],
        fmt="none",
        ecolor=INK,
        elinewidth=1.0,
        capsize=2,
    )
    for place, unit in zip(places, units, strict=True):
        if unit.upper is not None:
            axes.barh(
                place,
                unit.upper - unit.lower,
                left=unit.lower,
                height=0.68,
                color=colour(unit.name),
                alpha=0.3,
            )
            error = ERROR_BARS * (unit.upper_se or 0.0)
            axes.errorbar(
                unit.upper, place, xerr=error, fmt="none", ecolor=INK, elinewidth=1.0, capsize=2, alpha=0.5
            )
        if unit.most:
            axes.plot([unit.most] * 2, [place - 0.42, place + 0.42], color=VERMILION, lw=1.2, ls=(0, (2, 1)))
    axes.plot([unit.rate for unit in units], places, "D", ms=3.6, mfc="white", mec=INK, mew=0.9)
    _unit_rows(axes, units)
    axes.set_xlabel("nats")
    bits_axis(axes)
    axes.axvline(0, color=GREY, lw=0.7)
    keys = [
        Line2D([], [], marker="s", ls="", color=BLUE, label="real unit"),
        Line2D([], [], marker="s", ls="", color=VERMILION, label="categorical unit"),
        Line2D([], [], marker="D", ls="", mfc="white", mec=INK, ms=3.6, label="rate"),
        Line2D([], [], color=VERMILION, lw=1.2, ls=(0, (2, 1)), label="most: log K"),
    ]
    kinds = {unit.classes is not None for unit in units}
    wanted = (
        [keys[0]] * (False in kinds) + [keys[1]] * (True in kinds) + [keys[2]] + [keys[3]] * (True in kinds)
    )
    figure.legend(
        handles=wanted, loc="outside lower center", ncols=len(wanted), handletextpad=0.4, columnspacing=1.2
    )
    bound = "Bars: lower bound; the pale end: up to the upper bound." if two_sided else "Bars: lower bound."
    return Picture(
        "information_per_unit",
        "A bar per unit: the lower bound on its information, with error bars and its rate",
        f"{_shown(results)}Information of each unit alone about the image. {bound} Error bars: ± 2 "
        "standard errors. Diamonds: the unit’s rate on held-out images. Shared knowledge is counted in "
        "every unit that has it, so bars need not add up to the information of the whole code.",
        png(figure),
    )


def label_information(results: Results) -> Picture | None:
    """What each unit knows about the labels; None without labels."""
    units = [unit for unit in results.units if unit.label_information is not None][:MOST_UNITS]
    if not units or results.label_entropy is None:
        return None
    figure = canvas(0.85 + 0.21 * len(units))
    axes = figure.add_subplot()
    values = [unit.label_information or 0.0 for unit in units]
    axes.barh(range(len(units)), values, height=0.68, color=[colour(unit.name) for unit in units], alpha=0.85)
    chance = [unit.label_information_shuffled or 0.0 for unit in units]
    axes.plot(chance, range(len(units)), "|", color=INK, ms=8, mew=1.2)
    axes.axvline(results.label_entropy, color=INK, lw=1.0, ls=(0, (4, 2)))
    axes.annotate(
        f"all there is: {results.label_entropy:.2f}",
        (results.label_entropy, len(units) - 0.4),
        xytext=(-4, 4),
        textcoords="offset points",
        ha="right",
    )
    _unit_rows(axes, units)
    axes.set_xlabel("nats")
    axes.set_xlim(left=min(0.0, *values))
    axes.axvline(0, color=GREY, lw=0.7)
    return Picture(
        "label_information",
        "A bar per unit: its information about the labels",
        f"{_shown(results)}What each unit knows about the labels of the held-out images (nats). Training "
        "never saw a label. Dashed: the entropy of the labels, the most that can be known. Ticks: the "
        "same for shuffled labels; what lies below them is chance.",
        png(figure),
    )


def factor_information(results: Results) -> Picture | None:
    """Unit × factor heat map of what is known; None where factors are not known."""
    found = results.evaluation.get("disentanglement")
    if not found:
        return None
    names = found["factors"][:MOST_FACTORS]
    units = [unit.name for unit in results.units][:MOST_UNITS]
    nats = np.array([found["information"][unit] for unit in units])[:, : len(names)]
    shares = 100 * nats / np.array(found["entropies"])[: len(names)]
    figure = canvas(1.5 + max(1.0, 0.24 * len(units)))
    axes = figure.add_subplot()
    image = axes.imshow(shares, cmap=_paper(), vmin=0, vmax=100, aspect="auto", interpolation="nearest")
    heads = [
        f"{plain(name, 14)}\n{entropy:.2f}" for name, entropy in zip(names, found["entropies"], strict=False)
    ]
    many = len(names) > 6
    axes.set_xticks(range(len(names)), heads, rotation=90 if many else 0, fontsize=6.5 if many else 8.2)
    axes.set_yticks(range(len(units)), units)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(True)
    axes.spines[:].set_color(LIGHT)
    if not many:
        for (row, column), value in np.ndenumerate(nats):
            shade = "white" if shares[row, column] > 55 else INK
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=7.8, color=shade)
    bar = figure.colorbar(image, ax=axes, pad=0.015, aspect=30, fraction=0.04)
    bar.set_label("% of the factor’s entropy")
    numbers = "" if many else " Numbers: nats."
    return Picture(
        "factor_information",
        "Heat map: what each unit knows about each known factor",
        f"{_shown(results)}What each unit knows about each known factor of {found['images']} held-out "
        f"images, as a share of all there is to know (in nats below each name).{numbers} One dark cell per "
        "row and column: each unit holds one factor, and no factor is spread over units.",
        png(figure),
    )


def training(results: Results) -> Picture:
    """Loss and distortion over the epochs."""
    curves = results.training
    figure = canvas(2.7)
    axes = figure.add_subplot()
    axes.plot(curves["epoch"], curves["loss"], color=INK, label="loss")
    axes.plot(curves["epoch"], curves["distortion"], color=ORANGE, label="distortion")
    _curve_axes(axes, curves["epoch"], "epoch", "nats per image")
    _focus(axes, [curves["loss"], curves["distortion"]])
    axes.legend(loc="upper right")
    return Picture(
        "training",
        "Lines over epochs: training loss and distortion",
        "Training: the loss that was minimised, and the distortion in it (the cost of the pixels given "
        "the code). Means over each epoch.",
        png(figure),
    )


def surrogate(results: Results) -> Picture | None:
    """The information surrogate of each kind of unit over the epochs; None where nothing was added for it."""
    curves = results.training
    shown = [
        (f"information_{kind}", word, shade)
        for kind, word, shade in (("continuous", "real", BLUE), ("discrete", "categorical", VERMILION))
        if f"information_{kind}" in curves
    ]
    if not shown:
        return None
    figure = canvas(2.4)
    axes = figure.add_subplot()
    for column, word, shade in shown:
        axes.plot(curves["epoch"], curves[column], color=shade, label=f"{word} units")
    _curve_axes(axes, curves["epoch"], "epoch", "nats")
    _focus(axes, [curves[column] for column, _, _ in shown])
    axes.legend(loc="lower right")
    return Picture(
        "surrogate",
        "Lines over epochs: the surrogate of information that training raised",
        "What training raised for information: how well a Q-network, trained beside the VAE, reads the "
        "chosen units from sampled images. A training signal and no bound; that is what the intervals are.",
        png(figure),
    )


def rates(results: Results) -> list[Picture]:
    """For each kind of unit, KL over the epochs against the target C(t)."""
    found = []
    for kind, group, names in (
        ("real", "continuous", results.latents.continuous_units),
        ("categorical", "discrete", results.latents.discrete_units),
    ):
        if not names:
            continue
        curves = results.training
        epochs, total, target = curves["epoch"], curves[f"kl_{group}"], curves[f"capacity_{group}"]
        last = sorted(names, key=lambda name: -curves[f"kl_{name}"][-1])
        figure = canvas(2.7)
        axes = figure.add_subplot()
        several = len(names) > 1
        ends: list[tuple[float, str, str]] = []
        for name in reversed(last if several else []):
            place = last.index(name)
            shade = CYCLE[place] if place < MOST_LINES else LIGHT
            axes.plot(epochs, curves[f"kl_{name}"], color=shade, lw=1.1)
            if place < MOST_LINES:
                ends.append((curves[f"kl_{name}"][-1], name, shade))
        axes.plot(epochs, total, color=INK, lw=2.0, label="KL, all" if several else f"KL of {names[0]}")
        bounded = not np.isnan(target).all()
        if bounded:
            axes.plot(epochs, target, color=INK, lw=1.3, ls=(0, (3, 2)), label="target C(t)")
        _curve_axes(axes, epochs, "epoch", "nats per image")
        axes.set_ylim(
            bottom=0, top=1.3 * max(0.1, float(np.nanmax([total, target])) if bounded else float(total.max()))
        )
        _label_ends(axes, float(epochs[-1]), ends)
        axes.legend(loc="upper left", ncols=2)
        goal = (
            "Training holds their sum (black) to the target C(t) (dashed)."
            if bounded
            else "Black: their sum."
        )
        if not several:
            goal = "Training holds it to the target C(t) (dashed)." if bounded else ""
        limit = f" The {MOST_LINES} largest are coloured and named." if len(names) > MOST_LINES else ""
        what = (
            f"KL of each {kind} unit from the prior" if several else f"KL of the {kind} unit from the prior"
        )
        found.append(
            Picture(
                f"rate_{group}",
                f"Lines over epochs: KL of the {kind} units, and its target",
                f"{what}, during training. {goal}{limit}".replace("  ", " ").strip(),
                png(figure),
            )
        )
    return found


def interval(results: Results) -> Picture | None:
    """Both bounds over the number of proposals; None where there is no upper bound."""
    curves = results.interval
    if results.information["upper"] is None:
        return None
    figure = canvas(2.6)
    axes = figure.add_subplot()
    proposals = curves["proposals"]
    for name, shade in (("upper", VERMILION), ("lower", BLUE)):
        value, error = curves[name], ERROR_BARS * curves[f"{name}_se"]
        axes.plot(proposals, value, "o-", color=shade, ms=3, label=f"{name} bound")
        axes.fill_between(proposals, value - error, value + error, color=shade, alpha=0.2, lw=0)
    assert results.claimed is not None
    axes.axhspan(*results.claimed, color=GREY, alpha=0.22, lw=0, label="claimed")
    axes.axhline(results.information["barber_agakov"], color=GREY, lw=1.2, ls=(0, (3, 2)), label="Q alone")
    axes.set_xscale("log", base=2)
    ticks = proposals[:: 1 + len(proposals) // 9]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xlabel("proposals for each image, K")
    axes.set_ylabel("information, nats")
    axes.grid(axis="y")
    axes.legend(loc="upper right", ncols=2)
    return Picture(
        "interval",
        "Two lines over the number of proposals: the lower and the upper bound on the information",
        "The more codes are proposed for an image, the closer the two bounds come; up to noise the truth "
        "lies between them. Bands: ± 2 standard errors, from those images alone that got all the proposals. "
        "Grey: the interval that is claimed, which many images with fewer proposals make surer. Dashed: the "
        "Barber–Agakov bound of the Q-network.",
        png(figure),
    )


def q_network(results: Results) -> Picture:
    """How well Q guesses the code, over its training."""
    curves = results.q_network
    figure = canvas(2.4)
    axes = figure.add_subplot()
    steps = curves["step"]
    shown = [curves[name] for name in ("log_q", "validation_log_q") if name in curves]
    axes.plot(steps, curves["log_q"], color=SKY, label="fitting pairs")
    if "validation_log_q" in curves:
        known = ~np.isnan(curves["validation_log_q"])
        axes.plot(steps[known], curves["validation_log_q"][known], color=INK, label="pairs not fitted on")
    _curve_axes(axes, steps, "step of Q’s training", "mean log Q(z|x̃), nats")
    _focus(axes, shown, from_below=True)
    axes.legend(loc="lower right")
    return Picture(
        "q_network",
        "Lines over steps: mean log-probability that Q gives to the code",
        "The Q-network learns to tell the code from the image. A curve that still climbs at the end means "
        "that more mutual_information.q_network.steps would raise the lower bound.",
        png(figure),
    )


def usage(results: Results, unit: Unit) -> Picture:
    """Class × category heat map of a categorical unit; without labels a bar per category."""
    if results.labels is None or not results.classes:
        return _usage_bars(results, unit)
    classes, categories = len(results.classes), unit.classes or 0
    table = np.zeros((classes, categories))
    np.add.at(table, (np.asarray(results.labels), results.assignments(unit.name)), 1)
    present = np.flatnonzero(table.sum(1))
    if len(present) > MOST_CLASSES:
        present = np.sort(present[np.argsort(-table[present].sum(1), kind="stable")[:MOST_CLASSES]])
    used = _by_class(table[present])[:MOST_CLASSES]
    table = table[present]
    shares = 100 * table / table.sum(1, keepdims=True)
    shares = shares[:, used]

    names = [plain(results.classes[index], 14) for index in present]
    height = min(9.0, 1.0 + max(1.6, (0.27 if len(names) <= 12 else 0.14) * len(names)))
    figure = canvas(height)
    axes = figure.add_subplot()
    image = axes.imshow(shares, cmap=_paper(), vmin=0, vmax=100, aspect="auto", interpolation="nearest")
    small = 8.2 if len(used) <= 26 else 5.0
    axes.set_xticks(range(len(used)), [str(index) for index in used], fontsize=small)
    axes.set_yticks(range(len(names)), names, fontsize=8.2 if len(names) <= 30 else 5.0)
    if len(used) > 26:
        axes.set_xticks(range(0, len(used), 5), [str(index) for index in used[::5]])
    axes.set_xlabel(f"category of {unit.name}")
    axes.set_ylabel("class")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(True)
    axes.spines[:].set_color(LIGHT)
    if len(used) <= 12 and len(names) <= 26:
        for (row, column), share in np.ndenumerate(shares):
            if share >= 0.5:
                axes.text(
                    column,
                    row,
                    f"{share:.0f}",
                    ha="center",
                    va="center",
                    fontsize=7.8,
                    color="white" if share > 55 else INK,
                )
    else:
        bar = figure.colorbar(image, ax=axes, pad=0.015, aspect=30, fraction=0.04)
        bar.set_label("% of the class")
    return Picture(
        f"usage_{unit.name}",
        f"Heat map: which category of {unit.name} the held-out images of each class get",
        f"Which category of {unit.name} the held-out images of each class get (% of the class). Categories "
        "stand in the order of the class that each mostly gets. One dark cell per row and column: the unit "
        "found the classes. Shares spread along a row: the class is split over categories; several dark "
        "cells in a column: classes share a category.",
        png(figure),
    )


def _usage_bars(results: Results, unit: Unit) -> Picture:
    counts = results.usage(unit.name)
    order = np.argsort(-counts, kind="stable")[:MOST_CLASSES]
    figure = canvas(2.2)
    axes = figure.add_subplot()
    axes.bar(range(len(order)), 100 * counts[order] / counts.sum(), color=VERMILION, alpha=0.85)
    axes.axhline(100 / len(counts), color=INK, lw=1.0, ls=(0, (3, 2)))
    step = max(1, len(order) // 25)
    axes.set_xticks(range(0, len(order), step), [str(index) for index in order[::step]])
    axes.set_xlabel(f"category of {unit.name}")
    axes.set_ylabel("% of held-out images")
    axes.grid(axis="y")
    return Picture(
        f"usage_{unit.name}",
        f"Bars: share of the held-out images that get each category of {unit.name}",
        f"How often each category of {unit.name} is the most probable one. Dashed: equal use.",
        png(figure),
    )


def _by_class(table: Column) -> list[int]:
    """Categories (columns) in the order of the class that each mostly gets, unused ones last."""
    return sorted(
        range(table.shape[1]),
        key=lambda column: (not table[:, column].any(), table[:, column].argmax(), -table[:, column].max()),
    )


def _paper() -> LinearSegmentedColormap:
    return LinearSegmentedColormap.from_list("paper", ["#ffffff", "#cfe3f1", "#56a3d0", "#0072b2", "#003a5c"])


def _unit_rows(axes: Axes, units: Sequence[Unit]) -> None:
    axes.set_yticks(range(len(units)), [unit.name for unit in units])
    for tick, unit in zip(axes.get_yticklabels(), units, strict=True):
        tick.set_color(colour(unit.name))
    axes.set_ylim(len(units) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")


def _shown(results: Results) -> str:
    count = len(results.units)
    return f"The {MOST_UNITS} of {count} units with the most information. " if count > MOST_UNITS else ""


def _curve_axes(axes: Axes, steps: Column, xlabel: str, ylabel: str) -> None:
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.grid(axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(steps) > 1:
        axes.set_xlim(float(steps[0]), float(steps[-1]))
    else:
        for line in axes.get_lines():
            line.set_marker("o")


def _focus(axes: Axes, curves: Sequence[Column], from_below: bool = False) -> None:
    """Limit the height to where curves spend nine tenths of their time: a steep start hides nothing."""
    values = np.concatenate([curve[~np.isnan(curve)] for curve in curves])
    if len(values) < 10:
        return
    low, high = (
        (np.quantile(values, 0.1), values.max()) if from_below else (values.min(), np.quantile(values, 0.95))
    )
    margin = 0.12 * max(high - low, 1e-3)
    axes.set_ylim(low - margin, high + margin)


def _label_ends(axes: Axes, x: float, ends: Sequence[tuple[float, str, str]]) -> None:
    """Names at the right end of lines, moved apart where they would overlap."""
    if not ends:
        return
    bottom, top = axes.get_ylim()
    ends = sorted(ends)
    steps = 0.062 * (top - bottom) * np.arange(len(ends))
    wanted = np.array([value for value, _, _ in ends]) - steps
    # Halfway between pushing everything up and pushing everything down: never closer than a step.
    upwards, downwards = np.maximum.accumulate(wanted), np.minimum.accumulate(wanted[::-1])[::-1]
    places = np.maximum((upwards + downwards) / 2, bottom) + steps
    for place, (value, name, shade) in zip(places, ends, strict=True):
        axes.annotate(
            name,
            (x, value),
            xytext=(1.04, place),
            textcoords=("axes fraction", "data"),
            va="center",
            fontsize=7.8,
            color=shade,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": shade, "lw": 0.6, "shrinkA": 0, "shrinkB": 0},
        )
