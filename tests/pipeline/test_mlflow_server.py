"""MLflow's pages over the pipeline's rows, opened in a browser; and a server of one's own."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from urllib.parse import quote

import mlflow
import numpy as np
import pytest

from vmivae.tracking.store import open_store

pytestmark = pytest.mark.slow

# MLflow asks who is logged in, also where nobody can log in.
OWN_NOISE = ("/users/current",)


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@contextlib.contextmanager
def _serving(repository, log, port, *command):
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=repository.root,
            env=repository.environment | {"PYTHONPATH": "src"},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            assert process.poll() is None, log.read_text()
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/health"):
                break
            time.sleep(0.5)
        yield address
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise


@pytest.fixture(scope="module")
def two_rows(reproduced):
    """The repository with a second row, of an experiment in the workspace: an estimate with more samples."""
    experiment = ["dvc", "exp", "run", "--name", "in-the-workspace"]
    reproduced.run(*experiment, "-S", "mutual_information.samples=240")
    reproduced.run("git", "checkout", "-q", ".")
    reproduced.run("dvc", "checkout", "--force", "--quiet")
    return reproduced


@pytest.fixture
def page():
    """A page in a headless browser, and what its console complained about."""
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("needs Chromium (Debian: apt-get install chromium)")
    with playwright.sync_playwright() as p:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        browser = p.chromium.launch(executable_path=chromium, args=arguments)
        page = browser.new_page(viewport={"width": 1600, "height": 1000})
        page.set_default_timeout(60_000)
        complaints = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console",
            lambda message: (
                complaints.append(f"{message.text} {message.location.get('url')}")
                if message.type == "error"
                else None
            ),
        )
        yield page, complaints
        browser.close()


def test_runs_and_their_comparison_open_in_a_browser(two_rows, page, tmp_path):
    page, complaints = page
    store = two_rows.store()
    rows = store.search("")
    assert "in-the-workspace" in {row.info.run_name for row in rows}
    port = _free_port()
    command = ["python", "-m", "vmivae.tracking", "ui", "--port", str(port)]
    with _serving(two_rows, tmp_path / "log", port, *command) as address:
        (printed,) = re.findall(r"http://\S*/runs", (tmp_path / "log").read_text())
        assert printed.startswith(address)
        page.goto(printed)
        for row in rows:
            page.get_by_text(row.info.run_name).first.wait_for()
        page.screenshot(path=str(tmp_path / "runs.png"))

        ids = quote(json.dumps([row.info.run_id for row in rows]))
        experiments = quote(json.dumps([store.experiment_id]))
        page.goto("about:blank")
        page.goto(f"{address}/#/compare-runs?runs={ids}&experiments={experiments}")
        # The table of metrics is drawn as far as it is scrolled to.
        first_metrics = sorted(name for name in rows[0].data.metrics if name.startswith("evaluation."))[:2]
        for text in ("mutual_information.samples", *first_metrics, *(row.info.run_name for row in rows)):
            page.get_by_text(text, exact=True).filter(visible=True).first.wait_for()
        page.screenshot(path=str(tmp_path / "compare.png"))

        page.goto("about:blank")
        page.goto(f"{address}/#/experiments/{store.experiment_id}/runs/{rows[0].info.run_id}/artifacts")
        page.get_by_text("reports", exact=True).filter(visible=True).first.click()
        page.get_by_text("report.html", exact=True).filter(visible=True).first.click()
        key = rows[0].data.tags["vmivae.key"]
        page.frame_locator("iframe").get_by_text(key[:12]).first.wait_for(state="attached")
        page.screenshot(path=str(tmp_path / "artifacts.png"))
    assert [text for text in complaints if not any(noise in text for noise in OWN_NOISE)] == []


def test_a_server_of_ones_own_takes_the_same_rows(two_rows, tmp_path, monkeypatch):
    port = _free_port()
    server = ["mlflow", "server", "--port", str(port), "--workers", "1"]
    server += ["--backend-store-uri", f"sqlite:///{tmp_path}/rows.db"]
    server += ["--artifacts-destination", str(tmp_path / "artifacts")]
    local = {row.data.tags["vmivae.key"]: row for row in two_rows.store().search("")}
    with _serving(two_rows, tmp_path / "log", port, *server) as address:
        environment = {"MLFLOW_TRACKING_URI": address, "PYTHONPATH": "src"}
        two_rows.run("python", "-m", "vmivae.tracking", "sync", **environment)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        store = open_store(two_rows.root, "vmivae")
        rows = {row.data.tags["vmivae.key"]: row for row in store.search("")}
        # The workspace's row and one for each experiment that other tests have made.
        assert rows
        for key, row in rows.items():
            assert row.data.params == local[key].data.params
            assert row.data.metrics["mi.lower"] == local[key].data.metrics["mi.lower"]
            assert row.info.artifact_uri.startswith("mlflow-artifacts:")
            assert store.client.list_artifacts(row.info.run_id, "reports")
        mlflow.set_tracking_uri(address)
        model = store.client.get_logged_model(row.outputs.model_outputs[0].model_id)
        encoder = mlflow.pyfunc.load_model(model.model_uri)
        assert encoder.predict(np.zeros((3, 1, 8, 8), np.float32)).shape == (3, 12)
    assert not (two_rows.root / "mlruns").exists()
