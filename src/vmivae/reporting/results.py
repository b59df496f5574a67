"""What the stages wrote, read back and joined by unit."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmivae.data import DataCard, load_prepared
from vmivae.errors import DataError
from vmivae.files import read_json
from vmivae.model import VAE, LatentSpec, load_vae

Column = NDArray[np.float64]


@dataclass(frozen=True)
class Unit:
    """One unit of the code with all that was measured about it; information in nats."""

    name: str
    classes: int | None  # None for a real unit
    lower: float
    lower_se: float
    upper: float | None
    upper_se: float | None
    rate: float
    active: bool
    label_information: float | None
    label_information_shuffled: float | None  # the same for shuffled labels: what chance alone gives
    accuracy: float | None
    accuracy_se: float | None
    nmi: float | None
    majority: list[
        int
    ]  # of each category, the commonest label among its training images; empty without labels

    @property
    def most(self) -> float | None:
        """`log K` of a categorical unit: the most it can hold, in nats."""
        return math.log(self.classes) if self.classes else None


@dataclass(frozen=True)
class Results:
    """Everything the page shows."""

    model: VAE
    images: NDArray[np.uint8]  # (N, C, H, W), held out; as measured
    labels: NDArray[np.int64] | None  # (N,)
    codes: NDArray[np.float32]  # (N, size), posterior expectations of the same images
    card: DataCard
    training: dict[str, Column]
    q_network: dict[str, Column]
    interval: dict[str, Column]  # the bounds over the number of proposals
    train: dict[str, Any]
    evaluation: dict[str, Any]
    information: dict[str, Any]

    @classmethod
    def load(cls, root: Path) -> Results:
        """Read the outputs of prepare, train, evaluate and estimate_mi below `root`.

        Raises:
            DataError: a file is missing, is not what its name says, or speaks of other units than the model.
        """
        prepared = load_prepared(root / "data/prepared").measured()
        model = load_vae(root / "models/vae")
        results = cls(
            model=model,
            images=prepared.test.images,
            labels=prepared.test.labels,
            codes=_array(root / "data/codes/test_codes.npy"),
            card=prepared.card,
            training=_columns(root / "plots/training.csv"),
            q_network=_columns(root / "plots/q_network.csv"),
            interval=_columns(root / "plots/interval.csv"),
            train=_json(root / "metrics/train.json"),
            evaluation=_json(root / "metrics/evaluation.json"),
            information=_json(root / "metrics/mi.json"),
        )
        for name, units in (
            ("metrics/evaluation.json", results.evaluation.get("units") or {}),
            ("metrics/mi.json", results.information.get("per_unit") or {}),
        ):
            if sorted(units) != sorted(model.latents.units):
                raise DataError(
                    f"{name}: has the units {', '.join(units)}, but models/vae has "
                    f"{', '.join(model.latents.units)} (run the stages again: dvc repro)"
                )
        return results

    @property
    def latents(self) -> LatentSpec:
        """The units of the model."""
        return self.model.latents

    @property
    def recipe(self) -> float | None:
        """What the published recipe would say of posterior codes: Barber–Agakov with the prior's entropy.

        `H(p) + E[log Q(z|x̃)]` is no bound where codes are not drawn from the prior. None for prior codes.
        """
        found = self.information
        if found["codes"] != "posterior":
            return None
        prior_entropy = float(self.model.prior.entropy())
        return float(found["barber_agakov"] - found["entropy"] + prior_entropy)

    @property
    def claimed(self) -> tuple[float, float] | None:
        """`[L − 2 se, U + 2 se]`; None without an upper bound."""
        found = self.information
        if found["upper"] is None:
            return None
        return found["lower"] - 2 * found["lower_se"], found["upper"] + 2 * (found["upper_se"] or 0.0)

    @property
    def classes(self) -> list[str]:
        """Names of the labels' classes; empty without labels."""
        return self.card.classes or []

    @cached_property
    def label_entropy(self) -> float | None:
        """Entropy of the held-out labels in nats: the most that a unit can know about them."""
        histogram = self.card.test.label_histogram
        if not histogram:
            return None
        counts = np.array([count for count in histogram.values() if count], dtype=float)
        shares = counts / counts.sum()
        return float(-(shares * np.log(shares)).sum())

    @cached_property
    def units(self) -> list[Unit]:
        """All units, those with the most information first."""
        latents = self.latents
        sizes = dict(zip(latents.discrete_units, latents.discrete, strict=True))
        units = []
        for name in latents.units:
            bound, measured = self.information["per_unit"][name], self.evaluation["units"][name]
            units.append(
                Unit(
                    name=name,
                    classes=sizes.get(name),
                    lower=bound["lower"],
                    lower_se=bound["se"],
                    upper=bound.get("upper"),
                    upper_se=bound.get("upper_se"),
                    rate=measured["rate"],
                    active=measured["active"],
                    label_information=measured.get("label_information"),
                    label_information_shuffled=measured.get("label_information_shuffled"),
                    accuracy=measured.get("accuracy"),
                    accuracy_se=measured.get("accuracy_se"),
                    nmi=measured.get("nmi"),
                    majority=measured.get("majority_map") or [],
                )
            )
        return sorted(units, key=lambda unit: -unit.lower)

    @property
    def real_units(self) -> list[Unit]:
        """The real units, those with the most information first."""
        return [unit for unit in self.units if unit.classes is None]

    @property
    def categorical_units(self) -> list[Unit]:
        """The categorical units, those with the most information first."""
        return [unit for unit in self.units if unit.classes is not None]

    def assignments(self, unit: str) -> NDArray[np.int64]:
        """The most probable category of a categorical unit for each held-out image, `(N,)`."""
        assigned: NDArray[np.int64] = self.codes[:, self.latents.columns[unit]].argmax(1)
        return assigned

    def usage(self, unit: str) -> NDArray[np.int64]:
        """How many held-out images have each category of the unit as their most probable, `(K,)`."""
        columns = self.latents.columns[unit]
        return np.bincount(self.assignments(unit), minlength=columns.stop - columns.start)


def _json(path: Path) -> dict[str, Any]:
    try:
        content = read_json(path)
        if not isinstance(content, dict):
            raise DataError(f"{path}: is no JSON object")
        return content
    except OSError:
        raise DataError(f"{path}: is missing (make it with: dvc repro)") from None
    except (ValueError, UnicodeDecodeError) as error:
        shown = error.msg if isinstance(error, json.JSONDecodeError) else "not UTF-8"
        raise DataError(f"{path}: is not JSON ({shown})") from None


def _array(path: Path) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise DataError(f"{path}: is missing (make it with: dvc repro)") from None
    except Exception:  # damaged headers of arrays make NumPy raise anything
        raise DataError(f"{path}: is not a .npy array of numbers") from None
    return array


def _columns(path: Path) -> dict[str, Column]:
    """The columns of a CSV of numbers; an empty cell is NaN."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except OSError:
        raise DataError(f"{path}: is missing (make it with: dvc repro)") from None
    try:
        return {
            name: np.array([float(row[name]) if row[name] else math.nan for row in rows])
            for name in (rows[0] if rows else [])
        }
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: is not a table of numbers ({error})") from None
