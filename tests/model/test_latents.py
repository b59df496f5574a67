"""Codes: samples, log-densities, divergences and entropies against torch.distributions and integrals."""

import math

import pytest
import torch
from torch.distributions import Categorical, Independent, Normal, kl_divergence

from vmivae.model import CodeDistribution, LatentSpec

SPECS = [LatentSpec(3, (10, 2)), LatentSpec(0, (4,)), LatentSpec(2, ())]


def some(latents: LatentSpec, batch: int = 5, seed: int = 0) -> CodeDistribution:
    generator = torch.Generator().manual_seed(seed)
    return CodeDistribution(
        torch.randn(batch, latents.continuous, generator=generator),
        torch.rand(batch, latents.continuous, generator=generator) + 0.2,
        [2 * torch.randn(batch, classes, generator=generator) for classes in latents.discrete],
    )


def parts(codes: CodeDistribution) -> list[Normal | Categorical]:
    """One torch distribution per unit."""
    real = [Normal(codes.mean[:, i], codes.stddev[:, i]) for i in range(codes.mean.shape[-1])]
    return [*real, *(Categorical(logits=block) for block in codes.log_probs)]


@pytest.mark.parametrize("latents", SPECS)
def test_shapes(latents: LatentSpec) -> None:
    codes = some(latents)
    units = len(latents.units)
    assert codes.sample((7,)).shape == (7, 5, latents.size)
    assert codes.rsample(0.5, (7,)).shape == (7, 5, latents.size)
    assert codes.log_prob(codes.sample((7,))).shape == (7, 5)
    assert codes.log_prob_per_unit(codes.sample()).shape == (5, units)
    assert codes.entropy_per_unit().shape == codes.kl_per_unit(some(latents, seed=1)).shape == (5, units)
    assert codes.latents == latents
    assert CodeDistribution.prior(latents).sample((3,)).shape == (3, latents.size)


@pytest.mark.parametrize("latents", SPECS)
def test_log_prob_entropy_and_kl_agree_with_torch(latents: LatentSpec) -> None:
    p, q = some(latents), some(latents, seed=1)
    sample = p.sample()
    real, blocks = latents.split(sample)
    values = [*real.unbind(-1), *(block.argmax(-1) for block in blocks)]
    pairs = list(zip(parts(p), parts(q), strict=True))
    expected = {
        "log_prob": torch.stack([a.log_prob(v) for (a, _), v in zip(pairs, values, strict=True)], -1),
        "entropy": torch.stack([a.entropy() for a, _ in pairs], -1),
        "kl": torch.stack([kl_divergence(a, b) for a, b in pairs], -1),
    }
    torch.testing.assert_close(p.log_prob_per_unit(sample), expected["log_prob"])
    torch.testing.assert_close(p.entropy_per_unit(), expected["entropy"])
    torch.testing.assert_close(p.kl_per_unit(q), expected["kl"], atol=1e-5, rtol=1e-5)
    # Sums over units, not means.
    torch.testing.assert_close(p.log_prob(sample), expected["log_prob"].sum(-1))
    torch.testing.assert_close(p.entropy(), expected["entropy"].sum(-1))
    torch.testing.assert_close(p.kl(q), expected["kl"].sum(-1), atol=1e-5, rtol=1e-5)


def test_normal_kl_and_entropy_by_numerical_integration() -> None:
    q = CodeDistribution(torch.tensor([0.7]).double(), torch.tensor([0.4]).double())
    p = CodeDistribution(torch.tensor([-0.3]).double(), torch.tensor([1.5]).double())
    grid = torch.linspace(-8, 8, 200_001, dtype=torch.float64)
    log_q, log_p = q.log_prob(grid[:, None]), p.log_prob(grid[:, None])
    assert torch.trapezoid(log_q.exp(), grid).item() == pytest.approx(1, abs=1e-9)
    assert torch.trapezoid(log_q.exp() * (log_q - log_p), grid).item() == pytest.approx(
        q.kl(p).item(), abs=1e-8
    )
    assert -torch.trapezoid(log_q.exp() * log_q, grid).item() == pytest.approx(q.entropy().item(), abs=1e-8)


def test_values_known_by_hand() -> None:
    q = CodeDistribution(
        torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 2.0]]), [torch.tensor([[0.0, 100.0]])]
    )
    kl = q.kl_per_unit(CodeDistribution.prior(q.latents))
    # ½μ²; ½(σ² − 1) − log σ; log 2 for a certain class against an even prior.
    torch.testing.assert_close(kl, torch.tensor([[0.5, 1.5 - math.log(2), math.log(2)]]))


def test_code_that_ignores_the_prior_costs_log_k() -> None:
    latents = LatentSpec(0, (10, 3))
    certain = CodeDistribution(
        torch.zeros(1, 0), torch.ones(1, 0), [torch.eye(10)[:1] * 1e4, torch.eye(3)[:1] * 1e4]
    )
    assert certain.kl(CodeDistribution.prior(latents)).item() == pytest.approx(latents.max_discrete_entropy)


def test_exact_samples_are_one_hot_with_the_right_frequencies() -> None:
    logits = torch.tensor([1.0, 0.0, -2.0])
    codes = CodeDistribution(torch.zeros(0), torch.ones(0), [logits])
    sample = codes.sample((200_000,), generator=torch.Generator().manual_seed(0))
    assert set(sample.unique().tolist()) == {0.0, 1.0}
    assert (sample.sum(-1) == 1).all()
    torch.testing.assert_close(sample.mean(0), logits.softmax(0), atol=5e-3, rtol=0)


def test_real_samples_have_the_mean_and_spread_asked_for() -> None:
    codes = CodeDistribution(torch.tensor([1.0, -2.0]), torch.tensor([0.5, 3.0]))
    sample = codes.sample((200_000,), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(sample.mean(0), codes.mean, atol=0.03, rtol=0)
    torch.testing.assert_close(sample.std(0), codes.stddev, rtol=0.01, atol=0)


def test_relaxed_samples_lie_in_the_simplex_and_sharpen_with_temperature() -> None:
    codes = some(LatentSpec(0, (10,)), batch=2000)
    warm, cold = (codes.rsample(t, generator=torch.Generator().manual_seed(0)) for t in (1.0, 0.01))
    assert (warm > 0).all()
    torch.testing.assert_close(warm.sum(-1), torch.ones(2000))
    assert warm.max(-1).values.mean() < 0.9
    assert cold.max(-1).values.mean() > 0.99
    # The same noise picks the same class, hot or cold or exact.
    exact = codes.sample(generator=torch.Generator().manual_seed(0))
    assert (cold.argmax(-1) == exact.argmax(-1)).all()


def test_gradients_reach_every_parameter_of_relaxed_samples() -> None:
    mean, stddev = torch.zeros(4, 2, requires_grad=True), torch.ones(4, 2, requires_grad=True)
    logits = torch.zeros(4, 3, requires_grad=True)
    weights = torch.arange(1.0, 6.0)
    (CodeDistribution(mean, stddev, [logits]).rsample(0.67) * weights).sum().backward()
    for parameter in (mean, stddev, logits):
        assert parameter.grad is not None
        assert (parameter.grad != 0).all()


def test_samples_repeat_and_leave_the_global_random_state_alone() -> None:
    codes = some(SPECS[0])
    before = torch.get_rng_state()
    first = codes.sample(generator=torch.Generator().manual_seed(3))
    assert torch.equal(first, codes.sample(generator=torch.Generator().manual_seed(3)))
    assert torch.equal(before, torch.get_rng_state())


def test_noise_is_standard_normal_and_standard_gumbel() -> None:
    noise = LatentSpec(1, (2,)).noise((400_000,), torch.Generator().manual_seed(0))
    assert noise.shape == (400_000, 3)
    torch.testing.assert_close(noise.mean(0), torch.tensor([0.0, 0.5772, 0.5772]), atol=0.01, rtol=0)
    torch.testing.assert_close(
        noise.var(0), torch.tensor([1.0, math.pi**2 / 6, math.pi**2 / 6]), atol=0.02, rtol=0
    )


def test_impossible_classes() -> None:
    logits = torch.tensor([[0.0, -math.inf, 0.0]])
    codes = CodeDistribution(torch.zeros(1, 0), torch.ones(1, 0), [logits])
    log_probs = torch.cat([codes.log_prob(one_hot[None]) for one_hot in torch.eye(3)])
    torch.testing.assert_close(log_probs, torch.tensor([-math.log(2), -math.inf, -math.log(2)]))
    assert codes.entropy().item() == pytest.approx(math.log(2))
    assert codes.kl(CodeDistribution.prior(codes.latents)).item() == pytest.approx(math.log(3 / 2))


def test_marginals_keep_the_order_of_the_code() -> None:
    codes = some(SPECS[0])
    sample = codes.sample()
    marginal = codes.marginal(["c1", "z2", "z0"])
    assert marginal.latents == LatentSpec(2, (2,))
    columns = SPECS[0].columns
    chosen = torch.cat([sample[:, columns[unit]] for unit in ("z0", "z2", "c1")], -1)
    per_unit = codes.log_prob_per_unit(sample)
    torch.testing.assert_close(marginal.log_prob(chosen), per_unit[:, 0] + per_unit[:, 2] + per_unit[:, 4])
    with pytest.raises(KeyError, match="no unit 'z9'"):
        codes.marginal(["z9"])


def test_selection_and_expectation() -> None:
    codes = some(SPECS[0])
    torch.testing.assert_close(codes[1:3].expectation, codes.expectation[1:3])
    real, blocks = SPECS[0].split(codes.expectation)
    assert torch.equal(real, codes.mean)
    assert all(torch.allclose(block.sum(-1), torch.ones(5)) for block in blocks)


def test_independent_of_the_scale_of_logits() -> None:
    codes, shifted = some(SPECS[1]), some(SPECS[1])
    shifted = CodeDistribution(shifted.mean, shifted.stddev, [block + 50 for block in shifted.log_probs])
    torch.testing.assert_close(codes.log_probs, shifted.log_probs, atol=1e-4, rtol=0)


def test_the_normal_part_is_one_density_over_all_real_units() -> None:
    codes = some(SPECS[2])
    sample = codes.sample()
    torch.testing.assert_close(
        codes.log_prob(sample), Independent(Normal(codes.mean, codes.stddev), 1).log_prob(sample)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, ()), "continuous must be ≥ 0, got -1"),
        ((1, (1,)), "at least 2 classes"),
        ((0, ()), "at least one unit"),
    ],
)
def test_bad_latents(arguments: tuple[int, tuple[int, ...]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LatentSpec(*arguments)
