"""Checkpoints of a stage are at the main checkout's root, and belong to one configuration."""

import shutil

from vmivae import stage
from vmivae.checkpoint import NO_CHECKPOINT

BEGINNING = {"step": 0}


def found(name="train"):
    """The state that a stage would go on from; one step further is kept."""
    try:
        with stage.checkpoints(name, 1e-9) as checkpoint:
            state = checkpoint.load("work", BEGINNING) or BEGINNING
            checkpoint.offer("work", lambda: {"step": state["step"] + 1})
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        return state["step"]


def test_a_copy_for_an_experiment_goes_on_where_the_checkout_was(checkout, monkeypatch):
    checkout.prepare()
    assert [found(), found()] == [0, 1]
    copy = checkout.root / ".dvc/tmp/exps/tmp1"
    shutil.copytree(checkout.root, copy, ignore=shutil.ignore_patterns(".dvc", ".vmivae", "mlflow.db"))
    monkeypatch.chdir(copy)
    monkeypatch.setenv("DVC_ROOT", str(copy))
    assert [found(), found()] == [2, 3]
    assert not (copy / ".vmivae").exists()
    shutil.rmtree(copy)
    monkeypatch.chdir(checkout.root)
    monkeypatch.delenv("DVC_ROOT")
    assert found() == 4
    (folder,) = (path for path in (checkout.root / ".vmivae/checkpoints").iterdir() if path.is_dir())
    assert folder.name.startswith("train-")


def test_another_configuration_begins_at_the_beginning(checkout):
    checkout.prepare()
    assert [found(), found()] == [0, 1]
    checkout.set("objective.gamma", 31.0)
    assert found() == 0
    checkout.set("train.checkpoint_seconds", 5)
    assert found() == 1
    checkout.write("src/vmivae/training/loop.py", "x = 1\n")
    assert found() == 0
    assert found("estimate_mi") == 0


def test_a_stage_whose_inputs_are_damaged_is_left_to_say_so(checkout):
    with stage.checkpoints("train", 1.0) as checkpoint:
        assert checkpoint is NO_CHECKPOINT
    checkout.write("data/prepared/data_card.json", "{")
    with stage.checkpoints("train", 1.0) as checkpoint:
        assert checkpoint is NO_CHECKPOINT
    assert not (checkout.root / ".vmivae/checkpoints").exists()
