import copy
import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from vmivae.errors import ParameterError
from vmivae.params import NO_PART_IN_RESULTS, Params, Train, load_params

FILE = Path(__file__).parents[1] / "params.yaml"
DEFAULTS = yaml.safe_load(FILE.read_text("utf-8"))
ABSENT = object()


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    content = copy.deepcopy(DEFAULTS)
    for key, value in changes.items():
        *above, name = key.split(".")
        block = content
        for part in above:
            block = block[part]
        if value is ABSENT:
            del block[name]
        else:
            block[name] = value
    return content


def load(folder: Path, content: Any) -> Params:
    path = folder / "params.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), "utf-8")
    return load_params(path)


def complaint(folder: Path, content: Any) -> str:
    with pytest.raises(ParameterError) as caught:
        load(folder, content)
    text = str(caught.value)
    assert "\n" not in text
    return text.replace(str(folder / "params.yaml"), "params.yaml")


def leaves(content: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in content.items():
        flat |= leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def test_the_file_in_the_repository_is_accepted_and_keeps_every_value():
    params = load_params(FILE)
    assert params.flat() == leaves(DEFAULTS)
    assert params.latents.discrete == (10,)
    assert params.objective.capacity.discrete.end is None
    assert params.train.learning_rate == 1e-3
    assert params.flat()["objective.capacity.continuous.end"] == 5.0


def test_dvc_watches_every_key_that_has_a_part_in_the_results():
    stages = yaml.safe_load(FILE.with_name("dvc.yaml").read_text("utf-8"))["stages"]
    watched = {key for stage in stages.values() for key in stage["params"]}
    for stage in ("train", "report"):
        keys = {key for key in stages[stage]["params"] if key.startswith("train")}
        assert keys == {f"train.{key}" for key in Train.model_fields} - {"train.checkpoint_seconds"}
    left = {key for key in leaves(DEFAULTS) if not any(f"{key}.".startswith(f"{w}.") for w in watched)}
    assert all(key.startswith(NO_PART_IN_RESULTS) for key in left)
    assert left == {"tracking.experiment", "train.checkpoint_seconds"}


def test_defaults_of_the_schema_are_those_of_the_file():
    def compare(model: type[BaseModel], content: dict[str, Any], key: str) -> int:
        count = 0
        for name, field in model.model_fields.items():
            if not field.is_required():
                default = field.default
                plain = default.model_dump() if isinstance(default, BaseModel) else default
                assert content[name] == plain, f"{key}{name}"
                count += 1
            elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
                count += compare(field.annotation, content[name], f"{key}{name}.")
        return count

    assert compare(Params, DEFAULTS, "") >= 8


@pytest.mark.parametrize("key", leaves(DEFAULTS))
def test_an_absent_key_is_missing_or_has_the_default(tmp_path, key):
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(changed({key: ABSENT})), "utf-8")
    found = outcome(path)
    if found == "accepted":
        assert load_params(path) == load_params(FILE)
    else:
        assert found == f"{key}: missing ({path})"


@pytest.mark.parametrize("key", leaves(DEFAULTS))
def test_no_key_takes_a_value_of_the_wrong_kind(tmp_path, key):
    for wrong in ([{"x": [1]}], {"x": 1}, -1.5, "no such thing"):
        if (key, wrong) in [("data.root", "no such thing"), ("tracking.experiment", "no such thing")]:
            continue
        assert complaint(tmp_path, changed({key: wrong})).startswith(key)


SOURCES = (
    "mnist5k, digits, mnist, fashion_mnist, kmnist, emnist, svhn, cifar10, celeba, sprites, dsprites, "
    "folder, npz"
)
SPLITS = "balanced, byclass, bymerge, letters, digits, mnist"
RANGES_AND_KINDS = {
    "seed: must be ≥ 0, got -1": {"seed": -1},
    "seed: must be < 4294967296, got 4294967296": {"seed": 2**32},
    "seed: must be a whole number, got 1.5": {"seed": 1.5},
    "seed: must be a whole number, got 1.0": {"seed": 1.0},
    "seed: must be a whole number, got true": {"seed": True},
    "seed: must be a whole number, got null": {"seed": None},
    'seed: must be a whole number, got "1"': {"seed": "1"},
    f"data.source: must be one of {SOURCES}, got imagenet": {"data.source": "imagenet"},
    'data.root: must be text that is not empty, got ""': {"data.root": ""},
    "data.root: must be text, got 3": {"data.root": 3},
    "data.image_size: must be ≥ 4, got 3": {"data.image_size": 3},
    "data.image_size: must be ≤ 512, got 513": {"data.image_size": 513},
    "data.channels: must be one of auto, grey, rgb, got 3": {"data.channels": 3},
    "data.binarize: must be one of none, threshold, dynamic, got true": {"data.binarize": True},
    "data.test_fraction: must be > 0, got 0": {"data.test_fraction": 0},
    "data.test_fraction: must be < 1, got 1.0": {"data.test_fraction": 1.0},
    "data.split_seed: must be ≥ 0, got -1": {"data.split_seed": -1},
    f"data.split: must be one of {SPLITS}, got all": {"data.split": "all"},
    "latents.continuous: must be ≥ 0, got -1": {"latents.continuous": -1},
    "latents.discrete: must be a list, got 10": {"latents.discrete": 10},
    "latents.discrete[1]: must be ≥ 2, got 1": {"latents.discrete": [10, 1]},
    "latents.discrete[0]: must be a whole number, got two": {"latents.discrete": ["two"]},
    f"latents.discrete: must be a list of at most 100, got [{'2, ' * 18}2,…": {"latents.discrete": [2] * 101},
    "model.architecture: must be one of conv, mlp, got resnet": {"model.architecture": "resnet"},
    "model.scale: must be > 0, got 0": {"model.likelihood": "gaussian", "model.scale": 0},
    "model.scale: must be learned or a finite number, got free": {"model.scale": "free"},
    "model.scale: must be learned or a finite number, got {a: 1}": {"model.scale": {"a": 1}},
    "model: must be {architecture: …, likelihood: …, scale: …}, got null": {"model": None},
    "objective.regularizer: must be one of beta, capacity, got tc": {"objective.regularizer": "tc"},
    "objective.beta: must be ≥ 0, got -1": {"objective.regularizer": "beta", "objective.beta": -1},
    "objective.gamma: must be ≥ 0, got -1": {"objective.gamma": -1},
    "objective.gamma: must be a finite number or {continuous: …, discrete: …}, got big": {
        "objective.gamma": "big"
    },
    "objective.gamma.discrete: missing": {"objective.gamma": {"continuous": 1}},
    "objective.gamma.discrete: must be ≥ 0, got -1": {"objective.gamma": {"continuous": 1, "discrete": -1}},
    "objective.gamma.both: unknown key; objective.gamma has continuous, discrete": {
        "objective.gamma": {"continuous": 1, "discrete": 1, "both": 1}
    },
    "objective.capacity.continuous: must be {start: …, end: …, steps: …}, got 5": {
        "objective.capacity.continuous": 5
    },
    "objective.capacity.continuous.end: must be a finite number, got null": {
        "objective.capacity.continuous.end": None
    },
    "objective.capacity.continuous.steps: must be ≥ 1, got 0": {"objective.capacity.continuous.steps": 0},
    "objective.capacity.continuous.steps: must be ≤ 1000000000, got 10000000000": {
        "objective.capacity.continuous.steps": 10**10
    },
    "objective.information.continuous: must be ≥ 0, got -1": {"objective.information.continuous": -1},
    "objective.information.units: must be all or a list, got z0": {"objective.information.units": "z0"},
    "objective.information.units: must be all or a list of at least 1, got []": {
        "objective.information.units": []
    },
    "objective.information.units[0]: must be text, got 1": {"objective.information.units": [1]},
    "objective.information.codes: must be one of prior, posterior, got both": {
        "objective.information.codes": "both"
    },
    "train.epochs: must be ≥ 1, got 0": {"train.epochs": 0},
    "train.batch_size: must be ≥ 1, got 0": {"train.batch_size": 0},
    "train.learning_rate: must be > 0, got 0": {"train.learning_rate": 0},
    "train.learning_rate: must be a finite number, got nan": {"train.learning_rate": math.nan},
    "train.learning_rate: must be a finite number, got -inf": {"train.learning_rate": -math.inf},
    'train.learning_rate: must be a finite number, got "1.0"': {"train.learning_rate": "1.0"},
    "train.clip_norm: must be > 0, got 0": {"train.clip_norm": 0},
    "train.temperature: must be > 0, got -0.5": {"train.temperature": -0.5},
    "train.temperature.steps: missing": {"train.temperature": {"start": 1.0, "end": 0.5}},
    "train.temperature.end: must be > 0, got 0": {"train.temperature": {"start": 1, "end": 0, "steps": 5}},
    "train.device: must be one of auto, cpu, cuda, mps, got gpu": {"train.device": "gpu"},
    "train.precision: must be one of auto, fp32, bf16, got 16": {"train.precision": 16},
    "train.checkpoint_seconds: must be > 0, got 0": {"train.checkpoint_seconds": 0},
    "train.compile: must be auto, true or false, got maybe": {"train.compile": "maybe"},
    "train.compile: must be auto, true or false, got 1": {"train.compile": 1},
    "evaluation.importance_samples: must be ≥ 1, got 0": {"evaluation.importance_samples": 0},
    "mutual_information.codes: must be one of posterior, prior, got both": {
        "mutual_information.codes": "both"
    },
    "mutual_information.split: must be one of train, test, got all": {"mutual_information.split": "all"},
    "mutual_information.q_network.steps: must be ≥ 1, got 0": {"mutual_information.q_network.steps": 0},
    "mutual_information.samples: must be ≥ 2, got 1": {"mutual_information.samples": 1},
    "mutual_information.importance.images: must be ≥ 4, got 3": {"mutual_information.importance.images": 3},
    'tracking.experiment: must be text that is not empty, got ""': {"tracking.experiment": ""},
    f"tracking.experiment: must be text of at most 250 characters, got {'a' * 57}…": {
        "tracking.experiment": "a" * 251
    },
    "sed: unknown key; the file has seed, data, latents, model, objective, train, evaluation, "
    "mutual_information, tracking": {"sed": 0},
    "evaluation.samples: unknown key; evaluation has importance_samples, repeats": {"evaluation.samples": 64},
}


@pytest.mark.parametrize("line", RANGES_AND_KINDS)
def test_one_line_for_a_value_that_is_not_accepted(tmp_path, line):
    assert complaint(tmp_path, changed(RANGES_AND_KINDS[line])) == f"{line} (params.yaml)"


GAMMA = "{continuous: 30.0, discrete: 10.0}"
BETA, CAPACITY = "objective.regularizer: beta", "objective.regularizer: capacity"
UNSPLIT = "one of mnist5k, digits, sprites, dsprites, folder, npz"
NO_INFORMATION = "objective.information.continuous: 0 and objective.information.discrete: 0"
BETWEEN_KEYS = {
    "latents: needs at least one unit, got continuous: 0 and discrete: []": {
        "latents.continuous": 0,
        "latents.discrete": [],
    },
    "data.image_size: must be 32 or 64 with model.architecture: conv (any size with mlp), got 28": {
        "data.image_size": 28
    },
    "model.scale: has no effect with model.likelihood: bernoulli; leave it at learned or set "
    "model.likelihood to gaussian, got 0.1": {"model.scale": 0.1},
    f"data.split: must be one of {SPLITS} with data.source: emnist, got null": {"data.source": "emnist"},
    "data.split: has no effect with data.source: mnist5k; leave it at null or set data.source to emnist, "
    "got letters": {"data.split": "letters"},
    f"data.test_fraction: has no effect with data.source: mnist; leave it at 0.1 or set data.source to "
    f"{UNSPLIT}, got 0.2": {"data.source": "mnist", "data.test_fraction": 0.2},
    f"data.split_seed: has no effect with data.source: mnist; leave it at 0 or set data.source to {UNSPLIT}, "
    "got 1": {"data.source": "mnist", "data.split_seed": 1},
    "data.sprites.count: has no effect with data.source: mnist5k; leave it at null or set data.source to "
    "sprites, got 10": {"data.sprites.count": 10},
    "data.sprites.seed: has no effect with data.sprites.count: null; leave it at 0 or set data.sprites.count "
    "to a number of images, got 1": {"data.source": "sprites", "data.sprites.seed": 1},
    "data.sprites.count: must be ≤ 737280, all combinations of the factors’ values, got 737281": {
        "data.source": "sprites",
        "data.sprites.count": 737281,
    },
    "evaluation.repeats: has no effect with data.source: mnist5k; leave it at 5 or set data.source to one of "
    "sprites, dsprites, celeba, npz, got 3": {"evaluation.repeats": 3},
    "data.sprites: 18432000 combinations, more than the 10000000 accepted; choose smaller grids or set "
    "data.sprites.count": {"data.source": "sprites", "data.sprites.orientation": 1000},
    f"objective.beta: has no effect with {CAPACITY}; leave it at 1 or set objective.regularizer to beta, "
    "got 4": {"objective.beta": 4.0},
    f"objective.gamma: has no effect with {BETA}; leave it at {GAMMA} or set "
    "objective.regularizer to capacity, got 10": {"objective.regularizer": "beta", "objective.gamma": 10},
    f"objective.gamma.discrete: has no effect with {BETA}; leave it at 10 or set "
    "objective.regularizer to capacity, got 30": {
        "objective.regularizer": "beta",
        "objective.gamma": {"continuous": 30, "discrete": 30},
    },
    f"objective.capacity.continuous.end: has no effect with {BETA}; leave it at 5 or set "
    "objective.regularizer to capacity, got 6": {
        "objective.regularizer": "beta",
        "objective.capacity.continuous.end": 6,
    },
    f"objective.capacity.discrete.end: has no effect with {BETA}; leave it at null or set "
    "objective.regularizer to capacity, got 1": {
        "objective.regularizer": "beta",
        "objective.capacity.discrete.end": 1,
    },
    "objective.capacity.continuous.steps: has no effect with latents.continuous: 0; leave it at 3800 or set "
    "latents.continuous to at least 1, got 10": {
        "latents.continuous": 0,
        "objective.capacity.continuous.steps": 10,
    },
    "objective.capacity.discrete.end: has no effect with latents.discrete: []; leave it at null or set "
    "latents.discrete to a list of at least one unit, got 0": {
        "latents.discrete": [],
        "objective.capacity.discrete.end": 0,
    },
    "train.temperature: has no effect with latents.discrete: []; leave it at 0.67 or set latents.discrete to "
    "a list of at least one unit, got 0.5": {"latents.discrete": [], "train.temperature": 0.5},
    "objective.gamma.discrete: has no effect with latents.discrete: []; leave it at 10 or set "
    "latents.discrete to a list of at least one unit, got 20": {
        "latents.discrete": [],
        "objective.gamma": {"continuous": 10, "discrete": 20},
    },
    f"objective.information.units: has no effect with {NO_INFORMATION}; leave it at all or set "
    "objective.information.continuous to a number > 0, got [z0]": {"objective.information.units": ["z0"]},
    f"objective.information.codes: has no effect with {NO_INFORMATION}; leave it at prior or set "
    "objective.information.continuous to a number > 0, got posterior": {
        "objective.information.codes": "posterior"
    },
    "objective.information.discrete: has no effect with latents.discrete: []; leave it at 0 or set "
    "latents.discrete to a list of at least one unit, got 1": {
        "latents.discrete": [],
        "objective.information.discrete": 1,
    },
    "objective.information.units: must be all or a list of z0, z1, c0, got z2": {
        "latents.continuous": 2,
        "objective.information.continuous": 1,
        "objective.information.units": ["z0", "z2"],
    },
    "objective.information.discrete: has no effect with objective.information.units: [z0]; leave it at 0 or "
    "set objective.information.units to all or a list with a categorical unit, got 1": {
        "objective.information.continuous": 1,
        "objective.information.discrete": 1,
        "objective.information.units": ["z0"],
    },
    "objective.information.units: c0 has no effect with objective.information.discrete: 0; leave it out or "
    "set objective.information.discrete to a number > 0, got [z0, c0]": {
        "objective.information.continuous": 1,
        "objective.information.units": ["z0", "c0"],
    },
    "mutual_information.split: has no effect with mutual_information.codes: prior; leave it at train or set "
    "mutual_information.codes to posterior, got test": {
        "mutual_information.codes": "prior",
        "mutual_information.split": "test",
    },
    "objective.capacity.discrete.end: must be ≤ 2.3026 = Σ log K_j nats, the most that latents.discrete: "
    "[10] can carry, got 2.31 (end: null means that most)": {"objective.capacity.discrete.end": 2.31},
    "objective.capacity.discrete.start: must be ≤ 1.3863 = Σ log K_j nats, the most that latents.discrete: "
    "[2, 2] can carry, got 2 (end: null means that most)": {
        "latents.discrete": [2, 2],
        "objective.capacity.discrete.start": 2,
    },
}


@pytest.mark.parametrize("line", BETWEEN_KEYS)
def test_one_line_for_keys_that_do_not_go_together(tmp_path, line):
    assert complaint(tmp_path, changed(BETWEEN_KEYS[line])) == f"{line} (params.yaml)"


def test_the_rest_is_counted_and_unknown_keys_come_first(tmp_path):
    assert complaint(tmp_path, changed({"seed": -1, "train.epochs": 0})) == (
        "seed: must be ≥ 0, got -1 (params.yaml; and 1 more)"
    )
    assert complaint(tmp_path, changed({"data.source": ABSENT, "data.sorce": "digits"})) == (
        "data.sorce: unknown key; data has source, root, image_size, channels, binarize, test_fraction, "
        "split_seed, split, sprites (params.yaml; and 1 more)"
    )


@pytest.mark.parametrize(
    "changes",
    [
        # What `dvc exp run -S objective.regularizer=beta -S objective.beta=4` writes.
        {"objective.regularizer": "beta", "objective.beta": 4},
        {"objective.regularizer": "beta"},
        {"latents.continuous": 0},
        {"latents.discrete": []},
        {"latents.discrete": [2, 3, 50]},
        {"objective.capacity.discrete.end": math.log(10)},
        {"objective.gamma": {"continuous": 10, "discrete": 20.0}},
        {"objective.gamma": 0},
        {"objective.information.discrete": 1, "objective.information.codes": "posterior"},
        {"objective.information.continuous": 0.5, "objective.information.units": ["z9", "z0"]},
        {"train.temperature": {"start": 1, "end": 0.5, "steps": 100}},
        {"train.clip_norm": None},
        {"train.compile": True},
        {"model.likelihood": "gaussian", "model.scale": 0.1},
        {"model.architecture": "mlp", "data.image_size": 28},
        {"data.source": "emnist", "data.split": "letters"},
        {"objective.capacity": {}},
        {"mutual_information.codes": "prior"},
        {"mutual_information.split": "test"},
        {"mutual_information.importance": None},
    ],
)
def test_accepted(tmp_path, changes):
    content = changed(changes)
    flat = load(tmp_path, content).flat()
    assert {key: flat[key] for key in leaves(content)} == leaves(content)


@pytest.mark.parametrize(
    ("written", "value"),
    [("1e-05", 1e-5), ("5e-4", 5e-4), ("1E-3", 1e-3), (".5e-3", 5e-4), ("1.e-3", 1e-3), ("1e+0", 1.0)],
)
def test_numbers_as_people_and_dvc_write_them(tmp_path, written, value):
    text = FILE.read_text("utf-8").replace("1.0e-3", written)
    assert load(tmp_path, text).train.learning_rate == value


def test_a_key_given_twice(tmp_path):
    line = complaint(tmp_path, FILE.read_text("utf-8") + "\nseed: 1\n")
    assert line.startswith("params.yaml: is not YAML (key 'seed' twice in ")


@pytest.mark.parametrize(
    "text",
    [
        "seed: [",
        "a: b: c",
        "? [1, 2]\n: 3",
        "seed: !!python/object/apply:os.system [echo]",
        "seed: !!int x",
        "seed: !!timestamp x",
        "seed: 2024-13-45",
        "seed: !!map [1]",
        "seed: " + "9" * 5000,
        "seed: *nowhere",
        "a: &a [*a]",
        "[" * 3000,
        "\x00",
    ],
)
def test_text_that_is_not_yaml_or_not_plain(tmp_path, text):
    line = complaint(tmp_path, text)
    assert line.startswith(("params.yaml: is not YAML (", "seed: ", "a: unknown key"))


@pytest.mark.parametrize("text", ["", "3", "[]", "text"])
def test_a_file_that_is_no_mapping(tmp_path, text):
    assert re.match(
        r"the file: must be \{seed: …, data: …, .*\}, got .*\(params\.yaml\)$", complaint(tmp_path, text)
    )


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(ParameterError, match=r"absent\.yaml: there is no such file; .*from the root"):
        load_params(tmp_path / "absent.yaml")
    with pytest.raises(ParameterError, match=r"cannot be read \(Is a directory\)$"):
        load_params(tmp_path)
    (tmp_path / "params.yaml").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ParameterError, match=r"cannot be read \(it is not UTF-8 text\)$"):
        load_params(tmp_path / "params.yaml")


def outcome(path: Path) -> str:
    try:
        load_params(path)
    except ParameterError as error:
        return str(error)
    return "accepted"


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.dates())
names = st.one_of(st.sampled_from(["continuous", "end", "float"]), st.integers(), st.text(max_size=3))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=4,
)
fuzz = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@fuzz
@given(st.dictionaries(st.sampled_from([*DEFAULTS, *leaves(DEFAULTS)]), values, min_size=1, max_size=2))
def test_nothing_but_parameter_errors_for_any_values(tmp_path, changes):
    blocks_last = dict(sorted(changes.items(), key=lambda item: -item[0].count(".")))
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(changed(blocks_last)), "utf-8", errors="replace")
    assert "\n" not in outcome(path)


@fuzz
@given(st.data())
def test_nothing_but_parameter_errors_for_a_damaged_file(tmp_path, data):
    text = FILE.read_bytes()
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, min(len(text), start + 40)))
    path = tmp_path / "params.yaml"
    path.write_bytes(text[:start] + data.draw(st.binary(max_size=12)) + text[stop:])
    assert "\n" not in outcome(path)
