"""The baseline computes what the library computes, and the scripts run."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import plain  # noqa: E402

from vmivae.evaluation.elbo import elbo_parts  # noqa: E402
from vmivae.model import VAE, LatentSpec  # noqa: E402
from vmivae.training import Capacity, Ramp, TrainConfig, train  # noqa: E402

LATENTS = LatentSpec(10, (10,))


@pytest.mark.parametrize("image_shape", [(1, 32, 32), (3, 64, 64)])
def test_baseline_has_the_same_loss(image_shape: tuple[int, int, int]) -> None:
    model = VAE(image_shape, LATENTS)
    images = torch.rand(4, *image_shape, generator=torch.Generator().manual_seed(0))
    objective = Capacity((30.0, 10.0), Ramp(0.0, 5.0), Ramp(0.0, 2.0))
    baseline = plain.PlainVAE(model)
    with torch.random.fork_rng([]), torch.no_grad():
        torch.manual_seed(0)
        found = plain.loss(baseline, images, 0.67, objective, (1.0, 0.5))
        torch.manual_seed(0)
        normal = torch.randn(4, 10)
        gumbel = -torch.empty(4, 10).exponential_().log()
        posterior = model.posterior(images)
        codes = posterior.reparameterized(torch.cat([normal, gumbel], 1), 0.67)
        kl = posterior.kl_per_unit(model.prior).mean(0)
        distortion = -model.likelihood(codes).log_prob(images).mean()
        wanted = objective.loss(
            distortion, (kl[:10].sum(), kl[10:].sum()), (torch.tensor(1.0), torch.tensor(0.5))
        )
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-3)


def test_baseline_trains_to_the_same_result_where_it_draws_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.randint(0, 256, (64, 1, 32, 32), generator=torch.Generator().manual_seed(1)).byte()
    epochs, batch, temperature, rate = 3, 16, 0.67, 1e-3
    objective = Capacity((30.0, 10.0), Ramp(0.0, 5.0, 12), Ramp(0.0, 2.0, 12))
    ours = VAE((1, 32, 32), LATENTS)
    untrained = VAE((1, 32, 32), LATENTS)
    baseline = plain.PlainVAE(untrained)
    train(ours, images, objective, TrainConfig(epochs, batch, rate, temperature=temperature, device="cpu"), 0)

    orders = torch.Generator().manual_seed(0)
    noises = torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=orders)))
    noise = torch.empty(0)

    class SameBatches:
        def __iter__(self) -> Iterator[tuple[torch.Tensor, None]]:
            nonlocal noise
            for rows in torch.randperm(len(images), generator=orders).split(batch):
                noise = LATENTS.noise((batch,), noises)
                yield images[rows] / 255, None

    with monkeypatch.context() as patch:
        patch.setattr(torch, "randn_like", lambda mean: noise[:, :10])
        patch.setattr(
            torch.nn.functional,
            "gumbel_softmax",
            lambda logits, tau: ((logits + noise[:, 10:]) / tau).softmax(1),
        )
        assert list(plain.train(baseline, SameBatches(), epochs, objective, rate, temperature)) == [64] * 3
    parts = [
        elbo_parts(model, images.numpy(), torch.Generator().manual_seed(0))
        for model in (ours, baseline.copy_to(VAE((1, 32, 32), LATENTS)), untrained)
    ]
    distortions = [float(part.distortion.mean()) for part in parts]
    assert distortions[1] == pytest.approx(distortions[0], rel=1e-4)
    assert distortions[2] != pytest.approx(distortions[0], rel=1e-2)


def run(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / command[0]), *command[1:]],
        env={"PYTHONPATH": str(ROOT / "src"), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_gpu_script_refuses_without_cuda(tmp_path: Path) -> None:
    result = run("gpu.py", folder=tmp_path)
    assert result.returncode == 2
    assert result.stderr.strip() == "error: no CUDA device here (--cpu tries the script out at toy size)"


@pytest.mark.slow
def test_gpu_script_at_toy_size(tmp_path: Path) -> None:
    result = run("gpu.py", "--cpu", "--output", str(tmp_path / "gpu.json"), folder=tmp_path)
    assert result.returncode == 0, result.stderr
    report = json.loads((tmp_path / "gpu.json").read_text("utf-8"))
    assert report["training"][0]["plain"] > 0


@pytest.mark.slow
def test_training_benchmark_at_toy_size(tmp_path: Path) -> None:
    options = ["--sizes", "32-grey", "--batches", "64", "--images", "128", "--repeats", "1"]
    result = run("training.py", *options, "--no-mutual-information", "--output", ".", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    report = json.loads((tmp_path / "training.json").read_text("utf-8"))
    (row,) = report["training"]
    assert row["vmivae / plain"] == pytest.approx(row["vmivae"] / row["plain"])
    assert "| 32-grey | 64 |" in (tmp_path / "training.md").read_text("utf-8")
