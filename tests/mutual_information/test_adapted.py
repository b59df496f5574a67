"""Proposals fitted to each image."""

import math

import pytest
import torch
from known_models import Exact, Table, Wide, correlated
from torch import Tensor, nn
from torch.distributions import MultivariateNormal

from vmivae.model.latents import CodeDistribution, LatentSpec
from vmivae.model.reference import LinearGaussian
from vmivae.mutual_information import EstimateConfig, ImportanceConfig, QNetworkConfig, estimate
from vmivae.mutual_information.adapted import AdaptedProposer, DefendedProposal, StudentT
from vmivae.mutual_information.bounds import sandwich
from vmivae.mutual_information.evidence import log_evidence
from vmivae.mutual_information.proposals import QProposer

MODEL = correlated(12, 4)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def drawn(model: LinearGaussian, count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = seeded(seed)
    codes = model.prior.sample((count,), generator)
    noise = torch.randn(count, len(model.weight), generator=generator)
    return codes, codes @ model.weight.T + model.scale * noise


def exact_evidence(model: LinearGaussian, images: Tensor) -> Tensor:
    covariance = model.weight @ model.weight.T + model.scale**2 * torch.eye(len(model.weight))
    return MultivariateNormal(torch.zeros(len(model.weight)), covariance).log_prob(images).double()


def fitted(seed: int = 0) -> StudentT:
    generator = seeded(seed)
    scale = torch.randn(2, 1, 1, generator=generator).abs() + 0.3
    logits = [torch.randn(2, 3, generator=generator).log_softmax(-1)]
    return StudentT(torch.randn(2, 1, generator=generator), scale, logits)


def test_a_quadratic_log_likelihood_is_fitted_exactly() -> None:
    """Mean and covariance of a linear-Gaussian model's exact posterior, from a Q that is far too wide."""
    codes, images = drawn(MODEL, 8)
    proposal = AdaptedProposer(MODEL, MODEL.prior, Wide(MODEL)).propose(codes, images, (), seeded())
    fit = proposal.density.fit
    mean = torch.linalg.solve(MODEL.precision, MODEL.weight.T @ images.T / MODEL.scale**2).T
    torch.testing.assert_close(fit.mean, mean, atol=2e-3, rtol=0)
    covariance = MODEL.precision.inverse().expand(8, -1, -1)
    torch.testing.assert_close(fit.factor @ fit.factor.mT, covariance, atol=2e-3, rtol=0)


def test_the_gap_of_dependent_units_closes_at_few_proposals() -> None:
    codes, images = drawn(MODEL, 200)
    gaps = {}
    for proposer in (QProposer(MODEL.prior, Wide(MODEL)), AdaptedProposer(MODEL, MODEL.prior, Wide(MODEL))):
        found = sandwich(MODEL, proposer, codes, images, 64, generator=seeded(1))
        gaps[proposer.name] = float(found.gap[-1].mean())
    assert 0 < gaps["adapted"] < gaps["q_network"] / 4


@pytest.mark.parametrize("known", [(), ("z1",), ("z0", "z3")])
def test_weights_average_to_the_evidence(known: tuple[str, ...]) -> None:
    codes, images = drawn(MODEL, 20)
    proposer = AdaptedProposer(MODEL, MODEL.prior, Wide(MODEL))
    found = log_evidence(MODEL, proposer, codes, images, 2000, known, seeded(2))
    fixed = [int(unit[1]) for unit in known]
    rest = LinearGaussian(MODEL.weight[:, [d for d in range(4) if d not in fixed]], MODEL.scale)
    exact = exact_evidence(rest, images - codes[:, fixed] @ MODEL.weight[:, fixed].T)
    torch.testing.assert_close(found.low[-1], exact, atol=0.08, rtol=0)
    torch.testing.assert_close(found.high[-1], exact, atol=0.08, rtol=0)


def test_the_fit_sees_the_image_and_never_the_code_that_made_it() -> None:
    codes, images = drawn(MODEL, 5)
    proposer = AdaptedProposer(MODEL, MODEL.prior, Wide(MODEL))
    first = proposer.propose(codes, images, ("z0",), seeded(3)).density.fit
    others = codes.clone()
    others[:, 1:] += 10
    second = proposer.propose(others, images, ("z0",), seeded(3)).density.fit
    assert torch.equal(first.mean, second.mean)
    assert torch.equal(first.factor, second.factor)


def test_density_integrates_to_one() -> None:
    grid = torch.linspace(-60, 60, 60_001)
    q = CodeDistribution(torch.zeros(2, 1), torch.full((2, 1), 0.7), [torch.randn(2, 3, generator=seeded())])
    for density in (fitted(), DefendedProposal(q, fitted())):
        total = torch.zeros(2, dtype=torch.double)
        for k in range(3):
            onehot = torch.nn.functional.one_hot(torch.tensor(k), 3).float().expand(len(grid), 2, 3)
            codes = torch.cat([grid[:, None, None].expand(-1, 2, 1), onehot], dim=-1)
            total += torch.trapezoid(density.log_prob(codes).double().exp(), grid.double(), dim=0)
        torch.testing.assert_close(total, torch.ones(2, dtype=torch.double), atol=1e-4, rtol=0)


def test_samples_follow_the_density() -> None:
    """E_S[p/S] = 1 for a density p, and the classes come with their shares."""
    fit = fitted()
    q = CodeDistribution(fit.mean + 0.3, torch.full((2, 1), 0.5), [torch.zeros(2, 3)])
    density = DefendedProposal(q, fit)
    codes = density.sample((40_000,), seeded(5))
    target = CodeDistribution(fit.mean + 0.1, 0.8 * fit.factor[..., 0], [torch.zeros(2, 3)])
    weights = (target.log_prob(codes).double() - density.log_prob(codes)).exp()
    error = weights.std(0) / math.sqrt(len(weights))
    assert ((weights.mean(0) - 1).abs() < 4 * error).all()
    assert float(error.max()) < 0.01
    shares = 0.9 * fit.log_probs[0].exp() + 0.1 / 3
    torch.testing.assert_close(codes[..., 1:].mean(0), shares, atol=0.015, rtol=0)


def test_a_class_that_decides_is_found_and_real_units_that_say_nothing_stay_at_the_prior() -> None:
    model = Table(4 * torch.eye(3), 1.0, continuous=1)
    codes = model.prior.sample((30,), seeded())
    images = model.likelihood(codes).sample()

    class Blind(nn.Module):
        latents = LatentSpec(1, (3,))

        def forward(self, images: Tensor) -> CodeDistribution:
            size = len(images)
            return CodeDistribution(torch.full((size, 1), 0.5), torch.ones(size, 1), [torch.zeros(size, 3)])

        def proposal(self, images: Tensor, codes: Tensor, known=()) -> CodeDistribution:
            return self(images)

    fit = AdaptedProposer(model, model.prior, Blind()).propose(codes, images, (), seeded(1)).density.fit
    right = (fit.log_probs[0].exp() * codes[:, 1:]).sum(-1)
    assert float(right.median()) > 0.9
    torch.testing.assert_close(fit.mean, torch.zeros(30, 1), atol=0.05, rtol=0)
    torch.testing.assert_close(fit.factor[..., 0], torch.ones(30, 1), atol=0.05, rtol=0)


def test_without_a_real_unit_among_the_unknown_ones_q_proposes() -> None:
    codes, images = drawn(MODEL, 3)
    proposer = AdaptedProposer(MODEL, MODEL.prior, Exact(MODEL))
    found = log_evidence(MODEL, proposer, codes, images, 4, MODEL.latents.units)
    exact = MODEL.likelihood(codes).log_prob(images).double()
    torch.testing.assert_close(found.low[-1], exact)


def test_a_fit_of_too_many_coefficients_is_not_tried() -> None:
    assert AdaptedProposer.suits(LatentSpec(20, (10,)))
    assert not AdaptedProposer.suits(LatentSpec(32))
    assert not AdaptedProposer.suits(LatentSpec(0, (10,)))


def test_a_poor_q_of_ten_dependent_units_is_mended_within_the_default_budget() -> None:
    model = correlated(16, 10)
    truth = float(model.information())
    importance = ImportanceConfig(images=256, samples=1024)
    result = estimate(model, None, EstimateConfig("prior", QNetworkConfig("gaussian", 40), 4000, importance))
    assert result.proposal == "adapted"
    assert result.gap < 0.05
    assert result.lower - 3 * result.lower_se < truth < result.upper + 3 * result.upper_se
    assert result.barber_agakov < truth - 1
    assert result.decodes < 1.1 * 256 * 1024
