import math

import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.mixture import GaussianMixture as FittedMixture

from vmivae.model import LatentVariableModel
from vmivae.model.reference import GaussianMixture, LinearGaussian


def iris_mixture() -> tuple[GaussianMixture, FittedMixture]:
    fitted = FittedMixture(3, random_state=0).fit(load_iris().data)
    arrays = (fitted.weights_, fitted.means_, fitted.covariances_)
    return GaussianMixture(*(torch.tensor(array) for array in arrays)), fitted


def test_information_of_a_map_computed_by_hand() -> None:
    # WᵀW = [[1, 1], [1, 2]]; with σ² = ½, I + WᵀW/σ² = [[3, 2], [2, 5]], determinant 11.
    model = LinearGaussian(torch.tensor([[1.0, 1.0], [0.0, 1.0]]), math.sqrt(0.5))
    assert float(model.information()) == pytest.approx(0.5 * math.log(11))
    expected = [-0.5 * math.log(5 / 11), -0.5 * math.log(3 / 11)]
    assert model.unit_information().tolist() == pytest.approx(expected)


def test_posterior_of_an_orthogonal_map_is_exact() -> None:
    """`log p(z) + log p(x|z) − log p(z|x) = log p(x)`, which does not depend on z."""
    model = LinearGaussian(torch.diag(torch.tensor([2.0, 0.5])), 0.7)
    image = torch.tensor([[1.0, -0.3]])
    codes = torch.tensor([[0.0, 0.0], [1.0, -2.0], [0.3, 0.4]])
    evidence = (
        model.prior.log_prob(codes)
        + model.likelihood(codes).log_prob(image)
        - model.posterior(image).log_prob(codes)
    )
    torch.testing.assert_close(evidence, evidence[:1].expand(3))


def test_responsibilities_and_densities_are_scikit_learns() -> None:
    model, fitted = iris_mixture()
    data = torch.tensor(load_iris().data)
    torch.testing.assert_close(
        model.posterior(data).probs[0], torch.tensor(fitted.predict_proba(load_iris().data))
    )
    each = torch.stack([model.likelihood(code.expand(len(data), 3)).log_prob(data) for code in torch.eye(3)])
    total = (each + model.weights.log()[:, None]).logsumexp(0)
    torch.testing.assert_close(total, torch.tensor(fitted.score_samples(load_iris().data)))


def test_pointwise_information_lies_between_nothing_and_the_entropy_of_the_weights() -> None:
    model, _ = iris_mixture()
    information = model.pointwise_information(torch.tensor(load_iris().data)).mean()
    assert 0 < information < -(model.weights * model.weights.log()).sum()


@pytest.mark.parametrize("model", [LinearGaussian(torch.eye(3, 2), 1.0), iris_mixture()[0]])
def test_reference_models_offer_what_is_measured(model: LatentVariableModel) -> None:
    assert isinstance(model, LatentVariableModel)
    codes = model.prior.sample((7,), torch.Generator().manual_seed(0))
    assert codes.shape == (7, model.latents.size)
    assert model.likelihood(codes).log_prob(model.likelihood(codes).sample()).shape == (7,)
