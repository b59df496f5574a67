"""`python -m vmivae.tracking where | ui | sync`."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from vmivae import stage
from vmivae.errors import UserError
from vmivae.params import load_params
from vmivae.tracking.store import ENVIRONMENT, is_server, main_root, one_line, open_store, shown, tracking_uri

HOST = "127.0.0.1"
OF_THE_SERVER = {"MLFLOW_LOGGING_LEVEL": "WARNING", "PYTHONWARNINGS": "ignore"}


def where() -> None:
    """Say where the report is and how to open MLflow."""
    root, report = main_root(), Path("reports/report.html").resolve()
    uri = tracking_uri(root)
    print()
    print(f"report   {report}" if report.exists() else "report   none yet: run `make repro`")
    print(f"MLflow   {shown(uri)}" if is_server(uri) else "MLflow   make ui, then the address that it prints")
    print("         make sync mirrors what DVC restored from its cache, and every experiment")


def ui(port: Annotated[int, typer.Option(min=1, max=65535)] = 5000) -> None:
    """Serve MLflow's pages over this checkout's store on 127.0.0.1."""
    root = main_root()
    uri = tracking_uri(root)
    if is_server(uri):
        raise UserError(
            f"MLFLOW_TRACKING_URI: rows are at {shown(uri)}, open that; unset it for the local store"
        )
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise UserError(
                f"port {port} of {HOST}: cannot be used ({error.strerror}); another: make ui PORT={port + 1}"
            ) from None
    users = dict(os.environ)
    rows = open_store(root, load_params(root / "params.yaml").tracking.experiment)
    # MLflow's first page is about language models; the rows have a page of their own.
    print(
        f"MLflow: http://{HOST}:{port}/#/experiments/{rows.experiment_id}/runs (Ctrl-C ends it)", flush=True
    )
    server = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri]
    server += ["--artifacts-destination", str(root / "mlartifacts")]
    server += ["--host", HOST, "--port", str(port), "--workers", "1"]
    os.execve(sys.executable, server, ENVIRONMENT | OF_THE_SERVER | users)


def sync() -> None:
    """Mirror the results of the workspace and of every DVC experiment to MLflow."""
    from vmivae.tracking.sync import sync as synchronize

    # Here somebody waits for it, so a slow server is given time.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
    root = main_root()
    try:
        for line in synchronize(root):
            print(line, flush=True)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"MLflow at {shown(tracking_uri(root))}: {one_line(error)}") from None


if __name__ == "__main__":
    stage.run(where, ui, sync, again="the same command begins again")
