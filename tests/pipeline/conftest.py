"""A repository of its own with the working tree's files, in which real `dvc` runs."""

import shutil
import subprocess
from pathlib import Path

import pytest
from repository import ALL, SMALL, Repository, stages_run

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """A repository in which nothing has run."""
    return new_repository(tmp_path_factory)


@pytest.fixture
def another(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """A repository for one test alone, in which nothing has run."""
    return new_repository(tmp_path_factory)


def new_repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """The working tree's files with small parameters in a repository of their own, committed."""
    root = tmp_path_factory.mktemp("pipeline") / "vmivae"
    repository = Repository(root, tmp_path_factory.mktemp("home"))
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file() and not name.startswith("metrics/") and name != "dvc.lock":
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name)
    repository.set_params(SMALL)
    repository.run("git", "init", "-q", ".")
    repository.run("git", "add", "-A")
    repository.run("git", "commit", "-qm", "Start")
    return repository


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
