"""The page: tables, figures and sentences put into one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vmivae.files import replace_directory, replace_file, together
from vmivae.progress import Progress
from vmivae.reporting import charts, images, tables, template, words
from vmivae.reporting.results import Results
from vmivae.reporting.style import Picture, figures

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
                progress("drawing figures", done, len(jobs), f"(section: {section})")
    page = render(results, sections, parameters, key)
    with together():
        with replace_directory(root / "reports/figures") as folder:
            for picture in (picture for pictures in sections.values() for picture in pictures):
                (folder / f"{picture.name}.png").write_bytes(picture.png)
        with replace_file(root / "reports/report.html") as file:
            file.write_text(page, "utf-8")


def render(
    results: Results, sections: Mapping[str, list[Picture]], parameters: Mapping[str, Any], key: str
) -> str:
    """The whole page as text; everything that comes from data or parameters is escaped."""
    return template.page(
        "reporting",
        "report.html",
        f"What the codes know: {results.card.source}",
        results=results,
        pictures=sections,
        summary=words.summary(results),
        cautions=words.cautions(results, parameters),
        tiles=tables.tiles(results),
        configuration=tables.configuration(results, parameters),
        information=tables.information_rows(results),
        beside=tables.beside_rows(results),
        recipe=tables.recipe_rows(results),
        verdict=words.recipe(results),
        units=tables.unit_table(results),
        scores=tables.score_rows(results),
        disentanglement=tables.disentanglement_rows(results),
        parameters=tables.grouped(parameters),
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
    yield "information", lambda: charts.interval(results)
    yield "information", lambda: charts.information_per_unit(results)
    yield "information", lambda: charts.q_network(results)
    yield "training", lambda: charts.training(results)
    yield "training", lambda: charts.surrogate(results)
    yield "training", lambda: charts.rates(results)
    yield "images", lambda: images.reconstructions(results, decoder, shown)
    yield "images", lambda: images.prior_samples(results, decoder)
    yield "units", lambda: images.traversals(results, decoder)
    yield "units", lambda: images.manifold(results, decoder)
    yield "units", lambda: images.codes_map(results)
    for unit in results.categorical_units[:CATEGORICAL_FIGURES]:
        yield "units", lambda unit=unit: images.categories(results, decoder, unit)  # type: ignore[misc]
        yield "units", lambda unit=unit: charts.usage(results, unit)  # type: ignore[misc]
    yield "units", lambda: charts.label_information(results)
    yield "factors", lambda: charts.factor_information(results)


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
