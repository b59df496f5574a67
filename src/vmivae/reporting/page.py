"""The page: tables, figures and sentences put into one HTML file that needs nothing else."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

from vmivae.files import replace_directory, replace_file
from vmivae.reporting import charts, images, words
from vmivae.reporting.results import Results
from vmivae.reporting.style import Picture, figures

Progress = Callable[[str, int, int, str], None]
"""Called with what is being done, how far it is, how much there is, and the state in words."""

CATEGORICAL_FIGURES = 8  # categorical units that get figures of their own
SHOWN_IMAGES = 20  # reconstructions


def write_report(
    root: Path,
    parameters: Mapping[str, Any],
    key: str,
    seed: int,
    progress: Progress | None = None,
) -> None:
    """Write `reports/report.html` and `reports/figures/*.png` from the other stages' outputs.

    The same files and arguments give the same bytes.

    Args:
        root: the folder that holds data/, models/, metrics/ and plots/; reports/ is written there.
        parameters: all of params.yaml that the configuration key covers, as dotted keys and plain values.
        key: the configuration key.
        seed: of the codes and images that are drawn for the figures.
        progress: called after each figure.

    Raises:
        DataError: an output of another stage is missing or damaged.
    """
    results = Results.load(root)
    sections: dict[str, list[Picture]] = {}
    jobs = list(_figures(results, seed))
    with figures():
        for done, (section, draw) in enumerate(jobs, start=1):
            drawn = draw()
            pictures = drawn if isinstance(drawn, list) else [drawn] if drawn else []
            sections.setdefault(section, []).extend(pictures)
            if progress:
                progress("figures", done, len(jobs), section)
    page = render(results, sections, parameters, key)
    with replace_directory(root / "reports/figures") as folder:
        for picture in (picture for pictures in sections.values() for picture in pictures):
            (folder / f"{picture.name}.png").write_bytes(picture.png)
    with replace_file(root / "reports/report.html") as file:
        file.write_text(page, "utf-8")


def render(
    results: Results, sections: Mapping[str, list[Picture]], parameters: Mapping[str, Any], key: str
) -> str:
    """The whole page as text; everything that comes from data or parameters is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("vmivae", "reporting"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["uri"] = _data_uri
    style = (Path(__file__).parent / "style.css").read_text("utf-8")
    return environment.get_template("report.html").render(
        style=Markup(style),
        results=results,
        pictures=sections,
        summary=words.summary(results),
        cautions=words.cautions(results, parameters),
        tiles=_tiles(results),
        configuration=_configuration(results, parameters),
        information=_information_rows(results),
        beside=_beside_rows(results),
        units=_unit_table(results),
        scores=_score_rows(results),
        parameters=_grouped(parameters),
        key=key,
        two_sided=results.information["upper"] is not None,
    )


def _figures(
    results: Results, seed: int
) -> Iterator[tuple[str, Callable[[], Picture | list[Picture] | None]]]:
    """What to draw, by section, in the order of the page."""
    decoder = images.Decoder(results, seed)
    shown = _shown_images(results)
    yield "overview", lambda: images.overview(results, decoder)
    yield "information", lambda: charts.information(results)
    yield "information", lambda: charts.information_per_unit(results)
    yield "information", lambda: charts.q_network(results)
    yield "training", lambda: charts.training(results)
    yield "training", lambda: charts.rates(results)
    yield "images", lambda: images.reconstructions(results, decoder, shown)
    yield "images", lambda: images.prior_samples(results, decoder)
    yield "traversals", lambda: images.traversals(results, decoder)
    yield "traversals", lambda: images.manifold(results, decoder)
    yield "traversals", lambda: images.codes_map(results)
    for unit in results.categorical_units[:CATEGORICAL_FIGURES]:
        yield "categories", lambda unit=unit: images.categories(results, decoder, unit)  # type: ignore[misc]
        yield "categories", lambda unit=unit: charts.usage(results, unit)  # type: ignore[misc]
    yield "labels", lambda: charts.label_information(results)


def _shown_images(results: Results) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The first held-out images, taken class by class in turn where there are labels."""
    if results.labels is None:
        return np.asarray(results.images[:SHOWN_IMAGES])
    labels = np.asarray(results.labels)
    rank = np.empty(len(labels), dtype=int)
    for label in np.unique(labels):
        rank[labels == label] = np.arange((labels == label).sum())
    order = np.lexsort((labels, rank))[:SHOWN_IMAGES]
    return np.asarray(results.images[order])


def _tiles(results: Results) -> list[tuple[str, Markup, str]]:
    """The numbers to see first: name, value, and what it is measured in or against."""
    found, scores = results.information, results.evaluation
    places = words.decimals(found["lower_se"])
    lower = _number(found["lower"], places)
    if found["upper"] is None:
        value = Markup("≥ {}").format(lower)
        note = f"± {words.number(found['lower_se'], places)} nats · {words.number(found['lower'] / words.LOG_2)} bits"
    else:
        value = Markup("{} – {}").format(lower, _number(found["upper"], places))
        note = f"nats · {words.number(found['lower'] / words.LOG_2)} to {words.number(found['upper'] / words.LOG_2)} bits"
    tiles = [("information", value, note)]
    tiles.append(("rate", _number(scores["rate"], 2), f"± {words.number(scores['rate_se'])} nats, held out"))
    active = sum(unit.active for unit in results.units)
    tiles.append(("active units", Markup("{} <small>of {}</small>").format(active, len(results.units)), "real and categorical"))
    best = max((unit for unit in results.units if unit.accuracy is not None), key=lambda unit: unit.accuracy or 0.0, default=None)
    if best is not None and best.accuracy is not None:
        tiles.append(
            (
                f"{best.name} names the class",
                Markup("{}&thinsp;<small>%</small>").format(_number(100 * best.accuracy, 1)),
                f"± {words.number(100 * (best.accuracy_se or 0), 1)} %, held out",
            )
        )
    return tiles


def _configuration(results: Results, parameters: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The parameters that matter to a reader, in words."""
    card, get = results.card, parameters.get
    channels, height, width = card.image_shape
    latents = results.latents
    units = []
    if latents.continuous:
        units.append(f"{latents.continuous} real unit{'s' if latents.continuous > 1 else ''}")
    if latents.discrete:
        sizes = words.listing([str(size) for size in latents.discrete])
        count = len(latents.discrete)
        units.append(f"{count} categorical unit{'s' if count > 1 else ''} ({sizes} categories)")
    pixels = {"none": "as they are", "threshold": "black or white, by threshold", "dynamic": "drawn black or white afresh each epoch"}
    if get("objective.regularizer") == "beta":
        objective = f"β-VAE, β = {get('objective.beta')}" + (" (the ELBO)" if get("objective.beta") == 1 else "")
    else:
        ends = []
        if latents.continuous:
            ends.append(f"{get('objective.capacity.continuous.end')} for the real units")
        if latents.discrete:
            end = get("objective.capacity.discrete.end")
            ends.append(f"{words.number(latents.max_discrete_entropy) if end is None else end} for the categorical units")
        objective = f"capacity: |KL − C(t)| held small, C rising to {' and '.join(ends)} (nats)"
    likelihood = str(get("model.likelihood")).replace("_", " ")
    network = f"{get('mutual_information.q_network.family')} Q-network, {words.number(get('mutual_information.q_network.steps', 0), 0)} steps"
    source = (
        "posterior codes of the {} images".format("training" if get("mutual_information.split") == "train" else "held-out")
        if results.information["codes"] == "posterior"
        else "prior codes"
    )
    return [
        (
            "Images",
            f"{card.source}: {words.number(card.train.count, 0)} for training, {words.number(card.test.count, 0)} held out; "
            f"{height} × {width} pixels, {'grey' if channels == 1 else 'RGB'}, {pixels[card.binarize]}",
        ),
        ("Code", " and ".join(units)),
        ("Model", f"{'convolutional' if get('model.architecture') == 'conv' else 'fully connected'} encoder and decoder, {likelihood} likelihood"),
        ("Objective", objective),
        ("Training", f"{words.number(get('train.epochs', 0), 0)} epochs, batches of {get('train.batch_size')}, learning rate {get('train.learning_rate')}"),
        ("Information", f"{source}; {network}; bound on {words.number(results.information['samples'], 0)} fresh pairs of code and image"),
    ]


def _information_rows(results: Results) -> list[tuple[str, list[Markup]]]:
    """Whole code and groups: lower bound, its standard error, (upper bound and its own,) bits."""
    found = results.information
    rows = [("whole code", found)]
    if len(found["groups"]) > 1:
        rows += [("real units", found["groups"]["continuous"]), ("categorical units", found["groups"]["discrete"])]
    table = []
    for name, part in rows:
        cells = [_number(part["lower"], 3), _error(part.get("lower_se", part.get("se")), 3)]
        if found["upper"] is not None:
            cells += [_number(part.get("upper"), 3), _error(part.get("upper_se"), 3)]
        cells.append(_number(part["lower"] / words.LOG_2, 3))
        if found["upper"] is not None:
            cells.append(_number(_bits(part.get("upper")), 3))
        table.append((name, cells))
    return table


def _beside_rows(results: Results) -> list[tuple[str, Markup, list[Markup]]]:
    """Numbers to compare the bound with: name, what it is, value, standard error, bits."""
    found = results.information
    rows = [
        ("encoder information", Markup("<i>I</i><sub>q</sub>(x; z), what the encoder’s code tells about its own image"), "encoder_information"),
        ("its limit", Markup("log <i>N</i>, <i>N</i> = {} images").format(words.number(found["images"] or 0, 0)), "encoder_limit"),
        ("rate", Markup("mean KL of the posterior from the prior, same images"), "rate"),
        ("marginal KL", Markup("KL of the codes’ own distribution from the prior"), "marginal_kl"),
        ("code entropy", Markup("<i>H</i>(z) of the distribution that codes are drawn from (differential for real units)"), "entropy"),
    ]
    return [
        (name, meaning, [_number(found[field], 3), _error(found.get(f"{field}_se"), 3), _number(_bits(found[field]), 3)])
        for name, meaning, field in rows
        if found.get(field) is not None
    ]


def _unit_table(results: Results) -> tuple[list[str], list[tuple[str, list[Markup]]]]:
    """Column heads and rows of the table of units; columns that hold nothing are left out."""
    two_sided = any(unit.upper is not None for unit in results.units)
    labelled = any(unit.label_information is not None for unit in results.units)
    named = any(unit.accuracy is not None for unit in results.units)
    heads = ["lower bound", "± s.e."]
    heads += ["upper bound", "± s.e."] if two_sided else []
    heads += ["bits", "rate", "active"]
    heads += ["knows of labels", "by chance"] if labelled else []
    heads += ["names class, %", "NMI"] if named else []
    rows = []
    for unit in results.units:
        cells = [_number(unit.lower, 3), _error(unit.lower_se, 3)]
        if two_sided:
            cells += [_number(unit.upper, 3), _error(unit.upper_se, 3)]
        cells += [_number(unit.lower / words.LOG_2, 3), _number(unit.rate, 3), Markup("yes" if unit.active else "no")]
        if labelled:
            cells += [_number(unit.label_information, 3), _number(unit.label_information_shuffled, 3)]
        if named:
            cells += [_number(None if unit.accuracy is None else 100 * unit.accuracy, 1), _number(unit.nmi, 2)]
        rows.append((unit.name, cells))
    return heads, rows


def _score_rows(results: Results) -> list[tuple[str, str, list[Markup]]]:
    """Held-out scores with the training split's beside them: name, what it is, value, error, value, error."""
    scores = results.evaluation
    supported = scores["likelihood_in_support"]
    rows = [
        ("distortion" if supported else "cross-entropy", "cost of the pixels given the code, nats per image", "distortion", 2),
        ("rate", "cost of the code: KL of the posterior from the prior, nats per image", "rate", 2),
    ]
    if results.latents.continuous and results.latents.discrete:
        rows += [
            ("… real units", "their part of the rate", "rate_continuous", 2),
            ("… categorical units", "their part of the rate", "rate_discrete", 2),
        ]
    if supported:
        rows += [
            ("ELBO", "minus distortion minus rate: at most the log-likelihood, nats per image", "elbo", 2),
            (
                "log-likelihood",
                f"importance-weighted estimate with {words.number(scores['importance_samples'], 0)} codes per image, nats per image",
                "log_likelihood_iwae",
                2,
            ),
        ]
    else:
        rows.append(
            ("− cross-entropy − rate", "the training objective’s value at β = 1; not an ELBO", "negative_cross_entropy_minus_rate", 2)
        )
    rows.append(("mean squared error", "per pixel, pixels in [0, 1]", "mse", 4))
    table = []
    for name, meaning, field, places in rows:
        cells = []
        for split in (scores, scores["train"]):
            cells += [_number(split.get(field), places), _error(split.get(f"{field}_se"), places)]
        table.append((name, meaning, cells))
    return table


def _grouped(parameters: Mapping[str, Any]) -> dict[str, list[tuple[str, str]]]:
    groups: dict[str, list[tuple[str, str]]] = {}
    for key, value in parameters.items():
        group = key.split(".")[0]
        groups.setdefault(group, []).append((key, _yaml(value)))
    return groups


def _yaml(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_yaml(item) for item in value)}]"
    return str(value)


def _number(value: float | None, places: int) -> Markup:
    """A cell that shows a rounded number and holds the whole one; a dash where there is none."""
    if value is None:
        return Markup("–")
    return Markup('<data value="{}">{}</data>').format(repr(float(value)), words.number(value, places))


def _error(value: float | None, places: int) -> Markup:
    return Markup("") if value is None else Markup("± {}").format(_number(value, places))


def _bits(nats: float | None) -> float | None:
    return None if nats is None else nats / words.LOG_2


def _data_uri(picture: Picture) -> Markup:
    return Markup(f"data:image/png;base64,{base64.b64encode(picture.png).decode('ascii')}")
