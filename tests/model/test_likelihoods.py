"""The continuous Bernoulli against integrals and torch's own where that is sound; pixels from given noise."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.distributions import Bernoulli, Distribution, Independent, Normal

from vmivae.model.likelihoods import SERIES_BELOW, ContinuousBernoulli, pixels_from_uniform

LOGITS = [-200.0, -30.0, -3.0, -SERIES_BELOW, -0.01, 0.0, 1e-6, 0.29, 0.31, 2.0, 20.0, 200.0]


@pytest.mark.parametrize("logit", LOGITS)
def test_density_integrates_to_one_and_has_its_mean(logit: float) -> None:
    pixel = ContinuousBernoulli(torch.tensor(logit, dtype=torch.float64))
    grid = torch.linspace(0, 1, 200_001, dtype=torch.float64)
    density = pixel.log_prob(grid).exp()
    assert torch.trapezoid(density, grid).item() == pytest.approx(1, abs=1e-6)
    assert torch.trapezoid(density * grid, grid).item() == pytest.approx(pixel.mean.item(), abs=1e-6)


def test_single_precision_is_as_good_as_double() -> None:
    logits = torch.linspace(-40, 40, 4001, dtype=torch.float64)
    values = torch.linspace(0, 1, 4001, dtype=torch.float64)
    double, single = ContinuousBernoulli(logits), ContinuousBernoulli(logits.float())
    torch.testing.assert_close(
        single.log_prob(values.float()).double(), double.log_prob(values), atol=1e-5, rtol=1e-6
    )
    torch.testing.assert_close(single.mean.double(), double.mean, atol=1e-6, rtol=0)


def test_agrees_with_torch_where_torch_does_not_clamp() -> None:
    logits = torch.tensor([-10.0, -2.0, -0.1, 0.0, 0.5, 8.0], dtype=torch.float64)
    value = torch.tensor(0.3, dtype=torch.float64)
    theirs = torch.distributions.ContinuousBernoulli(logits=logits)
    ours = ContinuousBernoulli(logits)
    torch.testing.assert_close(ours.log_prob(value), theirs.log_prob(value.expand(6)), atol=1e-7, rtol=0)
    torch.testing.assert_close(ours.mean, theirs.mean, atol=1e-7, rtol=0)


def test_gradient_is_the_value_less_the_mean() -> None:
    # An exponential family: d log p(x) / dλ = x − E[x], also at 0, across the branches and far out.
    logits = torch.tensor(LOGITS, requires_grad=True)
    pixels = ContinuousBernoulli(logits)
    pixels.log_prob(torch.tensor(0.25)).sum().backward()
    torch.testing.assert_close(logits.grad, 0.25 - pixels.mean.detach(), atol=2e-6, rtol=0)


@pytest.mark.parametrize("logit", [-50.0, -1.0, 0.0, 0.2, 5.0])
def test_samples(logit: float) -> None:
    pixel = ContinuousBernoulli(torch.tensor(logit))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        sample = pixel.sample((100_000,))
    assert sample.shape == (100_000,)
    assert sample.min() >= 0
    assert sample.max() <= 1
    assert sample.mean().item() == pytest.approx(pixel.mean.item(), abs=4e-3)


LIKELIHOODS = {
    "bernoulli": lambda logits: Bernoulli(logits=logits),
    "continuous_bernoulli": ContinuousBernoulli,
    "gaussian": lambda logits: Normal(logits.sigmoid(), 0.2),
}


@pytest.mark.parametrize("likelihood", LIKELIHOODS.values(), ids=LIKELIHOODS)
def test_pixels_from_uniform_noise(likelihood: Callable[[Tensor], Distribution]) -> None:
    """They are distributed as the likelihood says, and pass on the derivative of its mean."""
    logits = torch.tensor([-2.0, 0.1, 1.5]).expand(20_000, 3).clone().requires_grad_()
    pixel = likelihood(logits)
    uniform = torch.rand(20_000, 3, generator=torch.Generator().manual_seed(0))
    uniform[0] = 0.0
    pixels = pixels_from_uniform(Independent(pixel, 1), uniform)
    assert pixels.isfinite().all()
    torch.manual_seed(0)
    drawn = pixel.sample()
    assert pixels.mean(0).tolist() == pytest.approx(drawn.mean(0).tolist(), abs=0.02)
    assert pixels.std(0).tolist() == pytest.approx(drawn.std(0).tolist(), abs=0.02)
    (found,) = torch.autograd.grad(pixels.sum(), logits, retain_graph=True)
    (expected,) = torch.autograd.grad(pixel.mean.sum(), logits)
    assert found.mean(0).tolist() == pytest.approx(expected.mean(0).tolist(), rel=0.05)
