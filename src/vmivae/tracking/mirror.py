"""Files of a checkout projected onto its row.

Each stage's results are logged once: a tag holds their digest. A row that holds other results for the same
configuration (of another device, say) is replaced, so that there is never more than one.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vmivae.params import flatten
from vmivae.tracking.configuration import Configuration
from vmivae.tracking.store import KEY_TAG, Store
from vmivae.tracking.tree import Tree

if TYPE_CHECKING:
    from mlflow.entities import Run

TRAINING_KEY_TAG = "vmivae.training_key"
TRAINED_BY_TAG = "vmivae.trained_by"
FAILURE_TAG = "vmivae.failure"
EXPERIMENT_TAG = "vmivae.dvc_experiment"
BATCH = 1000
CURVE_POINTS = 1000
DIGEST_CHARACTERS = 36
TEXT_CHARACTERS = 5000
EXAMPLES = 2
# Where on a curve a point is, and no curve itself.
POSITIONS = {"step", "epoch", "proposals"}

Facts = dict[str, dict[str, Any]]
Point = tuple[str, float, int]


def open_row(store: Store, configuration: Configuration, name: str, started: float | None = None) -> Run:
    """The configuration's row, made if there is none.

    Args:
        name: of the DVC experiment that it belongs to, or empty; a row that has none yet takes it.
        started: seconds since 1970, for a row that is made now of earlier results.
    """
    title = name or configuration.title()
    with store.lock:
        row = store.find(configuration.key)
        if row is None:
            row = store.client.create_run(
                store.experiment_id,
                start_time=int((started or time.time()) * 1000),
                run_name=title,
                tags={KEY_TAG: configuration.key, TRAINING_KEY_TAG: configuration.training_key},
            )
        elif name and row.info.run_name == configuration.title():
            store.client.update_run(row.info.run_id, name=name)
    return row


def mirror(
    store: Store, configuration: Configuration, stages: Iterable[str], facts: Facts, name: str = ""
) -> str:
    """Bring the configuration's row in line with the files of `stages`; returns the run's id.

    Args:
        stages: whose files belong to this configuration. After a change, those of later stages do not yet.
        facts: times, commit and versions by stage, from `read_facts`.
        name: of the DVC experiment, or empty.
    """
    stages = list(stages)
    digests = {stage: _digest(configuration, stage) for stage in stages}
    started = min((fact["started"] for fact in facts.values()), default=None)
    with store.row_lock(configuration.key):
        row = open_row(store, configuration, name, started)
        if any(row.data.tags.get(_files_tag(stage), digests[stage]) != digests[stage] for stage in stages):
            _remove(store, row)
            row = open_row(store, configuration, name or row.info.run_name, started)
        run_id = row.info.run_id
        _log_params(store, row, configuration)
        for stage in stages:
            if _files_tag(stage) not in row.data.tags:
                _log_stage(store, row, configuration, stage)
                store.client.set_tag(run_id, _files_tag(stage), digests[stage])
        _log_facts(store, run_id, facts)
        names = experiment_names(row)
        _tag(store, run_id, {EXPERIMENT_TAG: " ".join(dict.fromkeys([*names, name]))})
        _name_trainer(store, row, "train" in facts)
    return str(run_id)


def experiment_names(row: Run) -> list[str]:
    """The DVC experiments that have a row's configuration: there may be several of one."""
    return str(row.data.tags.get(EXPERIMENT_TAG, "")).split()


def finish_row(store: Store, run_id: str, ended: float | None = None) -> None:
    """Show a row as finished, at `ended` seconds since 1970 or now; an earlier failure is forgotten."""
    if FAILURE_TAG in store.client.get_run(run_id).data.tags:
        store.client.delete_tag(run_id, FAILURE_TAG)
    store.client.set_terminated(run_id, "FINISHED", None if ended is None else int(ended * 1000))


def log_points(store: Store, run_id: str, points: Iterable[Point]) -> None:
    """Log (name, value, step) triples."""
    from mlflow.entities import Metric

    now = int(time.time() * 1000)
    metrics = [Metric(name, value, now, step) for name, value, step in points]
    for start in range(0, len(metrics), BATCH):
        store.client.log_batch(run_id, metrics=metrics[start : start + BATCH])


def live_steps(store: Store, run_id: str, name: str) -> set[int]:
    """Steps at which a curve has points already."""
    return {point.step for point in store.client.get_metric_history(run_id, name)}


def curve_prefix(configuration: Configuration, stage: str) -> str:
    """What the names of a stage's curves begin with: its first CSV file's name, as in `training/loss`."""
    files = [PurePosixPath(out) for out in configuration.stages[stage].outs]
    return next((f"{file.stem}/" for file in files if file.suffix == ".csv"), f"{stage}/")


def is_logged(row: Run, stage: str) -> bool:
    """Whether the row holds the results of a stage."""
    return _files_tag(stage) in row.data.tags


def _files_tag(stage: str) -> str:
    return f"vmivae.files.{stage}"


def _digest(configuration: Configuration, stage: str) -> str:
    content = hashlib.sha256()
    for file in configuration.results(stage):
        content.update(file.encode() + b"\0" + hashlib.sha256(configuration.tree.read_bytes(file)).digest())
    return content.hexdigest()[:16]


def _remove(store: Store, row: Run) -> None:
    for output in row.outputs.model_outputs if row.outputs else []:
        store.client.delete_logged_model(output.model_id)
    store.client.delete_run(row.info.run_id)


def _log_params(store: Store, row: Run, configuration: Configuration) -> None:
    from mlflow.entities import Param

    missing = [
        Param(name, text[:TEXT_CHARACTERS])
        for name, text in configuration.flat_params().items()
        if name not in row.data.params
    ]
    for start in range(0, len(missing), 100):
        store.client.log_batch(row.info.run_id, params=missing[start : start + 100])


def _log_stage(store: Store, row: Run, configuration: Configuration, stage: str) -> None:
    """What a file is decides how it is shown: as numbers, curves, the data set, the model, or a page."""
    tree, run_id = configuration.tree, row.info.run_id
    files = [PurePosixPath(file) for file in configuration.results(stage)]
    for file in files:
        if file.parts[0] == "metrics":
            _log_metrics(store, run_id, file.stem, json.loads(tree.read_text(str(file))))
        elif file.parts[0] == "plots":
            _log_curves(store, row, file.stem, tree.read_text(str(file)))
        elif file.name == "data_card.json":
            _log_dataset(store, run_id, configuration)
    if any(file.parts[0] == "reports" for file in files):
        with _scratch() as scratch:
            store.client.log_artifacts(run_id, str(tree.fetch("reports", scratch)), "reports")
    if any(file.parts[:2] == ("models", "vae") for file in files):
        _log_encoder(store, run_id, configuration)


def _log_metrics(store: Store, run_id: str, stem: str, content: dict[str, Any]) -> None:
    numbers, words = [], {}
    for name, value in flatten(content, f"{stem}.").items():
        if isinstance(value, bool | str) and name.count(".") == 1:
            words[name] = str(value).lower() if isinstance(value, bool) else value
        elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            numbers.append((name, float(value), 0))
    log_points(store, run_id, numbers)
    _tag(store, run_id, words)


def _log_curves(store: Store, row: Run, stem: str, text: str) -> None:
    rows = list(csv.DictReader(io.StringIO(text)))
    axis = next((name for name in ("step", "proposals") if rows and name in rows[0]), None)
    if axis is None:
        return
    kept = {round(i * (len(rows) - 1) / CURVE_POINTS) for i in range(CURVE_POINTS + 1)}
    points: list[Point] = []
    for column in rows[0].keys() - POSITIONS:
        name = f"{stem}/{column}"
        there = live_steps(store, row.info.run_id, name) if name in row.data.metrics else set()
        for index in sorted(kept):
            step = int(rows[index][axis])
            if rows[index][column] and step not in there:
                points.append((name, float(rows[index][column]), step))
    log_points(store, row.info.run_id, points)


def _log_dataset(store: Store, run_id: str, configuration: Configuration) -> None:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    card = configuration.data_card
    dataset = Dataset(
        name=card["source"],
        digest=configuration.data_hash[:DIGEST_CHARACTERS],
        source_type="local",
        source=json.dumps({"uri": configuration.params["data"]["root"]}),
        profile=json.dumps({"image_shape": card["image_shape"], "binarize": card["binarize"]}),
    )
    store.client.log_inputs(run_id, [DatasetInput(dataset, [InputTag("mlflow.data.context", "training")])])
    store.client.set_tag(run_id, "vmivae.data_hash", configuration.data_hash)


def _log_encoder(store: Store, run_id: str, configuration: Configuration) -> None:
    """Log the trained VAE as a model that `mlflow.pyfunc.load_model` turns into an encoder of images."""
    import mlflow
    from mlflow.entities import LoggedModelOutput
    from mlflow.models import Model, ModelSignature
    from mlflow.types import Schema, TensorSpec

    tree, client = configuration.tree, store.client
    description = json.loads(tree.read_text("models/vae/model.json"))
    latents = description["latents"]
    size = latents["continuous"] + sum(latents["discrete"])
    floats = np.dtype("float32")
    signature = ModelSignature(
        inputs=Schema([TensorSpec(floats, (-1, *description["image_shape"]))]),
        outputs=Schema([TensorSpec(floats, (-1, size))]),
    )
    model = client.create_logged_model(store.experiment_id, name="encoder", source_run_id=run_id)
    with _scratch() as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # The code goes with the weights, so that a row of last year still loads what it was trained with.
        mlflow.pyfunc.save_model(
            str(scratch / "encoder"),
            python_model=str(Path(__file__).with_name("encoder.py")),
            artifacts={"vae": str(tree.fetch("models/vae", scratch))},
            code_paths=[str(tree.fetch("src/vmivae", scratch))],
            signature=signature,
            input_example=_first_images(tree, description["image_shape"]),
            pip_requirements=[
                f"{name}=={version(name).split('+')[0]}"
                for name in ("mlflow", "torch", "numpy", "safetensors")
            ],
            mlflow_model=Model(run_id=run_id, model_id=model.model_id),
        )
        client.log_model_artifacts(model.model_id, str(scratch / "encoder"))
    client.finalize_logged_model(model.model_id, "READY")
    client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=0)])


def _first_images(tree: Tree, shape: list[int]) -> npt.NDArray[np.float32]:
    """The first images of the test split `(2, C, H, W)` in [0, 1], read without the rest of the file."""
    with tree.open("data/prepared/test_images.npy") as file:
        np.lib.format.read_magic(file)
        (count, *_), _, kind = np.lib.format.read_array_header_1_0(file)
        shape = [min(EXAMPLES, count), *shape]
        pixels = np.frombuffer(file.read(math.prod(shape)), kind)
    return (pixels.reshape(shape) / 255).astype(np.float32)


def _log_facts(store: Store, run_id: str, facts: Facts) -> None:
    if not facts:
        return
    seconds = {f"seconds.{stage}": fact["seconds"] for stage, fact in facts.items()}
    for stage, fact in facts.items():
        seconds |= {f"seconds.{stage}.{part}": value for part, value in fact["timings"].items()}
    log_points(store, run_id, [(name, value, 0) for name, value in seconds.items()])
    latest = max(facts.values(), key=lambda fact: fact["started"])
    # The model's device matters more than that of a later, smaller stage.
    device = facts.get("train", latest)
    tags = {
        "mlflow.source.name": "dvc repro",
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": latest["commit"],
        "vmivae.dirty": str(latest["dirty"]).lower(),
        "vmivae.platform": latest["platform"],
        "vmivae.device": device.get("device", ""),
        "vmivae.threads": str(device.get("threads", "")),
    }
    tags |= {f"vmivae.version.{package}": text for package, text in latest["versions"].items()}
    _tag(store, run_id, tags)


def _name_trainer(store: Store, row: Run, here: bool) -> None:
    """Tag rows that share their training with the id of the run that did it, where that is known.

    Args:
        here: whether it is `row` that trained its model.
    """
    run_id = row.info.run_id
    if here:
        store.client.set_tag(run_id, TRAINED_BY_TAG, run_id)
    training_key = row.data.tags[TRAINING_KEY_TAG]
    sharing = store.search(f"tags.`{TRAINING_KEY_TAG}` = '{training_key}'")
    trained_by = {run.info.run_id: run.data.tags.get(TRAINED_BY_TAG) for run in sharing}
    trainers = [run_id for run_id in trained_by if trained_by[run_id] == run_id]
    for other in trained_by:
        if trainers and trained_by[other] not in trained_by:
            store.client.set_tag(other, TRAINED_BY_TAG, trainers[0])


def _tag(store: Store, run_id: str, tags: dict[str, str]) -> None:
    """Set the tags that have a text."""
    from mlflow.entities import RunTag

    filled = [RunTag(name, text[:TEXT_CHARACTERS]) for name, text in tags.items() if text]
    store.client.log_batch(run_id, tags=filled)


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="vmivae-") as name:
        yield Path(name)
