"""Two `dvc repro` in one checkout, two checkouts on one store, a queue beside a workspace run."""

import subprocess
import time
from pathlib import Path

import pytest
from repository import Repository, new_repository, stages_run

from vmivae.tracking.store import open_store

pytestmark = pytest.mark.slow

METRICS = {"train.loss", "evaluation.mse", "mi.lower", "training/loss"}
WORKERS = 4
QUEUED = 8


def output_of(process: subprocess.Popen[str]) -> str:
    output = process.communicate(timeout=300)[0]
    assert "Traceback" not in output, output
    assert "database is locked" not in output, output
    assert "warning: MLflow" not in output, output
    return output


def test_two_repros_in_a_checkout_and_another_checkout_on_the_same_store(
    another: Repository,
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = new_repository(tmp_path_factory.mktemp("other") / "vmivae", tmp_path_factory.mktemp("home"))
    store = {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}
    first = another.start("dvc", "repro", **store)
    elsewhere = other.start("dvc", "repro", **store)
    time.sleep(8)
    second = another.start("dvc", "repro", **store)
    refused, output = output_of(second), output_of(first)
    assert first.returncode == 0, output
    assert second.returncode == 0 or "lock" in refused, refused
    assert elsewhere.wait(300) == 0, output_of(elsewhere)

    assert another.results() == other.results()
    for repository in (another, other):
        assert stages_run(repository.run("dvc", "repro", **store)) == []
        for folder in ("data", "models", "metrics", "plots", "reports"):
            assert not list((repository.root / folder).glob(".*.*")), "half-written results are left"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store["MLFLOW_TRACKING_URI"])
    # Equal configurations share a row, whoever ran them.
    (row,) = open_store(another.root, "vmivae").search("")
    assert row.info.status == "FINISHED"
    assert set(row.data.metrics) >= METRICS


def test_a_queue_with_four_workers_beside_a_workspace_run(another: Repository) -> None:
    another.run("dvc", "repro", "evaluate")
    another.commit()
    for number in range(QUEUED):
        name, value = f"queued-{number}", f"mutual_information.samples={210 + number}"
        another.run("dvc", "exp", "run", "--queue", "--name", name, "-S", value)
    another.run("dvc", "queue", "start", "--jobs", str(WORKERS))
    with another.changed({"seed": 1}):
        workspace = another.start("dvc", "repro")
        output = output_of(workspace)
        assert workspace.returncode == 0, output
        status = another.finish_queue(300)
    assert "Failed" not in status, status
    rows = [row for row in another.rows().values() if "mi.lower" in row.data.metrics]
    assert len(rows) == QUEUED + 1
    for row in rows:
        assert row.info.status == "FINISHED"
        assert set(row.data.metrics) >= METRICS
        assert row.data.params["seed"] == ("1" if row.data.tags.get("vmivae.dvc_experiment") is None else "0")
    names = {row.data.tags.get("vmivae.dvc_experiment") for row in rows}
    assert names == {None, *(f"queued-{number}" for number in range(QUEUED))}
