"""The page in headless Chromium, as a reader meets it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_results import KEY, PARAMETERS, write_results

from vmivae.model import LatentSpec
from vmivae.reporting import write_report

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_results(
        tmp_path_factory.mktemp("run"), LatentSpec(4, (5,)), classes=["a", "b", "c", "d", "e"]
    )
    write_report(root, PARAMETERS, KEY, seed=0)
    return root


@pytest.fixture(scope="module")
def browser() -> Iterator[sync_api.Browser]:
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_is_whole_silent_and_asks_for_nothing(
    report: Path, browser: sync_api.Browser, width: int
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    address = (report / "reports/report.html").as_uri()
    page.goto(address)

    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [address]
    widths = page.eval_on_selector_all("figure img", "images => images.map(image => image.naturalWidth)")
    assert len(widths) == len(list((report / "reports/figures").iterdir()))
    assert min(widths) > 500
    assert page.eval_on_selector_all("figure img", "images => images.every(image => image.alt.length > 10)")
    headings = page.locator("h2").all_inner_texts()
    assert [heading.split(" ", 1)[-1] for heading in headings[1:]] == [
        "Configuration",
        "Information",
        "Training and rate",
        "Quality",
        "What the units do",
        "Terms",
        "Provenance",
    ]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


def test_the_numbers_shown_are_those_of_the_metrics(report: Path, browser: sync_api.Browser) -> None:
    information = json.loads((report / "metrics/mi.json").read_text("utf-8"))
    page = browser.new_page()
    page.goto((report / "reports/report.html").as_uri())
    total = page.locator("#bounds tr.strong td")
    assert total.nth(0).inner_text() == f"{information['lower']:.3f}"
    assert total.nth(1).inner_text() == f"± {information['lower_se']:.3f}"
    rows = page.eval_on_selector_all(
        "#units tbody tr",
        "rows => rows.map(row => [row.cells[0].innerText, Number(row.querySelector('data').value)])",
    )
    assert dict(rows) == {unit: bound["lower"] for unit, bound in information["per_unit"].items()}
    page.close()
