"""A repository of its own with the working tree's files, in which real `dvc` runs."""

import pytest
from repository import ALL, Repository, new_repository, stages_run


@pytest.fixture(scope="session")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """A repository in which nothing has run."""
    return new_repository(tmp_path_factory.mktemp("pipeline") / "vmivae", tmp_path_factory.mktemp("home"))


@pytest.fixture
def another(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """A repository for one test alone, in which nothing has run."""
    return new_repository(tmp_path_factory.mktemp("pipeline") / "vmivae", tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="session")
def reproduced(untouched: Repository) -> Repository:
    """The repository after a first `dvc repro`, its results committed."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MLFLOW_TRACKING_URI", "DVC_ROOT"):
            patch.delenv(name, raising=False)
        # Tests look at the store after other processes changed, or rebuilt, it.
        patch.setenv("MLFLOW_SQLALCHEMYSTORE_POOLCLASS", "NullPool")
        output = untouched.run("dvc", "repro")
        assert stages_run(output) == ALL
        untouched.run("git", "add", "-A")
        untouched.run("git", "commit", "-qm", "Results")
        yield untouched
