"""A repository of its own with the working tree's files, in which real `dvc` runs."""

from collections.abc import Iterator

import pytest
from repository import ALL, Repository, new_repository, stages_run


@pytest.fixture(scope="module", autouse=True)
def _own_store() -> Iterator[None]:
    """No store but the repository's, looked at after other processes changed, or rebuilt, it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MLFLOW_TRACKING_URI", "DVC_ROOT"):
            patch.delenv(name, raising=False)
        patch.setenv("MLFLOW_SQLALCHEMYSTORE_POOLCLASS", "NullPool")
        yield


@pytest.fixture
def another(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """A repository for one test alone, in which nothing has run."""
    return new_repository(tmp_path_factory.mktemp("pipeline") / "vmivae", tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """A repository for the tests of one file, after a first `dvc repro`, its results committed."""
    root = tmp_path_factory.mktemp("pipeline") / "vmivae"
    repository = new_repository(root, tmp_path_factory.mktemp("home"))
    assert stages_run(repository.run("dvc", "repro")) == ALL
    repository.commit()
    return repository
