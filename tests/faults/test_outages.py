"""MLflow absent, gone, slow, refusing, or its disk full: full speed, one warning, a complete row later."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from workplace import STAGES, Workplace

from vmivae.params import load_params
from vmivae.tracking import run as run_module
from vmivae.tracking import stage
from vmivae.tracking.store import ENVIRONMENT, Store, open_store

pytestmark = pytest.mark.slow

CURVE = "training/loss"


class Server:
    """An HTTP server on this machine that answers every request alike."""

    def __init__(self, seconds: float, code: int) -> None:
        self.requests = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests += 1
                time.sleep(seconds)
                self.send_response(code)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            do_POST = do_GET

            def log_message(self, *arguments: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, *arguments: object) -> None:
                """A recorder that is not waited for any more leaves in the middle of a request."""

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def answering(request: pytest.FixtureRequest) -> Iterator[Server]:
    server = Server(*request.param)
    yield server
    server.close()


@pytest.fixture
def there(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    """The current folder is the workplace, and what MLflow's own time limits are is scaled down."""
    monkeypatch.chdir(place.root)
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setattr(run_module, "FLUSH_SECONDS", 0.0)
    monkeypatch.setattr(run_module, "SERVER_SECONDS", 2.0)
    monkeypatch.setattr(run_module, "FAILURE_SECONDS", 2.0)
    return place


def work(place: Workplace) -> list[float]:
    """Log as training does, fifty times in a second; returns the seconds that each call took."""
    params = load_params(place.root / "params.yaml")
    taken = []
    with stage("train", params) as run:
        for step in range(50):
            time.sleep(0.02)
            began = time.monotonic()
            run.log(step, {"loss": 1.0})
            taken.append(time.monotonic() - began)
    return taken


def lost_nothing(taken: list[float]) -> bool:
    """Whether that second lost less than 5%: calls as a rule, and none that waited for an answer."""
    return 50 * statistics.median(taken) < 0.05 and max(taken) < 0.5


def completed(place: Workplace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Store:
    """The store after it has come back and the next stage has run."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    with stage("report", load_params(place.root / "params.yaml")):
        pass
    return open_store(place.root, "vmivae")


@pytest.mark.parametrize(
    "answering",
    [(0.9, 200), (30.0, 200), (0.0, 500), (0.0, 429), (0.0, 200)],
    ids=["slow", "silent", "500", "429", "no MLflow"],
    indirect=True,
)
def test_a_server_that_is_no_help_costs_no_work(
    there: Workplace,
    answering: Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", answering.address)
    began = time.monotonic()
    assert lost_nothing(work(there))
    assert time.monotonic() - began < 15
    assert answering.requests > 0
    warning = capsys.readouterr().err
    assert warning.count("\n") == 1
    assert warning.startswith(f"warning: MLflow at {answering.address} did not take the results (")
    assert "make sync" in warning
    (row,) = completed(there, monkeypatch, tmp_path).search("")
    assert row.info.status == "FINISHED"
    assert {"train.loss", "evaluation.mse", "mi.lower", CURVE} <= set(row.data.metrics)


@pytest.mark.usefixtures("recorder_here")
@pytest.mark.parametrize("when", ["from the start", "half-way"])
def test_a_store_that_breaks_costs_one_warning(
    there: Workplace,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    when: str,
) -> None:
    from mlflow import MlflowClient

    calls = []
    log_batch = MlflowClient.log_batch

    def breaks(self: MlflowClient, *arguments: object, **options: object) -> object:
        calls.append(1)
        if when == "from the start" or len(calls) > 3:
            raise OSError(28, "database or disk is full")
        return log_batch(self, *arguments, **options)

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "log_batch", breaks)
        assert lost_nothing(work(there))
    warning = capsys.readouterr().err
    assert warning.count("\n") == 1
    assert "database or disk is full" in warning
    (row,) = completed(there, monkeypatch, tmp_path).search("")
    assert row.info.status == "FINISHED"
    assert {"train.loss", "evaluation.mse", "mi.lower", CURVE} <= set(row.data.metrics)


def test_stages_of_their_own_finish_without_a_server(there: Workplace) -> None:
    before = there.files()
    for name in STAGES:
        began = time.monotonic()
        done = there.run(name, MLFLOW_TRACKING_URI="http://127.0.0.1:9", MLFLOW_HTTP_REQUEST_TIMEOUT="10")
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("warning: MLflow") == 1
        assert "Traceback" not in done.stderr
        assert time.monotonic() - began < 60
    names = {name for name in there.files() if not name.startswith("reports/figures")}
    assert {name for name in before if not name.startswith("reports/figures")} == names
