"""The key changes with whatever can change a result, and with nothing else."""

import pytest

from vmivae.tracking import configuration_key
from vmivae.tracking.configuration import Configuration
from vmivae.tracking.tree import Tree


def _keys(checkout):
    configuration = Configuration(Tree.folder(checkout.root))
    return configuration.key, configuration.training_key


def test_key_ignores_tracking_comments_and_results(checkout):
    checkout.prepare()
    before = _keys(checkout)
    checkout.set("tracking.experiment", "other")
    checkout.set("train.checkpoint_seconds", 5)
    params = checkout.root / "params.yaml"
    params.write_text("# a remark\n" + params.read_text())
    checkout.train()
    (checkout.root / "src/vmivae/model/__pycache__").mkdir()
    checkout.write("src/vmivae/model/__pycache__/vae.cpython-311.pyc", "x")
    checkout.write("src/vmivae/tracking/mirror.py", "")
    assert _keys(checkout) == before
    assert configuration_key(checkout.root) == before[0]


def test_a_number_may_be_written_in_two_ways(checkout):
    checkout.prepare()
    params = checkout.root / "params.yaml"
    checkout.set("train.learning_rate", 0.0005)
    before = _keys(checkout)
    written = params.read_text()
    params.write_text(written.replace("learning_rate: 0.0005", "learning_rate: 5e-4"))
    assert params.read_text() != written
    assert _keys(checkout) == before


@pytest.mark.parametrize(
    ("change", "trains"),
    [
        (lambda c: c.set("mutual_information.samples", 17), False),
        (lambda c: c.set("evaluation.importance_samples", 3), False),
        (lambda c: c.write("src/vmivae/mutual_information/bounds.py", "x = 1\n"), False),
        (lambda c: c.write("stages/report.py", "x = 1\n"), False),
        (lambda c: c.set("objective.gamma", 31.0), True),
        (lambda c: c.set("seed", 1), True),
        (lambda c: c.write("src/vmivae/training/loop.py", "x = 1\n"), True),
        (lambda c: c.write("src/vmivae/model/networks.py", "x = 1\n"), True),
        (lambda c: c.prepare(data_hash="b" * 64), True),
    ],
)
def test_key_changes_with_params_code_and_data(checkout, change, trains):
    checkout.prepare()
    key, training_key = _keys(checkout)
    change(checkout)
    new_key, new_training_key = _keys(checkout)
    assert new_key != key
    assert (new_training_key != training_key) == trains


def test_a_stages_key_changes_with_its_own_params_inputs_and_code(checkout):
    def keys():
        configuration = Configuration(Tree.folder(checkout.root))
        return [configuration.stage_key(name) for name in ("train", "estimate_mi")]

    def changed(change):
        before = keys()
        change()
        return [old != new for old, new in zip(before, keys(), strict=True)]

    checkout.prepare()
    checkout.train()
    assert len(set(keys())) == 2
    assert changed(lambda: checkout.set("mutual_information.samples", 17)) == [False, True]
    assert changed(lambda: checkout.set("objective.gamma", 31.0)) == [True, False]
    assert changed(lambda: checkout.set("train.checkpoint_seconds", 5)) == [False, False]
    assert changed(lambda: checkout.set("evaluation.importance_samples", 3)) == [False, False]
    assert changed(lambda: checkout.write("src/vmivae/training/loop.py", "x = 1\n")) == [True, False]
    assert changed(lambda: checkout.train(seed=1)) == [False, True]
    assert changed(lambda: checkout.prepare(data_hash="b" * 64)) == [True, True]
    # How the pixels are drawn is in the card, and not in the hash of the images.
    card = checkout.root / "data/prepared/data_card.json"
    assert changed(lambda: card.write_text(card.read_text().replace("none", "dynamic"))) == [True, True]


def test_upstream_follows_the_outputs(checkout):
    checkout.prepare()
    configuration = Configuration(Tree.folder(checkout.root))
    assert configuration.upstream("estimate_mi") == ["prepare", "train", "estimate_mi"]
    assert configuration.upstream("report") == ["prepare", "train", "evaluate", "estimate_mi", "report"]


def test_params_are_flat_text(checkout):
    checkout.prepare()
    flat = Configuration(Tree.folder(checkout.root)).flat_params()
    assert flat["latents.discrete"] == "[3]"
    assert flat["objective.capacity.discrete.end"] == "null"
    assert flat["tracking.experiment"] == "vmivae"


def test_missing_data_card_is_named(checkout):
    with pytest.raises(FileNotFoundError, match=r"data_card\.json"):
        configuration_key(checkout.root)
