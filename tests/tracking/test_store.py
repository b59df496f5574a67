"""One store per main checkout, from wherever a stage runs."""

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vmivae.tracking.store import StoreError, is_server, main_root, open_store, shown, tracking_uri


def test_throwaway_copies_use_the_main_checkout(checkout, monkeypatch):
    copy = checkout.root / ".dvc/tmp/exps/standalone/tmpabc"
    copy.mkdir(parents=True)
    monkeypatch.chdir(copy)
    assert main_root() == checkout.root
    monkeypatch.setenv("DVC_ROOT", str(checkout.root))
    assert main_root() == checkout.root


def test_default_store_is_at_the_root(checkout):
    assert tracking_uri(checkout.root) == f"sqlite:///{checkout.root}/mlflow.db"
    store = open_store(checkout.root, "vmivae")
    experiment = store.client.get_experiment(store.experiment_id)
    assert experiment.artifact_location == str(checkout.root / "mlartifacts" / "vmivae")
    assert (checkout.root / "mlflow.db").exists()


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("sqlite:///results/rows.db", "sqlite:///{root}/results/rows.db"),
        ("sqlite:////somewhere/rows.db", "sqlite:////somewhere/rows.db"),
        ("http://example.org:5000", "http://example.org:5000"),
    ],
)
def test_environment_names_the_store(checkout, monkeypatch, uri, expected):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert tracking_uri(checkout.root) == expected.format(root=checkout.root)


def test_password_is_not_shown():
    assert shown("https://ann:secret@example.org/mlflow") == "https://example.org/mlflow"
    assert (
        shown("no answer from http://ann:s@cret@example.org/x, twice")
        == "no answer from http://example.org/x, twice"
    )
    assert shown("sqlite:////tmp/a@b/mlflow.db") == "sqlite:////tmp/a@b/mlflow.db"
    assert is_server("https://example.org")


def test_moved_checkout_is_refused_with_a_remedy(checkout):
    open_store(checkout.root, "vmivae")
    moved = checkout.root.with_name("moved")
    checkout.root.rename(moved)
    with pytest.raises(StoreError, match="make sync"):
        open_store(moved, "vmivae")


def test_deleted_experiment_comes_back(checkout):
    store = open_store(checkout.root, "vmivae")
    store.client.delete_experiment(store.experiment_id)
    again = open_store(checkout.root, "vmivae")
    assert again.client.get_experiment(again.experiment_id).lifecycle_stage == "active"


def _first_use(root: str, results: "multiprocessing.Queue[str]") -> None:
    try:
        store = open_store(Path(root), "vmivae")
        results.put(store.experiment_id)
    except Exception as error:
        results.put(f"failed: {error}")


@pytest.mark.slow
def test_parallel_first_uses_make_one_store(checkout):
    (checkout.root / "mlflow.db").unlink()
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = [context.Process(target=_first_use, args=(str(checkout.root), results)) for _ in range(3)]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join()
    assert len(set(found)) == 1
    assert not found[0].startswith("failed")


def test_user_settings_of_mlflow_win(checkout):
    code = (
        "from pathlib import Path; from vmivae.tracking.store import connect; connect(Path('.').resolve()); "
        "from mlflow.environment_variables import MLFLOW_HTTP_REQUEST_TIMEOUT as t, "
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES as r; print(t.get(), r.get())"
    )
    environment = os.environ | {"MLFLOW_HTTP_REQUEST_TIMEOUT": "77"}
    environment.pop("MLFLOW_HTTP_REQUEST_MAX_RETRIES", None)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["77", "1"]
