"""Grid files: which runs they stand for, what names them, and what is refused."""

import datetime
import shutil
from pathlib import Path

import pytest
import yaml

from vmivae.comparison.grid import GridRun, load_grid
from vmivae.errors import ParameterError

ROOT = Path(__file__).parents[2]
GRID = {
    "title": "Two methods",
    "params": {"train.epochs": 3},
    "seeds": [0, 1],
    "methods": {
        "elbo": {"objective.regularizer": "beta"},
        "beta-4": {"objective.regularizer": "beta", "objective.beta": 4.0},
    },
    "variants": {"plain": {}, "information": {"objective.information.discrete": 5.0}},
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Parameters, stages and code of this checkout, in a folder that a test may change."""
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("src", "stages"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def runs_of(checkout: Path, **changes: object) -> list[GridRun]:
    path = checkout / "small.yaml"
    path.write_text(yaml.safe_dump(GRID | changes, sort_keys=False))
    return load_grid(path, checkout)[1]


def test_every_method_with_every_variant_and_seed(checkout: Path) -> None:
    runs = runs_of(checkout)
    assert [(run.method, run.variant, run.seed) for run in runs] == [
        (method, variant, seed)
        for method in ("elbo", "beta-4")
        for variant in ("plain", "information")
        for seed in (0, 1)
    ]
    assert runs[-1].overrides == {
        "train.epochs": 3,
        "objective.regularizer": "beta",
        "objective.beta": 4.0,
        "objective.information.discrete": 5.0,
        "seed": 1,
    }
    assert runs[-1].experiment.startswith("small-beta-4-information-s1-")
    assert len({run.experiment for run in runs}) == 8


def test_a_name_changes_with_what_decides_results_and_with_nothing_else(checkout: Path) -> None:
    def names(**changes: object) -> list[str]:
        return [run.experiment for run in runs_of(checkout, **changes)]

    before = names()
    assert names(title="Another") == before
    assert names(params={"train.epochs": 3, "tracking.experiment": "elsewhere"}) == before
    # More seeds or methods: the runs that were there keep their names.
    assert set(before) < set(names(seeds=[0, 1, 2]))
    assert not set(before) & set(names(params={"train.epochs": 4}))
    report, loop = checkout / "src/vmivae/reporting/words.py", checkout / "src/vmivae/training/loop.py"
    report.write_text(report.read_text() + "\n")
    assert names() == before
    loop.write_text(loop.read_text() + "\n")
    assert not set(before) & set(names())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"params": {"train.epoch": 3}},
            r"train.epoch: unknown key of params.yaml .*small.yaml: elbo, plain",
        ),
        ({"params": {"train.epochs": 0}}, r"train.epochs: must be ≥ 1, got 0 .*small.yaml: elbo, plain"),
        (
            {"methods": {"capacity": {"objective.beta": 4.0}}},
            r"objective.beta: has no effect .*capacity, plain",
        ),
        (
            {"params": {"tracking.experiment": datetime.date(2024, 1, 1)}},
            "tracking.experiment: .* 2024-01-01 .*small.yaml: elbo, plain",
        ),
        ({"methods": {}}, "methods: .* at least 1 item"),
        ({"methods": {"Beta 4": {}}}, "methods.Beta 4"),
        ({"seeds": []}, "seeds: .* at least 1 item"),
        ({"seed": 3}, "seed: Extra inputs"),
    ],
)
def test_refused(checkout: Path, changes: dict, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        runs_of(checkout, **changes)


@pytest.mark.parametrize("path", sorted((ROOT / "comparisons").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_grids_of_the_repository_are_accepted(path: Path) -> None:
    assert len(load_grid(path, ROOT)[1]) >= 6
