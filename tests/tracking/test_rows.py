"""The rows of a comparison's experiments, from an MLflow store."""

from pathlib import Path

import pytest

from vmivae.comparison.rows import read_rows
from vmivae.tracking.configuration import Configuration
from vmivae.tracking.mirror import mirror
from vmivae.tracking.store import open_store
from vmivae.tracking.tree import Tree


@pytest.fixture
def mirrored(checkout):
    """Mirrors the checkout's results as those of a DVC experiment."""

    def mirror_as(name: str) -> None:
        configuration = Configuration(Tree.folder(checkout.root))
        store = open_store(checkout.root, configuration.experiment)
        mirror(store, configuration, configuration.stages, {}, name)

    checkout.all()
    return mirror_as


def test_experiments_of_one_configuration_share_its_row(checkout, mirrored) -> None:
    for name in ("mine-elbo-s0", "yours-elbo-s0", "mine-elbo-s0"):
        mirrored(name)
    rows = read_rows(Path(checkout.root), ["mine-elbo-s0", "yours-elbo-s0"])
    assert rows["mine-elbo-s0"] == rows["yours-elbo-s0"]
    assert rows["mine-elbo-s0"]["mi.lower"] == 3.25
    (row,) = checkout.store().search("")
    assert row.data.tags["vmivae.dvc_experiment"] == "mine-elbo-s0 yours-elbo-s0"


def test_rows_are_found_in_the_experiment_that_they_were_logged_to(checkout, mirrored) -> None:
    mirrored("a-plain-s0")
    checkout.set("tracking.experiment", "elsewhere")
    checkout.set("mutual_information.samples", 17)
    mirrored("b-plain-s0")
    assert set(read_rows(Path(checkout.root), ["a-plain-s0", "b-plain-s0"])) == {"a-plain-s0", "b-plain-s0"}
