"""Proposals fitted to each image."""

import math

import pytest
import torch
from known_models import Exact, Table, Wide, correlated, drawn, exact_evidence
from torch import Tensor, nn
from torch.distributions import MultivariateNormal

from vmivae.model.latents import CodeDistribution, LatentSpec
from vmivae.model.reference import LinearGaussian
from vmivae.mutual_information import EstimateConfig, ImportanceConfig, QNetworkConfig, estimate
from vmivae.mutual_information.adapted import AdaptedProposer, StudentFamily, StudentT, TiltFamily, Weighted
from vmivae.mutual_information.aggregate import AggregatePosterior
from vmivae.mutual_information.bounds import sandwich
from vmivae.mutual_information.evidence import log_evidence
from vmivae.mutual_information.proposals import Defended, QProposer, TiltedProposer

MODEL = correlated(12, 4)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def adapted(network) -> AdaptedProposer:
    return AdaptedProposer(MODEL, network, StudentFamily(MODEL.prior, network))


def fitted(seed: int = 0) -> StudentT:
    generator = seeded(seed)
    scale = torch.randn(2, 1, 1, generator=generator).abs() + 0.3
    logits = [torch.randn(2, 3, generator=generator).log_softmax(-1)]
    return StudentT(torch.randn(2, 1, generator=generator), scale, logits)


def test_a_quadratic_log_likelihood_is_fitted_exactly() -> None:
    """Mean and covariance of a linear-Gaussian model's exact posterior, from a Q that is far too wide."""
    codes, images = drawn(MODEL, 8)
    proposal = adapted(Wide(MODEL)).propose(codes, images, (), seeded())
    fit = proposal.fitted.density
    mean = torch.linalg.solve(MODEL.precision, MODEL.weight.T @ images.T / MODEL.scale**2).T
    torch.testing.assert_close(fit.mean, mean, atol=2e-3, rtol=0)
    covariance = MODEL.precision.inverse().expand(8, -1, -1)
    torch.testing.assert_close(fit.factor @ fit.factor.mT, covariance, atol=2e-3, rtol=0)


def test_the_gap_of_dependent_units_closes_at_few_proposals() -> None:
    codes, images = drawn(MODEL, 200)
    gaps = {}
    for proposer in (QProposer(MODEL.prior, Wide(MODEL)), adapted(Wide(MODEL))):
        found = sandwich(MODEL, proposer, codes, images, 64, generator=seeded(1))
        gaps[proposer.name] = float(found.gap[-1].mean())
    assert 0 < gaps["adapted_q_network"] < gaps["q_network"] / 4


@pytest.mark.parametrize("known", [(), ("z1",), ("z0", "z3")])
def test_weights_average_to_the_evidence(known: tuple[str, ...]) -> None:
    codes, images = drawn(MODEL, 20)
    proposer = adapted(Wide(MODEL))
    found = log_evidence(MODEL, proposer, codes, images, 2000, known, seeded(2))
    fixed = [int(unit[1]) for unit in known]
    rest = LinearGaussian(MODEL.weight[:, [d for d in range(4) if d not in fixed]], MODEL.scale)
    exact = exact_evidence(rest, images - codes[:, fixed] @ MODEL.weight[:, fixed].T)
    torch.testing.assert_close(found.low[-1], exact, atol=0.08, rtol=0)
    torch.testing.assert_close(found.high[-1], exact, atol=0.08, rtol=0)


def test_the_fit_sees_the_image_and_never_the_code_that_made_it() -> None:
    codes, images = drawn(MODEL, 5)
    proposer = adapted(Wide(MODEL))
    first = proposer.propose(codes, images, ("z0",), seeded(3)).fitted.density
    others = codes.clone()
    others[:, 1:] += 10
    second = proposer.propose(others, images, ("z0",), seeded(3)).fitted.density
    assert torch.equal(first.mean, second.mean)
    assert torch.equal(first.factor, second.factor)


def test_density_integrates_to_one() -> None:
    grid = torch.linspace(-60, 60, 60_001)
    q = CodeDistribution(torch.zeros(2, 1), torch.full((2, 1), 0.7), [torch.randn(2, 3, generator=seeded())])
    for density in (fitted(), q):
        total = torch.zeros(2, dtype=torch.double)
        for k in range(3):
            onehot = torch.nn.functional.one_hot(torch.tensor(k), 3).float().expand(len(grid), 2, 3)
            codes = torch.cat([grid[:, None, None].expand(-1, 2, 1), onehot], dim=-1)
            total += torch.trapezoid(density.log_prob(codes).double().exp(), grid.double(), dim=0)
        torch.testing.assert_close(total, torch.ones(2, dtype=torch.double), atol=1e-4, rtol=0)


def test_samples_follow_the_density() -> None:
    """E_S[r/S] = 1, and the classes come with their shares."""
    fit = fitted()
    q = CodeDistribution(fit.mean + 0.3, torch.full((2, 1), 0.5), [torch.zeros(2, 3)])
    r = CodeDistribution(fit.mean[0] + 0.1, 0.8 * fit.factor[0, :, 0], [torch.zeros(3)])
    proposal = Defended(Weighted(r, q), Weighted(r, fit), share=0.1)
    codes = proposal.sample((40_000,), seeded(5))
    weights = proposal.log_ratio(codes)[:, 0].exp()
    error = float(weights.std() / math.sqrt(len(weights)))
    assert float(weights.mean()) == pytest.approx(1, abs=4 * error)
    assert error < 0.01
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

    fit = (
        AdaptedProposer(model, Blind(), StudentFamily(model.prior, Blind()))
        .propose(codes, images, (), seeded(1))
        .fitted.density
    )
    right = (fit.log_probs[0].exp() * codes[:, 1:]).sum(-1)
    assert float(right.median()) > 0.9
    torch.testing.assert_close(fit.mean, torch.zeros(30, 1), atol=0.05, rtol=0)
    torch.testing.assert_close(fit.factor[..., 0], torch.ones(30, 1), atol=0.05, rtol=0)


def test_without_a_real_unit_among_the_unknown_ones_q_proposes() -> None:
    codes, images = drawn(MODEL, 3)
    proposer = adapted(Exact(MODEL))
    found = log_evidence(MODEL, proposer, codes, images, 4, MODEL.latents.units)
    exact = MODEL.likelihood(codes).log_prob(images).double()
    torch.testing.assert_close(found.low[-1], exact)


def test_a_fit_of_too_many_coefficients_is_not_tried() -> None:
    def worthwhile(latents: LatentSpec) -> bool:
        prior = CodeDistribution.prior(latents)
        return AdaptedProposer(MODEL, Exact(MODEL), StudentFamily(prior, Exact(MODEL))).worthwhile

    assert worthwhile(LatentSpec(20, (10,)))
    assert not worthwhile(LatentSpec(32))
    assert not worthwhile(LatentSpec(0, (10,)))


def narrow(count: int = 40) -> AggregatePosterior:
    generator = seeded(7)
    return AggregatePosterior(
        CodeDistribution(torch.randn(count, 4, generator=generator), torch.full((count, 4), 0.3))
    )


def test_a_tilt_fitted_to_the_likelihood_is_tighter_than_one_read_from_a_poor_q() -> None:
    r = narrow()
    base = TiltedProposer(r, Wide(MODEL))
    codes = r.sample((200,), seeded(8))
    images = codes @ MODEL.weight.T + MODEL.scale * torch.randn(200, 12, generator=seeded(9))
    found = {
        proposer.name: sandwich(MODEL, proposer, codes, images, 16, generator=seeded(10))
        for proposer in (base, AdaptedProposer(MODEL, Wide(MODEL), TiltFamily(base)))
    }
    gaps = {name: float(drawn.gap[-1].mean()) for name, drawn in found.items()}
    assert 0 < gaps["adapted_aggregate_posterior"] < gaps["aggregate_posterior"] / 2


@pytest.mark.parametrize("known", [(), ("z1",)])
def test_weights_of_a_fitted_tilt_average_to_the_evidence(known: tuple[str, ...]) -> None:
    r = narrow(5)
    codes = r.sample((10,), seeded(8))
    images = codes @ MODEL.weight.T + MODEL.scale * torch.randn(10, 12, generator=seeded(9))
    proposer = AdaptedProposer(MODEL, Wide(MODEL), TiltFamily(TiltedProposer(r, Wide(MODEL))))
    found = log_evidence(MODEL, proposer, codes, images, 2000, known, seeded(2))
    # Each posterior is normal: so is x̃ given it, and given z_1 too.
    free = [d for d in range(4) if f"z{d}" not in known]
    weight, mean = MODEL.weight[:, free], r.components.mean
    covariance = 0.3**2 * weight @ weight.T + MODEL.scale**2 * torch.eye(12)
    terms = []
    for n in range(5):
        shift = mean[n, free] @ weight.T + (codes[:, 1:2] @ MODEL.weight[:, 1:2].T if known else 0)
        log_share = (
            r.components[n : n + 1].marginal(known).log_prob(codes[:, 1:2]) if known else torch.zeros(10)
        )
        terms.append(log_share + MultivariateNormal(torch.zeros(12), covariance).log_prob(images - shift))
    exact = torch.stack(terms).logsumexp(0) - (
        r.marginal(known).log_prob(codes[:, 1:2]) + math.log(5) if known else math.log(5)
    )
    torch.testing.assert_close(found.low[-1], exact.double(), atol=0.08, rtol=0)
    torch.testing.assert_close(found.high[-1], exact.double(), atol=0.08, rtol=0)


def test_a_poor_q_of_ten_dependent_units_is_mended_within_the_default_budget() -> None:
    model = correlated(16, 10)
    truth = float(model.information())
    importance = ImportanceConfig(images=256, samples=1024)
    result = estimate(model, None, EstimateConfig("prior", QNetworkConfig("gaussian", 40), 4000, importance))
    assert result.proposal == "adapted_q_network"
    assert result.gap < 0.05
    assert result.lower - 3 * result.lower_se < truth < result.upper + 3 * result.upper_se
    assert result.barber_agakov < truth - 1
    assert result.decodes < 1.1 * 256 * 1024
