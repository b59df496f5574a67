"""Small results of every kind, and figures of few pixels where nobody looks at them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_results import KEY, PARAMETERS, write_results

from vmivae.model import LatentSpec
from vmivae.reporting import style, write_report
from vmivae.reporting.results import Results


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures at 40 dots per inch: all the same work, little time."""
    monkeypatch.setattr(style, "DPI", 40)


@pytest.fixture
def small(tmp_path: Path) -> Callable[..., Results]:
    """Makes `Results` from files written for the purpose; arguments are those of `write_results`."""

    def make(continuous: int = 2, discrete: tuple[int, ...] = (3,), **kind: Any) -> Results:
        return Results.load(write_results(tmp_path / "run", LatentSpec(continuous, discrete), **kind))

    return make


@pytest.fixture
def reported(tmp_path: Path, coarse: None) -> Callable[..., Path]:
    """Writes a whole report and gives its folder; arguments are those of `write_results`."""

    def make(continuous: int = 2, discrete: tuple[int, ...] = (3,), **kind: Any) -> Path:
        root = write_results(tmp_path / "run", LatentSpec(continuous, discrete), **kind)
        write_report(root, PARAMETERS, KEY, seed=0)
        return root / "reports"

    return make


@pytest.fixture(scope="session")
def ordinary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report on two real units, a categorical one, and grey images under a Bernoulli."""
    root = write_results(tmp_path_factory.mktemp("ordinary"), LatentSpec(2, (3,)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(style, "DPI", 40)
        write_report(root, PARAMETERS, KEY, seed=0)
    return root / "reports"
