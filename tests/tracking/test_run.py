"""A stage under its row: running, finished, failed, repeated; and a store that does not answer."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import mlflow
import numpy as np
import pytest
import torch

from vmivae.errors import NonFiniteError
from vmivae.model import load_vae
from vmivae.tracking import configuration_key, stage
from vmivae.tracking import run as run_module
from vmivae.tracking.facts import read_facts


def _rows(checkout):
    store = checkout.store()
    return store.client, store.search("")


def _pipeline(checkout, **results):
    """Every stage in turn, as DVC would run them."""
    for name in ("prepare", "train", "evaluate", "estimate_mi", "report"):
        with stage(name, checkout.params):
            getattr(checkout, name)(**results.get(name, {}))


@pytest.mark.usefixtures("recorder_here")
def test_pipeline_makes_one_complete_row(checkout):
    _pipeline(checkout)
    client, (row,) = _rows(checkout)
    metrics, tags = row.data.metrics, row.data.tags
    assert row.info.status == "FINISHED"
    assert row.info.run_name.startswith("mnist5k-capacity-z2-c3-")
    assert metrics["train.rate"] == 6.25
    assert metrics["evaluation.elbo"] == -99.5
    assert metrics["evaluation.units.z0.rate"] == 1.5
    assert metrics["mi.per_unit.z0.lower"] == 1.125
    assert "mi.upper" not in metrics
    assert {f"seconds.{name}" for name in ("prepare", "train", "evaluate", "estimate_mi", "report")} <= set(
        metrics
    )
    assert tags["evaluation.distortion_kind"] == "cross-entropy"
    assert tags["vmivae.trained_by"] == row.info.run_id
    assert row.data.params["objective.capacity.continuous.end"] == "5.0"
    assert row.data.params["latents.continuous"] == "2"
    points = client.get_metric_history(row.info.run_id, "training/loss")
    assert [(point.step, point.value) for point in points] == [(10, 120.0), (20, 93.5)]
    # An empty cell is no point.
    assert len(client.get_metric_history(row.info.run_id, "training/capacity_continuous")) == 1
    assert metrics["q_network/log_q"] == -8.0
    names = {file.path for file in client.list_artifacts(row.info.run_id, "reports")}
    assert names == {"reports/report.html", "reports/figures"}
    (dataset,) = row.inputs.dataset_inputs
    assert (dataset.dataset.name, dataset.dataset.digest) == ("mnist5k", "a" * 36)


@pytest.mark.usefixtures("recorder_here")
def test_logged_model_encodes_images_without_pickle(checkout):
    _pipeline(checkout)
    client, (row,) = _rows(checkout)
    (output,) = row.outputs.model_outputs
    mlflow.set_tracking_uri(f"sqlite:///{checkout.root}/mlflow.db")
    model = client.get_logged_model(output.model_id)
    encoder = mlflow.pyfunc.load_model(model.model_uri)
    images = np.random.default_rng(0).random((4, 1, 8, 8), np.float32)
    expected = load_vae(checkout.root / "models/vae").posterior(torch.as_tensor(images)).expectation
    np.testing.assert_allclose(encoder.predict(images), expected.detach().numpy(), rtol=1e-6)
    example = encoder.input_example
    np.testing.assert_allclose(example, np.full((2, 1, 8, 8), 0.2), rtol=1e-6)
    assert encoder.metadata.signature.inputs.inputs[0].shape == (-1, 1, 8, 8)
    files = mlflow.artifacts.download_artifacts(artifact_uri=model.model_uri)
    suffixes = {file.suffix for file in Path(files).rglob("*") if file.is_file()}
    assert not suffixes & {".pkl", ".pickle", ".pt", ".pth"}


@pytest.mark.usefixtures("recorder_here")
def test_changed_estimate_gets_a_complete_row_that_names_its_trainer(checkout):
    _pipeline(checkout)
    checkout.set("mutual_information.samples", 17)
    for name in ("estimate_mi", "report"):
        with stage(name, checkout.params):
            getattr(checkout, name)()
    client, rows = _rows(checkout)
    first, second = rows
    assert second.data.metrics["train.loss"] == 93.5
    assert second.data.metrics["evaluation.elbo"] == -99.5
    assert len(client.get_metric_history(second.info.run_id, "training/loss")) == 2
    assert second.outputs.model_outputs
    assert second.data.tags["vmivae.trained_by"] == first.info.run_id


@pytest.mark.usefixtures("recorder_here")
def test_new_configuration_takes_no_stale_results(checkout):
    _pipeline(checkout)
    checkout.set("objective.gamma", 31.0)
    with stage("train", checkout.params):
        checkout.train(loss=80.0)
    _, (_, row) = _rows(checkout)
    assert row.data.metrics["train.loss"] == 80.0
    assert not [name for name in row.data.metrics if name.startswith(("evaluation.", "mi."))]


@pytest.mark.usefixtures("recorder_here")
def test_forced_repeat_updates_the_row(checkout):
    _pipeline(checkout)
    _, (before,) = _rows(checkout)
    _pipeline(checkout)
    client, (after,) = _rows(checkout)
    assert after.info.run_id == before.info.run_id
    assert len(client.get_metric_history(after.info.run_id, "training/loss")) == 2
    assert len(after.outputs.model_outputs) == 1


@pytest.mark.usefixtures("recorder_here")
def test_repeat_with_other_results_replaces_the_row(checkout):
    _pipeline(checkout)
    _pipeline(checkout, train={"loss": 91.0, "seed": 1})
    client, (row,) = _rows(checkout)
    assert row.data.metrics["train.loss"] == 91.0
    assert row.data.metrics["mi.lower"] == 3.25
    points = client.get_metric_history(row.info.run_id, "training/loss")
    assert [point.value for point in points] == [120.0, 91.0]


def test_live_curves_are_completed_not_doubled(checkout, monkeypatch):
    monkeypatch.setattr(run_module, "FLUSH_SECONDS", 0.0)
    checkout.prepare()
    with stage("train", checkout.params) as run:
        run.log(10, {"loss": 120.0, "kl_z0": float("nan")})
        run.wait()
        _, (row,) = _rows(checkout)
        assert row.info.status == "RUNNING"
        assert row.data.metrics["training/loss"] == 120.0
        checkout.train()
        run.timing("images_per_second", 1234.0)
    client, (row,) = _rows(checkout)
    assert [point.step for point in client.get_metric_history(row.info.run_id, "training/loss")] == [10, 20]
    assert "training/kl_z0" not in row.data.metrics
    assert row.data.metrics["seconds.train.images_per_second"] == 1234.0


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (NonFiniteError("loss became nan\nat step 7"), "FAILED", "train: loss became nan at step 7"),
        (KeyboardInterrupt(), "KILLED", "train: interrupted"),
    ],
)
def test_failure_is_shown_and_goes_on(checkout, error, status, reason):
    checkout.prepare()
    with pytest.raises(type(error)), stage("train", checkout.params):
        raise error
    _, (row,) = _rows(checkout)
    assert row.info.status == status
    assert row.data.tags["vmivae.failure"] == reason
    with stage("train", checkout.params):
        checkout.train()
    _, (row,) = _rows(checkout)
    assert row.info.status == "FINISHED"
    assert "vmivae.failure" not in row.data.tags


def test_failure_of_prepare_waits_for_nothing(checkout, capsys):
    began = time.monotonic()
    with pytest.raises(NonFiniteError), stage("prepare", checkout.params):
        raise NonFiniteError("no")
    # Less than it takes to import MLflow.
    assert time.monotonic() - began < 1.0
    assert capsys.readouterr().err == ""


def test_finished_stage_that_gave_up_is_not_shown_as_killed(checkout, capsys):
    checkout.prepare()
    (checkout.root / ".vmivae").mkdir(exist_ok=True)
    (checkout.root / ".vmivae/runs").touch()
    with stage("train", checkout.params) as run:
        run.wait()
        checkout.train()
    assert "did not take the results" in capsys.readouterr().err
    _, (row,) = _rows(checkout)
    assert row.info.status == "RUNNING"
    assert "vmivae.failure" not in row.data.tags


@pytest.mark.usefixtures("recorder_here")
def test_rows_are_named_after_the_dvc_experiment(checkout, monkeypatch):
    monkeypatch.setenv("DVC_EXP_NAME", "busby-lilt")
    _pipeline(checkout)
    _, (row,) = _rows(checkout)
    assert row.info.run_name == "busby-lilt"
    assert row.data.tags["vmivae.dvc_experiment"] == "busby-lilt"


KILLED_STAGE = """
import os, signal
from vmivae import load_params, tracking

with tracking.stage("train", load_params()) as run:
    run.wait()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_stage_that_is_killed_leaves_a_row_that_says_so(checkout):
    checkout.prepare()
    done = subprocess.run([sys.executable, "-c", KILLED_STAGE], stderr=subprocess.PIPE, text=True)
    # Its standard error is open until the recorder has ended too.
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")
    _, (row,) = _rows(checkout)
    assert row.info.status == "KILLED"
    assert row.data.tags["vmivae.failure"] == "train: ended without a word (killed, or out of memory)"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_recorder_that_is_killed_costs_one_warning(checkout, capsys, number):
    checkout.prepare()
    with stage("train", checkout.params) as run:
        run.wait()
        os.kill(run._recorder._process.pid, number)
        checkout.train()
    warning = capsys.readouterr().err
    _, (row,) = _rows(checkout)
    if number == signal.SIGTERM:
        assert (warning, row.info.status) == ("", "FINISHED")
    else:
        assert "did not take the results (the process that has MLflow ended);" in warning
        assert warning.count("\n") == 1
    assert read_facts(checkout.root, configuration_key())["train"]["seconds"] >= 0


def _silent_server():
    """A server that accepts and never answers."""
    server = socket.create_server(("127.0.0.1", 0))
    held = []

    def accept():
        while True:
            try:
                held.append(server.accept()[0])
            except OSError:
                return

    threading.Thread(target=accept, daemon=True).start()
    return server


@pytest.mark.parametrize("kind", ["refuses", "silent", "unwritable"])
def test_store_that_fails_costs_seconds_and_one_warning(checkout, monkeypatch, capsys, kind):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "2")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    server = _silent_server()
    port = server.getsockname()[1]
    if kind == "refuses":
        server.close()
    (checkout.root / "file").touch()
    uri = f"http://ann:secret@127.0.0.1:{port}"
    if kind == "unwritable":
        uri = f"sqlite:///{checkout.root}/file/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    checkout.prepare()
    started = time.monotonic()
    with stage("train", checkout.params) as run:
        for step in range(100):
            run.log(step, {"loss": 1.0})
        checkout.train()
    assert time.monotonic() - started < 15
    server.close()
    warning = capsys.readouterr().err
    assert warning.count("\n") == 1
    assert "make sync" in warning
    assert "secret" not in warning
    if kind != "unwritable":
        assert f"MLflow at http://127.0.0.1:{port} did not take the results (it does not answer);" in warning
    # What no output may hold is kept for `make sync`.
    assert read_facts(checkout.root, configuration_key())["train"]["seconds"] >= 0


LIVE_STAGE = """
import importlib.machinery, sys, threading
from vmivae import load_params, tracking

elsewhere = []
compiled = tuple(importlib.machinery.EXTENSION_SUFFIXES)

def watch(event, arguments):
    if event == "import" and str(arguments[1]).endswith(compiled):
        if threading.current_thread() is not threading.main_thread():
            elsewhere.append(arguments[0])

sys.addaudithook(watch)
with tracking.stage("train", load_params()) as run:
    run.log(1, {"loss": 1.0})
    run._flush()
    run.wait()
    print(elsewhere, "mlflow" in sys.modules)
"""


@pytest.mark.parametrize("uri", ["", "http://127.0.0.1:9"])
def test_neither_mlflow_nor_compiled_modules_are_imported_beside_the_work(checkout, monkeypatch, uri):
    checkout.prepare()
    checkout.train()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    done = subprocess.run([sys.executable, "-c", LIVE_STAGE], capture_output=True, text=True, check=True)
    assert done.stdout == "[] False\n", done.stderr
