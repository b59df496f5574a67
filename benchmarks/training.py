"""Training speed beside the plain baseline, and the parts of the mutual information: `make bench`.

Both sides train the same network from the same weights on the same images, in turns, so that whatever else
the machine does meets both; each has a process of its own, set up as a user's script or a stage would be.
Reported are medians over the repeats, of the second of two epochs each: what is built at the first use
(worker processes, compiled code) is not in them. `--whole` measures everything, from start to end.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated

import information
import loading
import numpy as np
import plain
import torch
import typer
import yaml
from numpy.typing import NDArray
from safetensors.torch import save_file

from vmivae import stage
from vmivae.data import load_prepared, prepare
from vmivae.evaluation.elbo import elbo_parts
from vmivae.files import write_json
from vmivae.model import VAE, LatentSpec
from vmivae.training import Capacity, TrainConfig, make_objective, train

LATENTS = LatentSpec(10, (10,))
SIZES = {"32-grey": (1, 32), "64-grey": (1, 64), "64-rgb": (3, 64)}
TEMPERATURE, LEARNING_RATE = 0.67, 1e-3
WORKERS = 2


def main(
    sizes: Annotated[str, typer.Option(help="of the images, by comma")] = ",".join(SIZES),
    batches: Annotated[str, typer.Option(help="images per batch, by comma")] = "64,256,1024",
    images: Annotated[int, typer.Option(help="per epoch at 32×32; a quarter at 64×64")] = 2048,
    repeats: Annotated[int, typer.Option(help="of each measurement")] = 3,
    compiled: Annotated[bool, typer.Option(help="add a column for train.compile: true")] = False,
    mutual_information: Annotated[bool, typer.Option(help="add the parts of the estimate")] = True,
    seeds: Annotated[int, typer.Option(help="add the test ELBO of both sides over so many seeds")] = 0,
    epochs: Annotated[int, typer.Option(help="that the ELBO is compared after")] = 10,
    whole: Annotated[int, typer.Option(help="add the train stage of so many epochs, start to end")] = 0,
    output: Annotated[Path, typer.Option(help="folder for training.json and training.md")] = Path(
        "build/benchmarks"
    ),
) -> None:
    """Measure training beside the plain baseline; write JSON and a Markdown table."""
    result: dict[str, object] = {"machine": machine()}
    text = [f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}", ""]
    rows = []
    spawn = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(1, spawn) as baseline,
        ProcessPoolExecutor(1, spawn, initializer=stage.keep_freed_memory) as ours,
    ):
        for size in sizes.split(","):
            data = embedded(Path(folder) / size, *SIZES[size])
            for batch in map(int, batches.split(",")):
                count = max(batch, images * 32**2 // SIZES[size][1] ** 2)
                pictures, place = data[0][:count], Path(folder) / f"{size}-{batch}"
                row = compare(baseline, ours, size, pictures, batch, repeats, compiled, place)
                print(row, flush=True)
                rows.append(row)
        result["training"] = rows
        text += ["Images per second, training (medians)", "", *table(rows), ""]
        if mutual_information:
            parts = information.measure(repeats)
            result["mutual_information"] = parts
            text += ["Parts of the estimate, seconds (medians)", "", *table(parts), ""]
        if seeds:
            scores = [score(seed, epochs, Path(folder) / f"seed-{seed}") for seed in range(seeds)]
            result["elbo"] = scores
            text += [f"Test ELBO after {epochs} epochs, nats per image", "", *table(scores), ""]
        if whole:
            seconds = start_to_end(Path(folder) / "whole", whole)
            result["whole"] = seconds
            text += [f"Start to end, {whole} epochs of the default configuration, seconds", ""]
            text += [*table([seconds]), ""]
    output.mkdir(parents=True, exist_ok=True)
    write_json(output / "training.json", result)
    (output / "training.md").write_text("\n".join(text), "utf-8")
    print("\n".join(text))


def machine() -> dict[str, object]:
    """What the numbers depend on."""
    return {
        "processor": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
    }


def embedded(folder: Path, channels: int, size: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The 4,500 training and 500 test digits that come with an installed package, at any size."""
    prepare(folder, source="mnist5k", image_size=size, channels={1: "grey", 3: "rgb"}[channels])
    data = load_prepared(folder)
    return np.array(data.train.images), np.array(data.test.images)


def objective(steps: int) -> Capacity:
    """The default objective of params.yaml, its ramps scaled to a training of `steps` steps."""
    made = make_objective(
        LATENTS,
        "capacity",
        gamma={"continuous": 30.0, "discrete": 10.0},
        capacity={
            "continuous": {"start": 0.0, "end": 5.0, "steps": max(1, round(0.9 * steps))},
            "discrete": {"start": 0.0, "end": None, "steps": max(1, round(0.8 * steps))},
        },
    )
    assert isinstance(made, Capacity)
    return made


def plain_speed(images: NDArray[np.uint8], batch: int, folder: Path) -> float:
    """Images per second of the baseline, its loader included."""
    if not folder.exists():
        loading.write_dataset(images, folder)
    loader = loading.read_dataset(folder, batch, WORKERS)
    model = plain.PlainVAE(VAE(images.shape[1:], LATENTS))
    epochs = plain.train(model, loader, 2, objective(2 * len(loader)), LEARNING_RATE, TEMPERATURE)
    next(epochs)
    began = time.perf_counter()
    return next(epochs) / (time.perf_counter() - began)


def our_speed(images: NDArray[np.uint8], batch: int, compile: str | bool) -> float:
    """Images per second of `vmivae.training.train`."""
    speeds: list[float] = []
    config = TrainConfig(2, batch, LEARNING_RATE, temperature=TEMPERATURE, device="cpu", compile=compile)
    train(
        VAE(images.shape[1:], LATENTS),
        torch.from_numpy(images),
        objective(2 * (len(images) // batch)),
        config,
        seed=0,
        on_epoch=lambda _, values: speeds.append(values["images_per_second"]),
    )
    return speeds[-1]


def compare(
    baseline: ProcessPoolExecutor,
    ours: ProcessPoolExecutor,
    size: str,
    images: NDArray[np.uint8],
    batch: int,
    repeats: int,
    compiled: bool,
    folder: Path,
) -> dict[str, object]:
    """Medians of interleaved repeats, and the ratio to the baseline."""
    sides: dict[str, Callable[[], float]] = {
        "plain": lambda: baseline.submit(plain_speed, images, batch, folder).result(),
        "vmivae": lambda: ours.submit(our_speed, images, batch, "auto").result(),
    }
    if compiled:
        sides["compiled"] = lambda: ours.submit(our_speed, images, batch, True).result()
    seen: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(repeats):
        for side, speed in sides.items():
            seen[side].append(speed())
    medians = {side: statistics.median(values) for side, values in seen.items()}
    ratios = {f"{side} / plain": medians[side] / medians["plain"] for side in list(sides)[1:]}
    return {"images": size, "batch": batch, **medians, **ratios}


def score(seed: int, epochs: int, folder: Path, batch: int = 64) -> dict[str, object]:
    """Test ELBO of both sides, trained from the same weights."""
    images, test = embedded(folder / "prepared", 1, 32)
    loading.write_dataset(images, folder / "plain")
    aim = objective(epochs * (len(images) // batch))

    def elbo(model: VAE) -> float:
        return float(elbo_parts(model, test, torch.Generator().manual_seed(0)).elbo.mean())

    def fresh() -> VAE:
        return VAE(images.shape[1:], LATENTS, seed=seed)

    baseline = plain.PlainVAE(fresh())
    torch.manual_seed(seed)
    loader = loading.read_dataset(folder / "plain", batch, WORKERS)
    for _ in plain.train(baseline, loader, epochs, aim, LEARNING_RATE, TEMPERATURE):
        pass
    ours = fresh()
    config = TrainConfig(epochs, batch, LEARNING_RATE, temperature=TEMPERATURE, device="cpu")
    train(ours, torch.from_numpy(images), aim, config, seed)
    return {"seed": seed, "plain": elbo(baseline.copy_to(fresh())), "vmivae": elbo(ours)}


def start_to_end(folder: Path, epochs: int) -> dict[str, object]:
    """Seconds of both sides from the start of their process to its end; nothing was compiled before."""
    here = Path(__file__).parents[1]
    for name in ("src", "stages"):
        shutil.copytree(here / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    params = yaml.safe_load((here / "params.yaml").read_text("utf-8"))
    params["train"]["epochs"] = epochs
    (folder / "params.yaml").write_text(yaml.safe_dump(params), "utf-8")
    shutil.copy(here / "dvc.yaml", folder)
    environment = {**os.environ, "PYTHONPATH": "src"}
    # What this process keeps for itself is not the stage's.
    environment.pop("TORCHINDUCTOR_CACHE_DIR", None)
    (folder / "data/raw").mkdir(parents=True)
    subprocess.run([sys.executable, "stages/prepare.py"], cwd=folder, env=environment, check=True)
    loading.write_dataset(np.array(load_prepared(folder / "data/prepared").train.images), folder / "plain")

    began = time.perf_counter()
    spawned = multiprocessing.get_context("spawn").Process(target=plain_job, args=(folder / "plain", epochs))
    spawned.start()
    spawned.join()
    plain_seconds = time.perf_counter() - began
    began = time.perf_counter()
    subprocess.run([sys.executable, "stages/train.py"], cwd=folder, env=environment, check=True)
    seconds = time.perf_counter() - began
    return {"plain": plain_seconds, "vmivae": seconds, "plain / vmivae": plain_seconds / seconds}


def plain_job(folder: Path, epochs: int) -> None:
    """What a user's training script does."""
    loader = loading.read_dataset(folder, 64, WORKERS)
    model = plain.PlainVAE(VAE((1, 32, 32), LATENTS))
    aim = objective(epochs * len(loader))
    for _ in plain.train(model, loader, epochs, aim, LEARNING_RATE, TEMPERATURE):
        pass
    save_file(model.state_dict(), folder / "model.safetensors")


def table(rows: list[dict[str, object]]) -> list[str]:
    """Rows that share their keys, as Markdown."""

    def cell(value: object) -> str:
        return (
            f"{value:,.4g}"
            if isinstance(value, float) and abs(value) < 1000
            else (f"{value:,.0f}" if isinstance(value, float) else str(value))
        )

    lines = [list(rows[0]), ["---"] * len(rows[0])]
    lines += [[cell(value) for value in row.values()] for row in rows]
    return [f"| {' | '.join(line)} |" for line in lines]


if __name__ == "__main__":
    stage.run(main, again="the same command begins again", keys_of="")
