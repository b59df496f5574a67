from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from small_results import write_results

from vmivae.errors import DataError
from vmivae.model import LatentSpec
from vmivae.reporting.results import Results

Small = Callable[..., Results]


def test_units_are_joined_by_name_and_sorted_by_information(small: Small) -> None:
    results = small(2, (3, 4))
    assert [unit.name for unit in results.units] == ["c1", "c0", "z1", "z0"]
    assert [unit.lower for unit in results.units] == pytest.approx([0.8, 0.6, 0.4, 0.2])
    assert [unit.rate for unit in results.units] == pytest.approx([1 / 4, 1 / 3, 1 / 2, 1])
    assert [unit.most for unit in results.units] == [math.log(4), math.log(3), None, None]


def test_usage_counts_the_most_probable_category_of_that_unit(small: Small) -> None:
    results = small(2, (3, 4))
    codes = np.asarray(results.codes)
    expected = [(codes[:, 5:9].argmax(1) == category).sum() for category in range(4)]
    assert results.usage("c1").tolist() == expected
    assert results.usage("c1").sum() == 30


def test_label_entropy_is_that_of_the_held_out_labels(small: Small) -> None:
    assert small(classes=["a", "b", "c"]).label_entropy == pytest.approx(math.log(3))


def test_no_labels_have_no_entropy(small: Small) -> None:
    assert small().label_entropy is None


@pytest.mark.parametrize(
    "name",
    [
        "metrics/mi.json",
        "metrics/evaluation.json",
        "plots/training.csv",
        "data/codes/test_codes.npy",
        "models/vae",
    ],
)
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    root = write_results(tmp_path, LatentSpec(1, (2,)))
    (root / name).rename(root / "elsewhere")
    with pytest.raises(DataError, match=name):
        Results.load(root)


@pytest.mark.parametrize("name", ["metrics/mi.json", "plots/training.csv", "data/codes/test_codes.npy"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str) -> None:
    root = write_results(tmp_path, LatentSpec(1, (2,)))
    (root / name).write_text("epoch\nsoon\n", "utf-8")
    with pytest.raises(DataError, match=name):
        Results.load(root)


def test_numbers_of_another_model_are_refused(tmp_path: Path) -> None:
    root = write_results(tmp_path, LatentSpec(1, (2,)))
    path = root / "metrics/mi.json"
    content = json.loads(path.read_text("utf-8"))
    content["per_unit"]["z7"] = content["per_unit"].pop("z0")
    path.write_text(json.dumps(content), "utf-8")
    with pytest.raises(DataError, match=r"metrics/mi.json: has the units c0, z7, but models/vae has z0, c0"):
        Results.load(root)
