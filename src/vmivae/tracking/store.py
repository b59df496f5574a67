"""Where rows are kept: one store per main checkout, or the server that `MLFLOW_TRACKING_URI` names."""

from __future__ import annotations

import logging
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from filelock import FileLock

from vmivae.errors import UserError

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

KEY_TAG = "vmivae.key"
# MLflow's pages for training runs, not those for language-model traces.
KIND_TAG = "mlflow.experimentKind"
LOCK_SECONDS = 60.0

# MLflow reads these when it is imported or called. By its own defaults a dead server costs minutes.
ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "GIT_PYTHON_REFRESH": "quiet",
}


class StoreError(UserError):
    """The store cannot be used as it is; says what to do."""


def main_root() -> Path:
    """Root of the main checkout, also from within the throw-away copies that DVC makes below its .dvc/tmp."""
    here = Path(os.environ.get("DVC_ROOT") or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if folder.name == "tmp" and folder.parent.name == ".dvc":
            return folder.parent.parent
    return here


def tracking_uri(root: Path) -> str:
    """`MLFLOW_TRACKING_URI`, or the SQLite file mlflow.db at `root`; relative paths are taken from `root`."""
    uri = os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"
    if uri.startswith("sqlite:///") and not uri.startswith("sqlite:////"):
        return f"sqlite:///{root / uri.removeprefix('sqlite:///')}"
    if "://" not in uri and not uri.startswith(("file:", "databricks")):
        return str(root / uri)
    return uri


def database(uri: str) -> Path | None:
    """The file of an SQLite store; None for any other."""
    return Path(uri.removeprefix("sqlite:///").split("?")[0]) if uri.startswith("sqlite:///") else None


def is_server(uri: str) -> bool:
    """Whether rows go to a server, which keeps the artifacts too."""
    return uri.startswith(("http://", "https://", "databricks"))


def shown(text: str) -> str:
    """An address, or a text with addresses, without the user names and passwords that they may hold."""
    return re.sub(r"://[^/\s]*@", "://", text)


def one_line(error: Exception) -> str:
    """What an error says, on one line of at most 200 characters, without passwords of addresses."""
    # Imported here, it would be by a thread beside others that import; where it is not, it made no error.
    requests = sys.modules.get("requests")
    if requests and isinstance(error.__context__, (requests.ConnectionError, requests.Timeout)):
        return "it does not answer"
    text = shown(" ".join(str(error).split())) or type(error).__name__
    return text if len(text) <= 200 else text[:199] + "…"


@dataclass(frozen=True)
class Store:
    """An MLflow experiment, and the lock under which its rows are made.

    The lock (a file in the folder .vmivae, see `connect`) keeps parallel workers from making one row twice,
    and from the failures that parallel first uses of an SQLite store have.
    """

    client: MlflowClient
    experiment_id: str
    lock: FileLock

    def row_lock(self, key: str) -> FileLock:
        """The lock under which a configuration's row is filled."""
        return FileLock(Path(self.lock.lock_file).with_name(f"{key}.lock"), timeout=LOCK_SECONDS)

    def find(self, key: str) -> Run | None:
        """The row of a configuration."""
        rows = self.search(f"tags.`{KEY_TAG}` = '{key}'")
        return rows[0] if rows else None

    def search(self, condition: str) -> list[Run]:
        """Rows that fulfil a condition in MLflow's language, oldest first."""
        return search(self.client, [self.experiment_id], condition)


def search(client: MlflowClient, experiment_ids: list[str], condition: str) -> list[Run]:
    """All rows of MLflow experiments that fulfil a condition, oldest first; MLflow gives a page at a time."""
    rows: list[Run] = []
    token = None
    while True:
        page = client.search_runs(
            experiment_ids, condition, order_by=["attributes.start_time ASC"], page_token=token
        )
        rows += page
        token = page.token
        if not token:
            return rows


class _InTurn:
    """An MLflow client that does one thing at a time, over all processes that use the same store.

    SQLite lets a reader that turns writer fail at once ("database is locked") where another did the same.
    """

    def __init__(self, client: MlflowClient, lock: FileLock) -> None:
        self._client, self._lock = client, lock

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(*arguments: Any, **options: Any) -> Any:
            with self._lock:
                return method(*arguments, **options)

        return call


def connect(root: Path) -> tuple[MlflowClient, FileLock]:
    """A client of the main checkout's store, whose tables are there from now on, and the store's lock.

    The lock lies in the folder .vmivae beside an SQLite file, which several checkouts may share, and at the
    main checkout's root otherwise.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    # What matters is told of once, by us.
    logging.getLogger("mlflow").setLevel(os.environ["MLFLOW_LOGGING_LEVEL"])
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    file = database(tracking_uri(root))
    folder = (file.parent if file else root) / ".vmivae"
    folder.mkdir(exist_ok=True)
    lock = FileLock(folder / "store.lock", timeout=LOCK_SECONDS)
    with lock:
        # The tables are made by the client itself, or by its first use.
        client = MlflowClient(tracking_uri(root))
        client.search_experiments(max_results=1)
    return (cast("MlflowClient", _InTurn(client, lock)) if file else client), lock


def open_store(root: Path, experiment: str) -> Store:
    """Open the store of the main checkout at `root`, making it and the experiment where needed.

    Raises:
        StoreError: the store keeps its artifacts at another place, as after the checkout was moved.
        Exception: whatever MLflow raises where the store or server cannot be used.
    """
    client, lock = connect(root)
    # MLflow's own default for artifacts is a folder where the process happens to be.
    server = is_server(tracking_uri(root))
    name = "_" if experiment in (".", "..") else experiment.replace("/", "_")
    artifacts = None if server else str(root / "mlartifacts" / name)
    with lock:
        found = client.get_experiment_by_name(experiment)
        if found is None:
            made = client.create_experiment(
                experiment, artifacts, tags={KIND_TAG: "custom_model_development"}
            )
            return Store(client, made, lock)
        if found.lifecycle_stage == "deleted":
            client.restore_experiment(found.experiment_id)
    if not os.environ.get("MLFLOW_TRACKING_URI") and found.artifact_location != artifacts:
        raise StoreError(
            f"mlflow.db: its artifacts are in {found.artifact_location}, not in {artifacts}; if the "
            "checkout was moved, remove mlflow.db and mlartifacts, then `make sync`"
        )
    return Store(client, found.experiment_id, lock)
