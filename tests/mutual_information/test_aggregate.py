import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from vmivae.model.latents import CodeDistribution
from vmivae.mutual_information import aggregate
from vmivae.mutual_information.aggregate import AggregatePosterior


def mixture(count: int = 50, real: int = 3, classes: tuple[int, ...] = (4, 2), seed: int = 0, **scale: float):
    generator = torch.Generator().manual_seed(seed)
    stddev = torch.rand(count, real, generator=generator) * 0.5 + 0.05
    return AggregatePosterior(
        CodeDistribution(
            torch.randn(count, real, generator=generator) * 2,
            stddev * scale.get("stddev", 1.0),
            [3 * torch.randn(count, k, generator=generator) for k in classes],
        )
    )


def test_log_density_is_the_mean_density_of_all_components() -> None:
    r = mixture()
    codes = r.sample((200,), torch.Generator().manual_seed(1))
    one_by_one = torch.stack([r.components[n].log_prob(codes) for n in range(len(r))])
    expected = one_by_one.double().logsumexp(0) - math.log(len(r))
    torch.testing.assert_close(r.log_prob(codes).double(), expected, atol=2e-3, rtol=0)
    assert abs(float((r.log_prob(codes).double() - expected).mean())) < 1e-4


def test_log_density_of_real_units_is_torchs_mixture() -> None:
    r = mixture(classes=())
    q = r.components
    reference = MixtureSameFamily(
        Categorical(torch.ones(len(r))), Independent(Normal(q.mean, q.stddev), 1), validate_args=False
    )
    codes = r.sample((64,), torch.Generator().manual_seed(2))
    torch.testing.assert_close(r.log_prob(codes), reference.log_prob(codes), atol=1e-4, rtol=0)


def test_narrow_posteriors_far_from_zero_lose_no_digits() -> None:
    mean = torch.tensor([[300.0], [300.01]])
    r = AggregatePosterior(CodeDistribution(mean, torch.full((2, 1), 1e-3)))
    expected = -math.log(1e-3) - 0.5 * math.log(2 * math.pi) - math.log(2)
    assert r.log_prob(mean)[0] == pytest.approx(expected, abs=1e-2)


def test_narrow_and_widely_spread_posteriors_are_exact() -> None:
    """In single precision the quadratic forms, here up to 10⁸, would be off by nats."""
    mean = torch.linspace(-10, 10, 1001)[:, None]
    r = AggregatePosterior(CodeDistribution(mean, torch.full((1001, 1), 1e-3)))
    codes = mean + 1e-3
    expected = -math.log(1e-3) - 0.5 * math.log(2 * math.pi) - 0.5 - math.log(1001)
    torch.testing.assert_close(r.log_prob(codes), torch.full((1001,), expected), atol=0.01, rtol=0)


def test_classes_of_probability_zero_are_impossible_not_nan() -> None:
    logits = torch.tensor([[0.0, -math.inf], [-math.inf, 0.0]])
    nothing = torch.zeros(2, 0)
    r = AggregatePosterior(CodeDistribution(nothing, nothing, [logits]))
    torch.testing.assert_close(r.log_prob(torch.eye(2)), torch.full((2,), -math.log(2)))


def test_marginal_density_integrates_to_one_and_marginal_classes_are_exact() -> None:
    r = mixture()
    grid = torch.linspace(-9, 9, 4001)[:, None]
    assert torch.trapezoid(r.marginal(["z1"]).log_prob(grid).exp(), dx=18 / 4000) == pytest.approx(
        1, abs=1e-4
    )
    probs = r.components.probs[0].mean(0)
    torch.testing.assert_close(r.marginal(["c0"]).log_prob(torch.eye(4)).exp(), probs)
    # Units that depend on each other through the image: the pair is not the product of the two.
    pair = torch.cat([torch.eye(4), torch.tensor([[1.0, 0.0]] * 4)], dim=1)
    expected = (r.components.probs[0] * r.components.probs[1][:, :1]).mean(0)
    torch.testing.assert_close(r.marginal(["c0", "c1"]).log_prob(pair).exp(), expected)


def test_samples_have_the_moments_of_the_mixture_and_exact_one_hots() -> None:
    r = mixture(count=5)
    codes, component = r.sample_with_component((40_000,), torch.Generator().manual_seed(3))
    assert torch.bincount(component).min() > 7_500
    real, (first, second) = r.latents.split(codes)
    q = r.components
    torch.testing.assert_close(real.mean(0), q.mean.mean(0), atol=0.06, rtol=0)
    second_moment = (q.stddev**2 + q.mean**2).mean(0)
    torch.testing.assert_close((real**2).mean(0), second_moment, atol=0.15, rtol=0)
    torch.testing.assert_close(first.mean(0), q.probs[0].mean(0), atol=0.01, rtol=0)
    for block in (first, second):
        assert set(block.unique().tolist()) == {0.0, 1.0}
        assert (block.sum(-1) == 1).all()


def test_blocks_bound_the_memory_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # In double precision, so that the order of sums, which blocks may change, cannot be seen.
    monkeypatch.setattr(aggregate, "ROUND_OFF", 0.0)
    r = mixture()
    codes = r.sample((103,), torch.Generator().manual_seed(4))
    whole = r.log_prob(codes)
    monkeypatch.setattr(aggregate, "BLOCK_ELEMENTS", 7 * len(r) + 1)
    torch.testing.assert_close(r.log_prob(codes), whole, atol=1e-5, rtol=0)


def test_every_image_is_encoded_also_those_of_the_last_smaller_batch() -> None:
    images = torch.arange(11, dtype=torch.uint8)[:, None]
    r = AggregatePosterior.of(lambda x: CodeDistribution(x, torch.ones_like(x)), images, batch_size=4)
    torch.testing.assert_close(r.components.mean, images.float() / 255)


SIXTY_THOUSAND = """
import torch
from vmivae.model import CodeDistribution
from vmivae.mutual_information import AggregatePosterior

g = torch.Generator().manual_seed(5)
mean, logits = torch.randn(60_000, 10, generator=g), torch.randn(60_000, 10, generator=g)
r = AggregatePosterior(CodeDistribution(mean, torch.full_like(mean, 0.3), [logits]))
assert torch.isfinite(r.log_prob(r.sample((2_000,), g))).all()
status = open("/proc/self/status").read()
print(status.split("VmHWM:")[1].split()[0])
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from Linux's /proc")
def test_sixty_thousand_images_within_four_gigabytes() -> None:
    # In a process of its own: the peak of this one is that of whatever test ran before.
    done = subprocess.run([sys.executable, "-c", SIXTY_THOUSAND], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 4 * 2**20  # KiB
