"""params.yaml with every key wrong in every way: one line, nothing written, earlier results untouched."""

from __future__ import annotations

import datetime
import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from workplace import ROOT, STAGES, Workplace, one_line

from vmivae.errors import ParameterError
from vmivae.params import MAX_FILE_BYTES, flatten, load_params

TEXT = (ROOT / "params.yaml").read_text("utf-8")
DEFAULTS = yaml.safe_load(TEXT)
KEYS = list(flatten(DEFAULTS))
GROUPS = sorted({key.rsplit(".", depth)[0] for key in KEYS for depth in range(1, key.count(".") + 1)})
# No key of any kind takes one of these.
NEVER = {
    "mapping": {"nonsense": 1},
    "list of lists": [[1]],
    "NaN": math.nan,
    "infinity": math.inf,
    "negative": -1.5,
    "absurdly large": 10**400,
    "absurdly long": "9" * 5000,
    "control character": "a\x00b",
    "empty": "",
    "date": datetime.date(2026, 1, 1),
}


def changed(key: str, value: Any) -> dict[str, Any]:
    content = yaml.safe_load(TEXT)
    *above, name = key.split(".")
    block = content
    for part in above:
        block = block[part]
    block[name] = value
    return content


def complaint(folder: Path, content: Any) -> str:
    path = folder / "params.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), "utf-8")
    with pytest.raises(ParameterError) as caught:
        load_params(path)
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 1000
    return line


def outcome(folder: Path, text: str) -> str:
    path = folder / "params.yaml"
    path.write_text(text, "utf-8")
    try:
        load_params(path)
    except ParameterError as error:
        return str(error)
    return "accepted"


@pytest.mark.parametrize("kind", NEVER)
def test_no_key_takes_nonsense_and_each_is_named(tmp_path: Path, kind: str) -> None:
    for key in KEYS:
        assert complaint(tmp_path, changed(key, NEVER[kind])).startswith(key), key


def test_unknown_and_missing_keys_are_named_in_every_group(tmp_path: Path) -> None:
    for group in GROUPS:
        assert complaint(tmp_path, changed(f"{group}.nonsense", 1)).startswith(
            f"{group}.nonsense: unknown key"
        )
    for key in KEYS:
        content = yaml.safe_load(TEXT)
        *above, name = key.split(".")
        block = content
        for part in above:
            block = block[part]
        del block[name]
        line = outcome(tmp_path, yaml.safe_dump(content))
        assert line == "accepted" or re.match(rf"{re.escape(key)}: (missing|must be) ", line), line


ABSURD = {
    "train.batch_size": (10**7, "train.batch_size: must be ≤ 1000000, got 10000000"),
    "latents.continuous": (10**6, "latents.continuous: must be ≤ 1000, got 1000000"),
    "latents.discrete": ([0], "latents.discrete[0]: must be ≥ 2, got 0"),
    "data.image_size": (7, "data.image_size: must be 32 or 64 with model.architecture: conv"),
    "evaluation.importance_samples": (0, "evaluation.importance_samples: must be ≥ 1, got 0"),
    "mutual_information.importance.samples": (0, "mutual_information.importance.samples: must be ≥ 1, got 0"),
    "mutual_information.q_network.steps": (0, "mutual_information.q_network.steps: must be ≥ 1, got 0"),
    "train.epochs": (0, "train.epochs: must be ≥ 1, got 0"),
}


@pytest.mark.parametrize("key", ABSURD)
def test_absurd_sizes(tmp_path: Path, key: str) -> None:
    value, line = ABSURD[key]
    assert complaint(tmp_path, changed(key, value)).startswith(line)


def test_aliases_that_make_a_value_of_any_size_out_of_few_lines(tmp_path: Path) -> None:
    levels = "".join(f", &a{i} [{','.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12))
    text = re.sub("^seed: 0$", f"seed: [&a0 [1,1,1,1,1,1,1,1,1,1]{levels}]", TEXT, flags=re.MULTILINE)
    assert complaint(tmp_path, text).startswith("seed: must be a whole number, got [[1, 1, 1")


def test_a_file_that_takes_minutes_to_parse_is_refused_by_its_size(tmp_path: Path) -> None:
    text = TEXT + "# " + "x" * MAX_FILE_BYTES
    assert "is larger than the 100000 bytes" in complaint(tmp_path, text)


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_says_so_in_one_line_and_leaves_earlier_results_alone(place: Workplace, stage: str) -> None:
    before = place.files()
    place.set({"train.epochs": 0, "data.image_size": 7.5})
    done = place.run(stage)
    assert done.returncode == 2
    assert one_line(done) == (
        "error: data.image_size: must be a whole number, got 7.5 (params.yaml; and 1 more)"
    )
    assert place.files() == before


def test_a_batch_larger_than_the_set(place: Workplace) -> None:
    before = place.files()
    place.set({"train.batch_size": 37})
    with pytest.raises(
        ParameterError, match=r"^train.batch_size: must be ≤ 36, the number of training images, got 37$"
    ):
        place.main("train")
    assert place.files() == before


# Scalars that YAML, Python and people see differently, and text that is no YAML.
SCALARS = r"""
null ~ true yes on 0 -1 1.5 .nan -.inf 1e999 1e400 0x10 0o7 1_000 1:30 2024-01-01 2024-13-45
'' "a\0b" "\ud800"
[] {} [1] {a:1} {a:\ 1} [[]] *a &a !!int !!str !!binary !!python/object:os.system !!float - ? : # | > % @ ` <<
10000000000000000000000 00 08 +1 1. .5 . .. / auto cpu
"""
NASTY = [*SCALARS.split(), "\t", "\u2028", "\ufeff", "é", "{a: 1}"]
tokens = re.split(r"(\s+|[:,\[\]{}#|])", TEXT)
words = [index for index, token in enumerate(tokens) if token and not token.isspace()]


@pytest.mark.slow
@settings(
    max_examples=2000,
    deadline=2000,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    database=None,
)
@given(st.lists(st.tuples(st.sampled_from(words), st.sampled_from(NASTY)), min_size=1, max_size=4))
def test_nothing_but_parameter_errors_for_two_thousand_edits(
    tmp_path: Path, edits: list[tuple[int, str]]
) -> None:
    edited = list(tokens)
    for index, token in edits:
        edited[index] = token
    assert "\n" not in outcome(tmp_path, "".join(edited))
