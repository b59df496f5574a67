"""A repository with small parameters in which a test runs real `dvc`, and reads what came of it."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from vmivae.tracking.store import Store, open_store

ROOT = Path(__file__).parents[2]
SMALL = {
    "data": {"source": "digits", "image_size": 8},
    "latents": {"continuous": 2, "discrete": [10]},
    "model": {"architecture": "mlp"},
    "objective": {
        "capacity": {
            "continuous": {"start": 0.0, "end": 2.0, "steps": 10},
            "discrete": {"start": 0.0, "end": None, "steps": 10},
        }
    },
    "train": {"epochs": 2, "batch_size": 128},
    "evaluation": {"importance_samples": 2},
    "mutual_information": {
        "q_network": {"family": "gaussian", "steps": 20, "batch_size": 64},
        "samples": 200,
        "importance": {"images": 16, "samples": 8},
    },
}
ALL = ["prepare", "train", "evaluate", "estimate_mi", "report"]


class Repository:
    """A git and DVC repository with commands run in it as a user would."""

    def __init__(self, root: Path, home: Path) -> None:
        self.root = root
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("DVC_", "MLFLOW_", "GIT_")) and name != "PYTHONPATH"
        }
        self.environment |= {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
            "DVC_NO_ANALYTICS": "1",
            "DVC_SITE_CACHE_DIR": str(home / "dvc"),
            "DVC_GLOBAL_CONFIG_DIR": str(home / "dvc"),
            "GIT_CONFIG_GLOBAL": str(home / "gitconfig"),
        }
        (home / "gitconfig").write_text(
            "[user]\n\tname = Ann\n\temail = ann@example.org\n[init]\n\tdefaultBranch = main\n"
        )

    def start(self, *command: str, **environment: str) -> subprocess.Popen[str]:
        """Start a command; all that it prints comes through its `stdout`."""
        return subprocess.Popen(
            command,
            cwd=self.root,
            env=self.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *command: str, timeout: float = 300, **environment: str) -> str:
        """Run a command that must succeed; returns all that it printed."""
        with self.start(*command, **environment) as process:
            try:
                output = process.communicate(timeout=timeout)[0]
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        assert process.returncode == 0, f"{' '.join(command)}\n{output}"
        return output

    def commit(self, message: str = "Results") -> None:
        """Commit everything there is."""
        self.run("git", "add", "-A")
        self.run("git", "commit", "-qm", message)

    def finish_queue(self, seconds: float) -> str:
        """Wait for DVC's queue, for so many seconds at most; returns its status."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            status = self.run("dvc", "queue", "status")
            if "Queued" not in status and "Running" not in status:
                break
            time.sleep(2)
        return status

    def set_params(self, changes: Mapping[str, Any]) -> None:
        """Change params.yaml, groups within groups."""
        path = self.root / "params.yaml"
        path.write_text(yaml.safe_dump(_merged(yaml.safe_load(path.read_text()), changes), sort_keys=False))

    @contextlib.contextmanager
    def changed(self, changes: Mapping[str, Any]):
        """Parameters changed for a while."""
        path = self.root / "params.yaml"
        before = path.read_text()
        self.set_params(changes)
        try:
            yield
        finally:
            path.write_text(before)

    def store(self) -> Store:
        """The store at the repository's root."""
        return open_store(self.root, "vmivae")

    def rows(self) -> dict[str, Any]:
        """Every row by its name."""
        return {row.info.run_name: row for row in self.store().search("")}

    def results(self) -> dict[str, bytes]:
        """Every file that the stages wrote."""
        folders = ("data/prepared", "data/codes", "models", "metrics", "plots", "reports")
        files = [file for folder in folders for file in (self.root / folder).rglob("*") if file.is_file()]
        return {str(file.relative_to(self.root)): file.read_bytes() for file in files if file.name[0] != "."}

    def metrics(self, name: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.root / f"metrics/{name}.json").read_text())
        return content


def new_repository(root: Path, home: Path) -> Repository:
    """The working tree's files with small parameters in a repository of their own at `root`, committed.

    Settings of git and DVC are kept in the folder `home`.
    """
    repository = Repository(root, home)
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
    repository.commit("Start")
    return repository


def stages_run(output: str) -> list[str]:
    """Stages that `dvc repro` or `dvc exp run` has run, in order."""
    return [
        line.split("'")[1] for line in output.splitlines() if line.lstrip("> ").startswith("Running stage '")
    ]


def _merged(base: Any, changes: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(changes, Mapping):
        return changes
    return base | {key: _merged(base.get(key), value) for key, value in changes.items()}
