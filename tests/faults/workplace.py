"""A folder in which stages run on tiny data, in this process or in one of their own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

ROOT = Path(__file__).parents[2]
STAGES = ("prepare", "train", "evaluate", "estimate_mi", "report")
OUTPUTS = ("data/prepared", "data/codes", "models", "metrics", "plots", "reports")
SMALL = {
    "data.source": "npz",
    "data.root": "set.npz",
    "data.image_size": 8,
    "latents.continuous": 2,
    "latents.discrete": [3],
    "model.architecture": "mlp",
    "train.epochs": 2,
    "train.batch_size": 4,
    "evaluation.importance_samples": 2,
    "mutual_information.samples": 64,
    "mutual_information.q_network.steps": 5,
    "mutual_information.q_network.batch_size": 16,
    "mutual_information.importance.images": 8,
    "mutual_information.importance.samples": 8,
}
BETA = {
    "objective.regularizer": "beta",
    "objective.gamma": None,
    "objective.capacity": None,
}
"""Changes that leave the ELBO; a key that is None is removed."""
REMOVED = ("objective.gamma", "objective.capacity")


class Workplace:
    """A checkout's params.yaml, dvc.yaml, stages and src, and an image set `set.npz`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def make(cls, root: Path) -> Workplace:
        """A new one, in which nothing has run."""
        root.mkdir(parents=True)
        for name in ("params.yaml", "dvc.yaml"):
            shutil.copy(ROOT / name, root)
        for name in ("stages", "src"):
            (root / name).symlink_to(ROOT / name)
        place = cls(root)
        place.set(SMALL)
        place.images(np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8))
        return place

    def copy(self, root: Path) -> Workplace:
        """The same in another folder."""
        shutil.copytree(self.root, root, symlinks=True)
        return Workplace(root)

    def images(self, images: np.ndarray) -> None:
        """Other images, with two classes."""
        np.savez(self.root / "set.npz", images=images, labels=np.arange(len(images)) % 2)

    def set(self, changes: Mapping[str, Any]) -> None:
        """Change params.yaml by dotted keys."""
        path = self.root / "params.yaml"
        content = yaml.safe_load(path.read_text("utf-8"))
        for key, value in changes.items():
            *above, name = key.split(".")
            block = content
            for part in above:
                block = block[part]
            if value is None and key in REMOVED:
                block.pop(name, None)
            else:
                block[name] = value
        path.write_text(yaml.safe_dump(content, sort_keys=False), "utf-8")

    def main(self, stage: str) -> None:
        """A stage's main in this process; what it raises is the caller's to judge."""
        spec = importlib.util.spec_from_file_location(f"stage_{stage}", ROOT / f"stages/{stage}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        before = Path.cwd()
        os.chdir(self.root)
        try:
            module.main()
        finally:
            os.chdir(before)

    def run(self, stage: str, prefix: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        """A stage as DVC runs it, perhaps behind a shell's `prefix`."""
        command = f"{prefix} exec env PYTHONPATH=src {sys.executable} stages/{stage}.py"
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self.root,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def files(self) -> dict[str, bytes]:
        """Every file that stages have written, unfinished ones included; not what is kept in .vmivae."""
        return {
            str(file.relative_to(self.root)): file.read_bytes()
            for name in OUTPUTS
            for file in sorted((self.root / name).rglob("*"))
            if file.is_file()
        }


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that a refused stage has printed, but for warnings of MLflow."""
    lines = [line for line in done.stderr.splitlines() if not line.startswith("warning: MLflow")]
    errors = [line for line in lines if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    assert lines[-1] == errors[0], done.stderr
    assert "Traceback" not in done.stderr
    return errors[0]
