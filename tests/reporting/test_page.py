from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_results import KEY, PARAMETERS, write_results

from vmivae.errors import DataError
from vmivae.model import LatentSpec
from vmivae.reporting import write_report

Reported = Callable[..., Path]

KINDS: dict[str, dict[str, Any]] = {
    "no real units": {"continuous": 0, "discrete": (3,)},
    "no categorical units": {"continuous": 3, "discrete": ()},
    "several categorical units, labels": {"continuous": 1, "discrete": (3, 4), "classes": ["a", "b", "c"]},
    "two real units, labels": {"continuous": 2, "discrete": (), "classes": ["a", "b", "c"]},
    "a large categorical unit": {"continuous": 0, "discrete": (30,), "classes": [f"k{i}" for i in range(30)]},
    "colour": {"channels": 3, "likelihood": "gaussian"},
    "prior codes": {"codes": "prior"},
    "an interval": {"upper": True},
    "no capacity": {"capacity": False},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run_has_a_whole_report(reported: Reported, kind: str) -> None:
    reports = reported(**KINDS[kind])
    page = (reports / "report.html").read_text("utf-8")
    figures = {file.stem for file in (reports / "figures").iterdir()}
    shown = set(re.findall(r'<figure id="([^"]+)">', page))
    assert shown == figures
    assert {"overview", "information", "information_per_unit", "training", "reconstructions"} <= figures
    assert not re.search(r"\b(nan|inf|None)\b", re.sub(r"base64,[^\"]+", "", page))
    latents = LatentSpec(KINDS[kind].get("continuous", 2), KINDS[kind].get("discrete", (3,)))
    for unit in latents.units:
        assert f'<th scope="row">{unit}</th>' in page
    spent = "a budget of 256 × 1,024 decodes, for a width of 0.2 nats, with two sides for every unit"
    assert spent in re.sub(r"[\u2009\u202f]", ",", page)
    assert ("traversals" in figures) == bool(latents.continuous)
    assert ("manifold" in figures) == (latents.continuous == 2)
    for unit in latents.discrete_units:
        assert {f"categories_{unit}", f"usage_{unit}"} <= figures
    assert ("label_information" in figures) == bool(KINDS[kind].get("classes"))
    assert ("encoder information" in page) == (kind != "prior codes")


def test_the_same_inputs_give_the_same_bytes_whatever_the_global_random_state(
    tmp_path: Path, coarse: None
) -> None:
    pages = []
    for run in ("a", "b"):
        torch.manual_seed(len(pages))
        state = torch.get_rng_state()
        root = write_results(tmp_path / run, LatentSpec(2, (3,)), classes=["x", "y"])
        write_report(root, PARAMETERS, KEY, seed=4)
        assert torch.equal(torch.get_rng_state(), state)
        files = sorted((root / "reports").rglob("*.*"))
        pages.append({file.relative_to(root): file.read_bytes() for file in files if file.is_file()})
    assert pages[0] == pages[1]
    assert len(pages[0]) > 10


def test_html_in_a_class_or_a_parameter_is_escaped(tmp_path: Path, coarse: None) -> None:
    evil = "<script>alert(1)</script>"
    root = write_results(tmp_path, LatentSpec(1, (2,)), classes=[evil, "b"])
    write_report(root, PARAMETERS | {"data.source": evil, "data.root": f"{evil}&<b>"}, KEY, seed=0)
    page = (root / "reports/report.html").read_text("utf-8")
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;&lt;b&gt;" in page


def test_the_page_asks_for_nothing(ordinary: Path) -> None:
    page = (ordinary / "report.html").read_text("utf-8")
    addresses = re.findall(r'(?:src|href)="([^"]{0,30})|url\(([^)]{0,30})', page)
    assert addresses
    assert all((address or css).startswith("data:") for address, css in addresses)
    assert "http://" not in page
    assert "https://" not in page


def test_numbers_keep_their_full_value_behind_the_rounded_one(ordinary: Path) -> None:
    page = (ordinary / "report.html").read_text("utf-8")
    assert '<data value="6.4321">6.432</data>' in page
    assert '<data value="85.25">85.25</data>' in page
    assert "−92.75" in page


def test_a_cross_entropy_is_never_called_elbo_or_log_likelihood(ordinary: Path) -> None:
    table = _table(ordinary, "scores")
    assert "cross-entropy" in table
    assert ">ELBO" not in table
    assert "log-likelihood" not in table


def test_a_true_likelihood_has_its_elbo_and_log_likelihood(reported: Reported) -> None:
    table = _table(reported(likelihood="gaussian"), "scores")
    assert ">ELBO<" in table
    assert ">log-likelihood<" in table
    assert "cross-entropy" not in table


def test_an_interval_is_compared_with_the_published_recipe(reported: Reported) -> None:
    """`H(p)` of two real units and a ternary one is log 2πe + log 3 = 3.936; 6.4321 − 13.5 more is −3.13."""
    reports = reported(upper=True)
    table = _table(reports, "recipe")
    assert ">6.36<" in table
    assert ">6.86<" in table
    assert ">−3.13<" in table
    assert table.count(">below<") == 1
    assert table.count(">inside<") == 1
    page = (reports / "report.html").read_text("utf-8")
    assert "9.49 nats below the interval" in page
    assert (reports / "figures/interval.png").exists()


def test_lower_bounds_alone_are_compared_with_nothing(ordinary: Path) -> None:
    assert 'id="recipe"' not in (ordinary / "report.html").read_text("utf-8")
    assert not (ordinary / "figures/interval.png").exists()


def test_provenance_names_key_data_and_every_parameter(ordinary: Path) -> None:
    page = (ordinary / "report.html").read_text("utf-8")
    provenance = page[page.index('id="provenance"') :]
    assert KEY in provenance
    assert "d" * 64 in provenance
    for name, value in PARAMETERS.items():
        shown = "null" if value is None else str(value)
        assert f"<code>{name}</code></th><td><code>{shown}</code>" in provenance


def test_nothing_is_left_of_a_report_that_failed(tmp_path: Path, coarse: None) -> None:
    root = write_results(tmp_path, LatentSpec(1, (2,)))
    (root / "metrics/mi.json").unlink()
    with pytest.raises(DataError, match=r"metrics/mi\.json: is missing"):
        write_report(root, PARAMETERS, KEY, seed=0)
    assert not (root / "reports").exists()


def _table(reports: Path, name: str) -> str:
    page = (reports / "report.html").read_text("utf-8")
    start = page.index(f'<table id="{name}"')
    return page[start : page.index("</table>", start)]


def test_known_factors_have_a_heat_map_and_a_table_of_scores(reported: Reported) -> None:
    folder = reported(factors=["shape", "scale <b>", "position x"])
    page = (folder / "report.html").read_text("utf-8")
    assert (folder / "figures/factor_information.png").is_file()
    assert page.count('<tr><th scope="row">') > 10
    table = page[page.index('<table id="disentanglement"') :]
    table = table[: table.index("</table>")]
    assert table.count('<th scope="row">') == 10
    assert table.count('<data value="0.4321">0.432</data>') == 9  # and one that is not defined
    assert table.count('<data value="0.3333333333333333">0.33</data>') == 2  # chance with three factors
    assert "over 5 random halves" in page


def test_without_known_factors_there_is_no_such_section(ordinary: Path) -> None:
    assert "Known factors" not in (ordinary / "report.html").read_text("utf-8")
    assert not (ordinary / "figures/factor_information.png").exists()
