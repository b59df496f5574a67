"""Stages on tiny data without a tracking store, and what they leave behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from workplace import STAGES, Workplace

from vmivae.reporting import style

NOWHERE = "sqlite:////dev/null/mlflow.db"


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """A workplace in which every stage has run once; not to be changed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", NOWHERE)
        patch.setattr(style, "DPI", 40)
        place = Workplace.make(tmp_path_factory.mktemp("finished") / "checkout")
        for stage in STAGES:
            place.main(stage)
    return place


@pytest.fixture
def place(finished: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    """A workplace with the results of an earlier run, and no store that could be reached."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOWHERE)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    monkeypatch.setattr(style, "DPI", 40)
    return finished.copy(tmp_path / "checkout")
