import math
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Distribution, Independent, Normal

from vmivae.errors import ParameterError
from vmivae.model import CodeDistribution, LatentSpec, LatentVariableModel
from vmivae.model.protocol import require_likelihood, require_posterior, require_prior
from vmivae.model.reference import LinearGaussian

CODES = torch.linspace(-1, 1, 8).view(4, 2)


class Decoder:
    latents = LatentSpec(2)
    prior = CodeDistribution.prior(latents)

    def __init__(self, likelihood) -> None:
        self.likelihood = likelihood


def normal(mean: Tensor) -> Distribution:
    return Independent(Normal(mean, 1.0), 1)


def test_a_model_that_fits_passes() -> None:
    model = LinearGaussian(torch.eye(5, 2), 1.0)
    assert isinstance(model, LatentVariableModel)
    require_prior(model)
    require_likelihood(model, CODES)
    require_posterior(model.posterior(torch.randn(7, 5)), model.latents, 7)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (SimpleNamespace(), "model.latents: must be a LatentSpec, got NoneType"),
        (
            SimpleNamespace(latents=LatentSpec(2), prior=torch.zeros(2)),
            "model.prior: must be a CodeDistribution, got Tensor",
        ),
        (
            SimpleNamespace(latents=LatentSpec(2), prior=CodeDistribution.prior(LatentSpec(3))),
            r"model.prior: must be one distribution of .*continuous=2.*, got .*continuous=3",
        ),
        (
            SimpleNamespace(
                latents=LatentSpec(2), prior=CodeDistribution(torch.zeros(9, 2), torch.ones(9, 2))
            ),
            r"with batch shape \(9,\)",
        ),
        (
            SimpleNamespace(
                latents=LatentSpec(2), prior=CodeDistribution(torch.zeros(2), torch.tensor([0.0, 1.0]))
            ),
            "model.prior: stddev must be > 0, got 0 ",
        ),
        (
            SimpleNamespace(
                latents=LatentSpec(2), prior=CodeDistribution(torch.tensor([0.0, math.nan]), torch.ones(2))
            ),
            "model.prior: mean must be finite",
        ),
    ],
)
def test_a_prior_that_does_not_fit_is_named(model: SimpleNamespace, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        require_prior(model)


@pytest.mark.parametrize(
    ("likelihood", "message"),
    [
        (lambda codes: codes, "must return a torch Distribution, got Tensor"),
        (lambda codes: Bernoulli(logits=codes), r"got batch \(4, 2\) and event \(\); .*Independent"),
        (lambda codes: normal(codes[:1]), r"must have batch shape \(4,\) .* got batch \(1,\)"),
        (
            lambda codes: normal(codes - codes.mean(0)),
            "of one pair is .* in a batch of 4 and",
        ),
        (None, "must be a function of codes"),
        (
            lambda codes: normal(codes @ torch.ones(3, 3)),
            r"fails for codes of shape \(4, 2\) \(mat1 and mat2",
        ),
        (
            lambda codes: Independent(Bernoulli(logits=codes * math.nan, validate_args=False), 1),
            "fails to draw images",
        ),
        (
            lambda codes: Independent(Normal(codes * math.nan, 1.0, validate_args=False), 1),
            "must be finite, got .*nan",
        ),
        (lambda codes: normal(100 * nn.functional.dropout(codes)), "no batch statistics, no dropout"),
    ],
)
def test_a_likelihood_that_does_not_fit_is_named(likelihood, message: str) -> None:
    torch.manual_seed(0)
    with pytest.raises(ParameterError, match=f"model.likelihood: .*{message}"):
        require_likelihood(Decoder(likelihood), CODES)


@pytest.mark.parametrize(
    ("posterior", "message"),
    [
        ((torch.zeros(7, 2), torch.ones(7, 2)), "must return a CodeDistribution, got tuple"),
        (CodeDistribution(torch.full((7, 2), math.nan), torch.ones(7, 2)), "mean must be finite"),
        (CodeDistribution(torch.zeros(7, 3), torch.ones(7, 3)), "got .*continuous=3"),
        (CodeDistribution(torch.zeros(1, 2), torch.ones(1, 2)), r"\(7,\) for 7 images, got .* \(1,\)"),
        (CodeDistribution(torch.zeros(7, 2), -torch.ones(7, 2)), "stddev must be > 0, got -1 "),
    ],
)
def test_a_posterior_that_does_not_fit_is_named(posterior: CodeDistribution, message: str) -> None:
    with pytest.raises(ParameterError, match=f"model.posterior: .*{message}"):
        require_posterior(posterior, LatentSpec(2), 7)
