"""A checkout with results that no stage computed: the pipeline's definition, a small VAE, made-up numbers."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from vmivae.model import VAE, LatentSpec, save_vae
from vmivae.params import Params, load_params
from vmivae.tracking.store import Store, connect, open_store

ROOT = Path(__file__).parents[2]
SHAPE = (1, 8, 8)


class Checkout:
    """A folder like a checkout; each method writes what a stage would."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copy(ROOT / "dvc.yaml", root)
        shutil.copytree(
            ROOT / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
        (root / "stages").mkdir()
        for stage in ("prepare", "train", "evaluate", "estimate_mi", "report"):
            (root / f"stages/{stage}.py").write_text(f'"""{stage}"""\n')
        content = yaml.safe_load((ROOT / "params.yaml").read_text())
        content["latents"] = {"continuous": 2, "discrete": [3]}
        content["model"]["architecture"] = "mlp"
        content["data"]["image_size"] = 8
        (root / "params.yaml").write_text(yaml.safe_dump(content))

    @property
    def params(self) -> Params:
        return load_params(self.root / "params.yaml")

    def set(self, key: str, value: object) -> None:
        content = yaml.safe_load((self.root / "params.yaml").read_text())
        holder = content
        *above, name = key.split(".")
        for part in above:
            holder = holder[part]
        holder[name] = value
        (self.root / "params.yaml").write_text(yaml.safe_dump(content))

    def write(self, path: str, content: object) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, list):
            with target.open("w", newline="") as file:
                writer = csv.DictWriter(file, content[0])
                writer.writeheader()
                writer.writerows(content)
        else:
            target.write_text(content if isinstance(content, str) else json.dumps(content))

    def prepare(self, data_hash: str = "a" * 64) -> None:
        self.write(
            "data/prepared/data_card.json",
            {"source": "mnist5k", "image_shape": SHAPE, "binarize": "none", "hash": data_hash},
        )
        images = np.full((5, *SHAPE), 51, np.uint8)
        np.save(self.root / "data/prepared/test_images.npy", images)

    def train(self, loss: float = 93.5, seed: int = 0) -> None:
        save_vae(VAE(SHAPE, LatentSpec(2, (3,)), "mlp", seed=seed), self.root / "models/vae")
        self.write("metrics/train.json", {"epochs": 2, "loss": loss, "rate": 6.25, "finished": True})
        self.write(
            "plots/training.csv",
            [
                {"epoch": 1, "step": 10, "loss": 120.0, "capacity_continuous": ""},
                {"epoch": 2, "step": 20, "loss": loss, "capacity_continuous": 2.5},
            ],
        )

    def evaluate(self, elbo: float = -99.5) -> None:
        self.write(
            "metrics/evaluation.json",
            {
                "elbo": elbo,
                "rate": 6.25,
                "distortion_kind": "cross-entropy",
                "likelihood_in_support": False,
                "units": {"z0": {"rate": 1.5, "active": True}, "c0": {"majority_map": [0, 1, 2]}},
            },
        )
        self.write("plots/units.csv", [{"unit": "z0", "rate": 1.5}])

    def estimate_mi(self, lower: float = 3.25) -> None:
        self.write("metrics/mi.json", {"lower": lower, "upper": None, "per_unit": {"z0": {"lower": 1.125}}})
        self.write("plots/q_network.csv", [{"step": 100, "log_q": -9.0}, {"step": 200, "log_q": -8.0}])
        self.write("plots/information.csv", [{"unit": "z0", "lower": 1.125}])

    def report(self) -> None:
        self.write("reports/report.html", "<html>what was found</html>")
        self.write("reports/figures/loss.png", "not really a picture")

    def all(self) -> None:
        for stage in (self.prepare, self.train, self.evaluate, self.estimate_mi, self.report):
            stage()

    def store(self) -> Store:
        return open_store(self.root, "vmivae")


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite file with MLflow's tables, which take seconds to make."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        root = tmp_path_factory.mktemp("tables")
        connect(root)
    return root / "mlflow.db"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_store: Path) -> Checkout:
    """The current folder is a checkout, and MLflow's store is in it."""
    for name in ("MLFLOW_TRACKING_URI", "DVC_ROOT", "DVC_EXP_NAME"):
        monkeypatch.delenv(name, raising=False)
    root = tmp_path / "checkout"
    root.mkdir()
    monkeypatch.chdir(root)
    shutil.copy(empty_store, root / "mlflow.db")
    return Checkout(root)
