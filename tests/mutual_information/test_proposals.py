"""Proposals that know the spikes of an aggregate posterior."""

import math

import pytest
import torch
from known_models import Apart, Table, correlated, orthogonal
from torch import Tensor, nn

from vmivae.model.latents import CodeDistribution, LatentSpec
from vmivae.model.reference import LinearGaussian
from vmivae.mutual_information.aggregate import AggregatePosterior
from vmivae.mutual_information.bounds import mean, sandwich
from vmivae.mutual_information.evidence import log_evidence
from vmivae.mutual_information.proposals import QProposer, TiltedProposer, best_proposer


def spikes(count: int = 12, real: int = 1, classes: tuple[int, ...] = (), width: float = 0.1, seed: int = 0):
    """q̄ with posteriors much narrower than their spread."""
    generator = torch.Generator().manual_seed(seed)
    return AggregatePosterior(
        CodeDistribution(
            torch.randn(count, real, generator=generator),
            width * (0.5 + torch.rand(count, real, generator=generator)),
            [2 * torch.randn(count, k, generator=generator) for k in classes],
        )
    )


class Constant(nn.Module):
    """A Q that says the same of every image: somewhat off, and surer than q̄."""

    def __init__(self, latents: LatentSpec, mean: float = 0.4, stddev: float = 0.3) -> None:
        super().__init__()
        self.latents, self.mean, self.stddev = latents, mean, stddev

    def forward(self, images: Tensor) -> CodeDistribution:
        count, real = len(images), self.latents.continuous
        logits = [torch.linspace(0, 1, k).expand(count, k) for k in self.latents.discrete]
        return CodeDistribution(
            torch.full((count, real), self.mean), torch.full((count, real), self.stddev), logits
        )

    def proposal(self, images: Tensor, codes: Tensor, known=()) -> CodeDistribution:
        q = self(images)
        return q.marginal([unit for unit in self.latents.units if unit not in known])


class Reading(Constant):
    """A Q that reads a linear-Gaussian model's images with a tilt that is too wide by half."""

    def __init__(self, model: LinearGaussian) -> None:
        super().__init__(model.latents)
        self.model = model

    def forward(self, images: Tensor) -> CodeDistribution:
        q = self.model.posterior(images)
        return CodeDistribution(q.mean + 0.3 * q.stddev, 1.5 * q.stddev)


def density(r: AggregatePosterior, proposer: TiltedProposer, codes: Tensor) -> Tensor:
    """`S = q̄ / ratio` of codes `(k, size)` for one image."""
    ratio = proposer.propose(codes[:1], torch.zeros(1, 2)).log_ratio(codes[:, None])[:, 0]
    return (r.log_prob(codes).double() - ratio).exp()


@pytest.mark.parametrize("sharpness", [0.5, 1.0])
@pytest.mark.parametrize("stddev", [0.3, 0.01, 50.0])
def test_density_of_real_units_integrates_to_one(sharpness: float, stddev: float) -> None:
    """Also for a Q surer than the posteriors, and for one that knows less than nothing."""
    r = spikes(real=1)
    proposer = TiltedProposer(r, Constant(r.latents, stddev=stddev), sharpness)
    grid = torch.linspace(-4, 4, 40_001)[:, None]
    assert float(torch.trapezoid(density(r, proposer, grid), dx=8 / 40_000)) == pytest.approx(1, abs=1e-3)


def test_density_of_mixed_units_integrates_to_one() -> None:
    r = spikes(real=2, classes=(3,), width=0.3)
    proposer = TiltedProposer(r, Constant(r.latents), 0.75)
    axis = torch.linspace(-5, 5, 401)
    real = torch.cartesian_prod(axis, axis)
    total = sum(
        float(density(r, proposer, torch.cat([real, onehot.expand(len(real), 3)], -1)).sum())
        for onehot in torch.eye(3)
    )
    assert total * (10 / 400) ** 2 == pytest.approx(1, abs=1e-3)


def test_density_of_categorical_units_sums_to_one_and_is_bayes_rule() -> None:
    r = spikes(real=0, classes=(3, 2))
    proposer = TiltedProposer(r, Constant(r.latents), 1.0)
    codes = torch.cat([torch.eye(3).repeat_interleave(2, 0), torch.eye(2).repeat(3, 1)], -1)
    found = density(r, proposer, codes)
    tilt = Constant(r.latents)(torch.zeros(1, 2)).log_prob(codes)
    smooth = sum(
        torch.log(codes[:, part] @ probs.mean(0))
        for part, probs in zip((slice(0, 3), slice(3, 5)), r.components.probs, strict=True)
    )
    weights = (r.log_prob(codes) + tilt - smooth).exp()
    torch.testing.assert_close(found.float(), weights / weights.sum(), atol=1e-5, rtol=0)


def test_samples_have_the_moments_of_the_density() -> None:
    r = spikes(real=1, classes=(3,))
    proposer = TiltedProposer(r, Constant(r.latents), 1.0)
    drawn = proposer.propose(torch.zeros(1, 4), torch.zeros(1, 2)).sample(
        (40_000,), torch.Generator().manual_seed(1)
    )[:, 0]
    grid = torch.linspace(-4, 4, 8001)
    for k, onehot in enumerate(torch.eye(3)):
        mass = density(r, proposer, torch.cat([grid[:, None], onehot.expand(8001, 3)], -1)) * 8 / 8000
        chosen = drawn[:, 1 + k] > 0
        assert float(chosen.float().mean()) == pytest.approx(float(mass.sum()), abs=0.012)
        centre = float((mass * grid).sum() / mass.sum())
        spread = float((mass * (grid - centre) ** 2).sum() / mass.sum()) ** 0.5
        assert float(drawn[chosen, 0].mean()) == pytest.approx(centre, abs=0.03)
        assert float(drawn[chosen, 0].std()) == pytest.approx(spread, rel=0.05)


def exact_information(
    model: LinearGaussian, r: AggregatePosterior, pairs: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Codes of q̄, images, and their exact pointwise information: x is a mixture of N normals."""
    generator = torch.Generator().manual_seed(3)
    codes = r.sample((pairs,), generator)
    weight, scale = model.weight.double(), model.scale
    noise = torch.randn(pairs, len(weight), generator=generator)
    images = codes @ model.weight.T + scale * noise
    q = r.components
    covariance = torch.einsum("fd,nd,gd->nfg", weight, q.stddev.double() ** 2, weight)
    covariance += scale**2 * torch.eye(len(weight))
    normals = torch.distributions.MultivariateNormal(q.mean.double() @ weight.T, covariance)
    log_p = normals.log_prob(images.double()[:, None]).logsumexp(-1) - math.log(len(r))
    return codes, images, model.likelihood(codes).log_prob(images).double() - log_p


@pytest.mark.parametrize("width", [0.05, 0.3])
def test_the_sandwich_brackets_the_information_of_narrow_posteriors(width: float) -> None:
    """Image by image the truth is a mixture of normals; Q alone leaves a wide gap where S leaves none."""
    model = correlated(8, 4)
    r = spikes(count=60, real=4, width=width)
    codes, images, truth = exact_information(model, r, 300)
    gaps = {}
    for proposer in (QProposer(r, Reading(model)), TiltedProposer(r, Reading(model), 1.0)):
        drawn = sandwich(model, proposer, codes, images, 64, generator=torch.Generator().manual_seed(4))
        for row in range(len(drawn.proposals)):
            below, above = mean(drawn.lower[row] - truth), mean(drawn.upper[row] - truth)
            assert below.value < 3.5 * below.se + 1e-3
            assert above.value > -3.5 * above.se - 1e-3
        for step in (*(drawn.lower[1:] - drawn.lower[:-1]), *(drawn.upper[:-1] - drawn.upper[1:])):
            assert mean(step).value > -3.5 * mean(step).se - 1e-3
        gaps[type(proposer)] = float(drawn.gap[-1].mean())
    assert gaps[TiltedProposer] < 0.1
    if width < 0.1:
        assert gaps[QProposer] > 3 * gaps[TiltedProposer]


def test_a_lone_posterior_is_the_case_of_a_narrow_encoder() -> None:
    model = orthogonal(6, [8.0, 4.0])
    r = AggregatePosterior(CodeDistribution(torch.full((5, 2), 1.5), torch.full((5, 2), 0.1)))
    codes, images, truth = exact_information(model, r, 500)
    drawn = sandwich(
        model,
        TiltedProposer(r, Reading(model), 0.75),
        codes,
        images,
        64,
        generator=torch.Generator().manual_seed(4),
    )
    assert mean(drawn.lower[-1] - truth).value == pytest.approx(0, abs=0.05)
    assert mean(drawn.upper[-1] - truth).value == pytest.approx(0, abs=0.05)


def test_known_units_leave_a_conditional_mixture() -> None:
    """`log p_r(x̃|z_A)` of dependent units: the components that fit z_A count. Truth: mixture of normals."""
    model, r = correlated(6, 2), spikes(count=10, real=2)
    codes, images, _ = exact_information(model, r, 20)
    found = log_evidence(
        model, TiltedProposer(r, Reading(model), 1.0), codes, images, 4000, ("z0",), torch.Generator()
    )
    q, weight = r.components, model.weight
    shares = r.marginal(("z0",)).log_responsibilities(codes[:, :1])
    centre = codes[:, None, :1] @ weight[:, :1].T + q.mean[:, 1:] @ weight[:, 1:].T
    covariance = q.stddev[:, 1:, None] ** 2 * (weight[:, 1:] @ weight[:, 1:].T) + torch.eye(6)
    normals = torch.distributions.MultivariateNormal(centre, covariance)
    exact = (shares + normals.log_prob(images[:, None])).logsumexp(-1).double()
    torch.testing.assert_close(found.low[-1], exact, atol=0.03, rtol=0)
    torch.testing.assert_close(found.high[-1], exact, atol=0.03, rtol=0)


def test_a_categorical_code_is_exact_by_enumeration() -> None:
    model = Table(torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), scale=0.8)
    r = spikes(real=0, classes=(3,))
    generator = torch.Generator().manual_seed(0)
    codes = r.sample((50,), generator)
    images = codes @ model.rows + 0.8 * torch.randn(50, 2, generator=generator)
    shares = r.components.probs[0].mean(0).log()
    exact = torch.stack(
        [shares[k] + model.likelihood(torch.eye(3)[[k]]).log_prob(images) for k in range(3)]
    ).logsumexp(0)
    found = log_evidence(
        model, TiltedProposer(r, Constant(r.latents), 1.0), codes, images, 20_000, generator=generator
    )
    torch.testing.assert_close(found.low[-1].float(), exact, atol=0.03, rtol=0)
    torch.testing.assert_close(found.high[-1].float(), exact, atol=0.03, rtol=0)


def test_spikes_are_proposed_from_themselves_and_a_smooth_source_from_q() -> None:
    model = correlated(8, 4)
    r = spikes(count=60, real=4, width=0.05)
    codes, images, _ = exact_information(model, r, 200)
    assert isinstance(best_proposer(r, Reading(model), codes, images), TiltedProposer)
    assert isinstance(best_proposer(model.prior, Reading(model), codes, images), QProposer)


def test_q_and_the_tilted_mixture_bracket_one_evidence() -> None:
    """Both weigh by the density of q̄: by the prior's, Q's bracket would lie nats away."""
    model = orthogonal(6, [2.0, 1.0])
    r = spikes(count=20, real=2, width=0.3)
    generator = torch.Generator().manual_seed(0)
    codes = r.sample((400,), generator)
    images = codes @ model.weight.T + torch.randn(400, 6, generator=generator)
    by_q, tilted = (
        log_evidence(model, proposer, codes, images, 256, generator=generator)
        for proposer in (QProposer(r, Reading(model)), TiltedProposer(r, Reading(model), 1.0))
    )
    for above, below in ((by_q.high, tilted.low), (tilted.high, by_q.low)):
        gap = mean(above[-1] - below[-1])
        assert -3.5 * gap.se < gap.value < 0.2


def test_mixed_codes_of_many_components_keep_their_bounds_in_order() -> None:
    model = Apart(correlated(8, 2), classes=3)
    r = spikes(count=40, real=2, classes=(3,))
    generator = torch.Generator().manual_seed(0)
    codes = r.sample((200,), generator)
    images = model.likelihood(codes).sample()
    drawn = sandwich(
        model, TiltedProposer(r, Constant(model.latents, 0.0, 0.9), 1.0), codes, images, 256, None, generator
    )
    for gap in drawn.gap:
        assert mean(gap).value > -3 * mean(gap).se
    assert drawn.gap[-1].mean() < 0.5 * drawn.gap[0].mean()
