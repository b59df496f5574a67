"""The rows of a comparison's experiments in MLflow."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from vmivae.errors import DataError
from vmivae.tracking.mirror import EXPERIMENT_TAG, experiment_names
from vmivae.tracking.store import connect, search
from vmivae.tracking.sync import sync


def read_rows(root: Path, experiments: Collection[str]) -> dict[str, dict[str, float]]:
    """Metrics of each experiment's row; rows that are missing are mirrored from DVC's files first.

    Raises:
        DataError: an experiment has no complete row even so.
    """
    found = _found(root, experiments)
    if len(found) < len(experiments):
        for _ in sync(root):
            pass
        found = _found(root, experiments)
    if missing := [name for name in experiments if name not in found]:
        raise DataError(f"{missing[0]}: has no complete row in MLflow; `make sync` may say why")
    return found


def _found(root: Path, experiments: Collection[str]) -> dict[str, dict[str, float]]:
    client, _ = connect(root)
    # A run's parameters say which MLflow experiment its row is in.
    places = [place.experiment_id for place in client.search_experiments()]
    rows = {
        name: row.data.metrics
        for row in search(client, places, f"tags.`{EXPERIMENT_TAG}` LIKE '%'")
        for name in experiment_names(row)
    }
    return {
        name: dict(rows[name])
        for name in experiments
        if name in rows and {"evaluation.rate", "mi.lower"} <= rows[name].keys()
    }
