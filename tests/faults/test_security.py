"""What no input may steer: unpickling, evaluation, shells, extraction, pages, and who may connect."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from workplace import ROOT, STAGES, Workplace

from vmivae.tracking.__main__ import HOST

SOURCES = [
    *(ROOT / "src").rglob("*.py"),
    *(ROOT / "stages").glob("*.py"),
    *(ROOT / "benchmarks").rglob("*.py"),
]
FORBIDDEN = {
    "unpickling": r"\b(c?pickle|dill|joblib|shelve|marshal)\.|import (pickle|dill|joblib|shelve|marshal)\b",
    "arrays of objects": r"allow_pickle\s*=\s*True",
    "weights of any kind": r"torch\.(load|save)\(",
    "evaluation": r"(?<![\w.])(eval|exec|compile|__import__)\(",
    "YAML that makes objects": r"yaml\.(unsafe_load|full_load|load_all|FullLoader|UnsafeLoader|Loader)\b",
    "a shell": r"shell\s*=\s*True|os\.(system|popen)\(",
    "extraction": r"\.extractall\(|\.extract\(|unpack_archive|extract_archive",
    "unescaped HTML": r"autoescape\s*=\s*False|\|\s*safe\b",
    "every address": r"0\.0\.0\.0|[\"']::[\"']",
    "temporary names that can be guessed": r"tempfile\.mktemp\(",
    "certificates that are not looked at": r"verify\s*=\s*False|_create_unverified_context",
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_code_has_none_of_what_input_could_steer(what: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in [*SOURCES, *(ROOT / "src").rglob("*.html")]
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if re.search(FORBIDDEN[what], line)
    ]
    assert found == []


def test_yaml_is_loaded_by_safe_loaders_alone() -> None:
    loads = [
        line for path in SOURCES for line in path.read_text("utf-8").splitlines() if "yaml.load(" in line
    ]
    assert all("Loader=_Loader" in line for line in loads)
    assert "class _Loader(yaml.SafeLoader)" in (ROOT / "src/vmivae/params.py").read_text("utf-8")


def test_servers_listen_on_this_machine_alone() -> None:
    assert HOST == "127.0.0.1"


HOSTILE = ('<img src=x onerror="alert(1)">', "</style><script>alert(1)</script>", "{{ 7*7 }}", "$x$", "a & b")


def test_class_folders_that_are_html_templates_or_formulas_reach_the_page_as_text(place: Workplace) -> None:
    """A slash cannot be in a name: the second has one of another kind."""
    names = [name.replace("/", "\N{DIVISION SLASH}") for name in HOSTILE]
    draws = np.random.default_rng(3)
    for name in names:
        (place.root / "mine" / name).mkdir(parents=True)
        for number in range(8):
            pixels = draws.integers(0, 256, (8, 8), dtype=np.uint8)
            Image.fromarray(pixels).save(place.root / "mine" / name / f"<b>{number}.png")
    place.set({"data.source": "folder", "data.root": "mine", "data.test_fraction": 0.25})
    for stage in STAGES:
        place.main(stage)
    page = (place.root / "reports/report.html").read_text("utf-8")
    assert not re.search(r"<img src=x|</style><script|<script>alert", page)


def test_links_and_dots_cannot_lead_out_of_the_data_folder(place: Workplace) -> None:
    from vmivae.data import prepare
    from vmivae.errors import DataError

    root = place.root / "mine"
    (root / "cat").mkdir(parents=True)
    (place.root / "secret").mkdir()
    Image.new("L", (8, 8)).save(place.root / "secret/s.png")
    Image.new("L", (8, 8)).save(root / "cat/1.png")
    for link, target in (("cat/2.png", "../../secret/s.png"), ("dog", "../secret"), ("x..%2f", "/etc")):
        (root / link).symlink_to(target)
        with pytest.raises(DataError, match="is a link that leads out of"):
            prepare(place.root / "out", source="folder", root=root)
        (root / link).unlink()
    before = sorted(path for path in place.root.rglob("*") if "out" not in path.parts)
    (root / "cat/x..\\..\\escape.png").write_bytes((root / "cat/1.png").read_bytes())
    prepare(place.root / "out", source="folder", root=root, image_size=8)
    after = sorted(path for path in place.root.rglob("*") if "out" not in path.parts)
    assert {path.name for path in set(after) - set(before)} == {"x..\\..\\escape.png"}


def test_an_experiment_called_dots_keeps_its_artifacts_in_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vmivae.tracking.store import open_store

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for name in ("..", "../../x", "/etc/x"):
        store = open_store(tmp_path, name)
        location = store.client.get_experiment(store.experiment_id).artifact_location
        assert Path(os.path.realpath(location)).parent == tmp_path / "mlartifacts"
