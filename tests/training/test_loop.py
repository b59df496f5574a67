"""The loop: what a step is, what an epoch averages, that repeats are the same bytes, and how it stops."""

import math
import statistics
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from vmivae.errors import NonFiniteError, ParameterError
from vmivae.model import VAE, LatentSpec
from vmivae.training import Beta, Capacity, History, Objective, Ramp, TrainConfig, loop, make_objective, train
from vmivae.training.loop import COMPILE_FROM, choose_compile, choose_precision

LATENTS = LatentSpec(2, (3,))
CAPACITY = Capacity(gamma=(5.0, 5.0), continuous=Ramp(0.0, 2.0, 6), discrete=Ramp(0.0, math.log(3), 6))


def some_images(count: int = 40) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, 1, 8, 8), generator=generator, dtype=torch.uint8)


def settings(**changes: object) -> TrainConfig:
    fixed = {"epochs": 2, "batch_size": 16, "device": "cpu", "precision": "fp32", "compile": False}
    return TrainConfig(**(fixed | changes))  # type: ignore[arg-type]


def trained(
    objective: Objective = CAPACITY, images: Tensor | None = None, seed: int = 0, **changes: object
) -> tuple[VAE, History]:
    model = VAE((1, 8, 8), LATENTS, architecture="mlp")
    images = some_images() if images is None else images
    return model, train(model, images, objective, settings(**changes), seed)


def same(first: VAE, second: VAE) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_repeats_are_the_same_to_the_bit() -> None:
    (first, history), (second, again) = trained(), trained()
    assert same(first, second)
    assert history.rows == again.rows
    assert not same(first, trained(seed=1)[0])


def test_global_random_state_is_left_alone_and_has_no_part() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first, _ = trained()
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    assert same(first, trained()[0])


def test_rows_hold_the_schedules_by_step() -> None:
    _, history = trained(epochs=4, temperature={"start": 1.0, "end": 0.5, "steps": 4})
    # 40 images in batches of 16: two steps per epoch, 8 images sit each one out.
    assert [row["step"] for row in history.rows] == [2, 4, 6, 8]
    assert [row["temperature"] for row in history.rows] == pytest.approx([0.9375, 0.6875, 0.5, 0.5])
    assert [row["capacity_continuous"] for row in history.rows] == pytest.approx([1 / 6, 5 / 6, 1.5, 2.0])
    assert [row["capacity_discrete"] for row in history.rows] == pytest.approx(
        [math.log(3) * share for share in (1 / 12, 5 / 12, 3 / 4, 1)]
    )


def test_rows_are_consistent_sums() -> None:
    _, history = trained(objective=Beta(2.0))
    for row in history.rows:
        assert row["kl_continuous"] == pytest.approx(row["kl_z0"] + row["kl_z1"])
        assert row["kl_discrete"] == pytest.approx(row["kl_c0"])
        assert row["rate"] == pytest.approx(row["kl_continuous"] + row["kl_discrete"])
        assert row["loss"] == pytest.approx(row["distortion"] + 2 * row["rate"], rel=1e-6)
        assert row["capacity_continuous"] is None
        assert row["capacity_discrete"] is None


def test_an_epoch_averages_all_its_batches() -> None:
    # Without learning, batches of identical images have the same KL.
    images = some_images(1).expand(64, 1, 8, 8)
    model, history = trained(images=images, learning_rate=1e-12, objective=Beta())
    with torch.no_grad():
        kl = model.posterior(images[:1].float() / 255).kl(model.prior).item()
    assert history.rows[0]["rate"] == pytest.approx(kl, rel=1e-5)

    halves = torch.cat([torch.zeros(32, 1, 8, 8), torch.full((32, 1, 8, 8), 255)]).to(torch.uint8)
    model, history = trained(images=halves, learning_rate=1e-12, objective=Beta(), epochs=1)
    with torch.no_grad():
        kl = model.posterior(halves.float() / 255).kl(model.prior).mean().item()
    assert history.rows[0]["rate"] == pytest.approx(kl, rel=1e-5)


def test_each_epoch_has_a_new_order_of_distinct_images() -> None:
    images = torch.arange(32, dtype=torch.uint8).view(32, 1, 1, 1).expand(32, 1, 8, 8)
    seen: list[Tensor] = []

    def watched(batch: Tensor, generator: torch.Generator) -> Tensor:
        seen.append(batch[:, 0, 0, 0].clone())
        return batch

    model = VAE((1, 8, 8), LATENTS, architecture="mlp")
    train(model, images, Beta(), settings(), 0, draw=watched)
    first, second = torch.cat(seen[:2]), torch.cat(seen[2:])
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(32))
    assert first.tolist() != second.tolist()


def test_pixels_drawn_afresh_differ_between_epochs() -> None:
    drawn: list[Tensor] = []

    def draw(batch: Tensor, generator: torch.Generator) -> Tensor:
        drawn.append((torch.rand(batch.shape, generator=generator) < 0.5).to(torch.uint8) * 255)
        return drawn[-1]

    model = VAE((1, 8, 8), LATENTS, architecture="mlp")
    train(model, some_images(16), Beta(), settings(), 0, draw=draw)
    assert not torch.equal(drawn[0], drawn[1])


def test_training_lowers_the_loss() -> None:
    images = some_images(4).repeat(16, 1, 1, 1)
    _, history = trained(images=images, objective=Beta(), epochs=30, learning_rate=1e-3)
    assert history.rows[-1]["loss"] < 0.9 * history.rows[0]["loss"]


def test_gradient_clipping_limits_the_step() -> None:
    # Adam ignores the scale of gradients but for its epsilon, which a tiny clip brings out.
    free, _ = trained(clip_norm=None, epochs=1)
    loose, _ = trained(clip_norm=1e9, epochs=1)
    tight, _ = trained(clip_norm=1e-12, epochs=1)
    start = VAE((1, 8, 8), LATENTS, architecture="mlp")
    assert same(free, loose)
    moved = [(a - b).abs().max().item() for a, b in zip(tight.parameters(), start.parameters(), strict=True)]
    assert max(moved) < 1e-5


def test_callbacks() -> None:
    epochs: list[tuple[int, dict[str, float]]] = []
    progress: list[tuple[str, int, int, str]] = []
    model = VAE((1, 8, 8), LATENTS, architecture="mlp")
    history = train(
        model,
        some_images(),
        Beta(),
        settings(),
        0,
        on_epoch=lambda step, values: epochs.append((step, values)),
        progress=lambda *told: progress.append(told),
    )
    assert [step for step, _ in epochs] == [2, 4]
    assert epochs[-1][1]["loss"] == history.rows[-1]["loss"]
    assert epochs[-1][1]["images_per_second"] > 0
    assert "capacity_continuous" not in epochs[-1][1]
    assert progress[0] == ("training", 0, 4, "on cpu in fp32, not compiled")
    assert [(what, done, total) for what, done, total, _ in progress[1:]] == [
        ("training", 2, 4),
        ("training", 4, 4),
    ]
    assert not model.training


def test_summary_has_the_last_epoch_and_no_timings() -> None:
    _, history = trained(objective=Beta())
    summary = history.summary()
    assert summary["epochs"] == 2
    assert summary["steps"] == 4
    assert summary["distortion"] == history.rows[-1]["distortion"]
    assert set(summary["units"]) == {"z0", "z1", "c0"}
    assert (summary["precision"], summary["compiled"]) == ("fp32", False)
    assert "capacity_continuous" not in summary
    assert not any("second" in name for name in summary)


class Poisoned:
    """A β objective whose loss turns NaN at one step."""

    def __init__(self, at: int) -> None:
        self.at = at

    def capacity(self, step: int) -> tuple[float, None]:
        return (math.nan if step == self.at else 0.0), None

    def loss(self, distortion: Tensor, kl: tuple[Tensor, Tensor], capacity: tuple[Tensor, Tensor]) -> Tensor:
        return distortion + kl[0] + kl[1] + capacity[0]


def test_a_loss_that_is_not_finite_stops_training_and_names_the_step() -> None:
    with pytest.raises(NonFiniteError, match="training stopped at step 3: loss is not finite"):
        trained(objective=Poisoned(at=2), clip_norm=None)


def test_a_unit_that_is_not_finite_is_named() -> None:
    model = VAE((1, 8, 8), LATENTS, architecture="mlp")
    with torch.no_grad():
        model.head.linear.bias[1] = math.inf
    with pytest.raises(NonFiniteError, match="at step 1: kl_z1 is not finite") as caught:
        train(model, some_images(), Capacity((0.0, 0.0), Ramp(0, 0), Ramp(0, 0)), settings(), 0)
    assert caught.value.exit_code == 3


def test_a_learning_rate_far_too_high_is_caught() -> None:
    with pytest.raises(NonFiniteError, match="is not finite; a smaller train"):
        trained(objective=Beta(), learning_rate=1e30)


def test_fewer_images_than_one_batch_are_refused() -> None:
    with pytest.raises(
        ParameterError, match=r"train.batch_size: must be ≤ 40, the number of training images, got 41"
    ):
        trained(batch_size=41)


def test_a_device_that_is_not_there_is_refused() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one here")
    with pytest.raises(ParameterError, match=r"device: must be one of auto, .*cpu on this machine, got cuda"):
        trained(device="cuda")


def test_precision_and_compilation_are_as_told() -> None:
    cpu = torch.device("cpu")
    assert choose_precision("bf16") == "bf16"
    assert choose_precision("fp32") == "fp32"
    assert choose_precision("auto") == "fp32"
    assert choose_compile(True, cpu, 1)
    assert not choose_compile(False, torch.device("cuda"), 10**6)


def test_compilation_is_chosen_where_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, first = torch.device("cpu"), COMPILE_FROM["cpu"]
    monkeypatch.setenv("CXX", "true")
    assert choose_compile("auto", cpu, first)
    assert not choose_compile("auto", cpu, first - 1)
    assert not choose_compile("auto", torch.device("mps"), 10**6)
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert not choose_compile("auto", cpu, 10**6)


def test_sets_too_large_for_memory_train_to_the_same_bytes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    resident, _ = trained()
    np.save(tmp_path / "images.npy", some_images().numpy())
    mapped = torch.from_numpy(np.load(tmp_path / "images.npy", mmap_mode="c"))
    monkeypatch.setattr(loop, "RESIDENT_BYTES", 0)
    assert same(resident, trained(images=mapped)[0])


def test_half_precision_trains_close_to_full() -> None:
    _, full = trained(objective=Beta(), epochs=3)
    model, half = trained(objective=Beta(), epochs=3, precision="bf16")
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    assert (full.precision, half.precision) == ("fp32", "bf16")
    assert half.rows[-1]["loss"] != full.rows[-1]["loss"]
    assert half.rows[-1]["loss"] == pytest.approx(full.rows[-1]["loss"], rel=0.02)


@pytest.mark.slow
def test_compiled_training_is_the_same_up_to_rounding() -> None:
    _, eager = trained(epochs=3)
    _, compiled = trained(epochs=3, compile=True)
    assert (eager.compiled, compiled.compiled) == (False, True)
    assert compiled.rows[-1]["loss"] == pytest.approx(eager.rows[-1]["loss"], rel=1e-4)


@pytest.mark.slow
def test_capacity_is_reached() -> None:
    latents = LatentSpec(2, (3,))
    images = some_images(64)
    ramps = {
        "continuous": {"start": 0.0, "end": 3.0, "steps": 300},
        "discrete": {"start": 0.0, "end": None, "steps": 300},
    }
    model = VAE((1, 8, 8), latents, architecture="mlp")
    objective = make_objective(latents, "capacity", gamma=30.0, capacity=ramps)
    last = train(model, images, objective, settings(epochs=120), 0).rows[-20:]
    # |KL − C| pulls as hard from any distance: KL goes to and fro about C.
    assert abs(statistics.fmean(row["kl_continuous"] for row in last) - 3.0) < 0.3
    assert abs(statistics.fmean(row["kl_discrete"] for row in last) - math.log(3)) < 0.1
