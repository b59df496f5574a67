"""The commands behind `make repro`, `make ui` and `make sync`."""

import os
import socket
import subprocess
import sys

import pytest


def _run(checkout, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "vmivae.tracking", *arguments],
        cwd=checkout.root,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_where_names_report_and_next_command(checkout):
    assert "none yet" in _run(checkout, "where").stdout
    checkout.report()
    shown = _run(checkout, "where").stdout
    assert str(checkout.root / "reports/report.html") in shown
    assert "make ui" in shown
    shown = _run(checkout, "where", MLFLOW_TRACKING_URI="https://ann:secret@example.org").stdout
    assert "https://example.org" in shown
    assert "secret" not in shown


def test_ui_on_a_port_in_use_says_so(checkout):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = _run(checkout, "ui", "--port", str(port))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"make ui PORT={port + 1}" in done.stderr


def test_ui_with_a_server_of_ones_own_names_it(checkout):
    done = _run(checkout, "ui", MLFLOW_TRACKING_URI="https://ann:secret@example.org")
    assert done.returncode == 2
    assert "https://example.org" in done.stderr
    assert "secret" not in done.stderr


@pytest.mark.slow
def test_sync_outside_a_checkout_is_one_line(checkout):
    done = _run(checkout, "sync")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
