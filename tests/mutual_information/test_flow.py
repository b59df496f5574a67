import itertools
import math

import pytest
import torch
from torch import Tensor

from vmivae.model.latents import LatentSpec
from vmivae.mutual_information.flow import FlowQNetwork


def network(latents: LatentSpec, seed: int = 0) -> FlowQNetwork:
    """A flow with random weights, large enough that it bends."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        q = FlowQNetwork((4,), latents)
        with torch.no_grad():
            for parameter in q.parameters():
                parameter.mul_(1.5)
    return q.requires_grad_(False)


def one_hots(classes: tuple[int, ...]) -> list[Tensor]:
    """Every value of the categorical units."""
    rows = itertools.product(*(torch.eye(n) for n in classes))
    return [torch.cat([torch.zeros(0), *row]) for row in rows]


LATENTS = LatentSpec(2, (3, 2))
IMAGES = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("known", [(), ("c0",), ("c1",), ("c0", "c1"), ("z0",), ("z1", "c0")])
def test_density_of_the_free_units_integrates_to_one(known: tuple[str, ...]) -> None:
    q = network(LATENTS)
    codes = torch.tensor([[0.3, -0.2, 0, 1, 0, 1, 0], [0.1, 0.4, 1, 0, 0, 0, 1.0]])
    proposal = q.proposal(IMAGES, codes, known)
    points = torch.linspace(-7, 7, 113)
    step = float(points[1] - points[0])
    real = [unit for unit in LATENTS.continuous_units if unit not in known]
    grid = torch.cartesian_prod(*[points] * len(real)).reshape(-1, len(real)) if real else torch.zeros(1, 0)
    classes = tuple(
        n for unit, n in zip(LATENTS.discrete_units, LATENTS.discrete, strict=True) if unit not in known
    )
    total = torch.zeros(2)
    for onehot in one_hots(classes):
        values = torch.cat([grid, onehot.expand(len(grid), -1)], dim=-1)
        density = proposal.log_prob(values[:, None].expand(-1, 2, -1)).exp()
        total += density.sum(0) * step ** len(real)
    torch.testing.assert_close(total, torch.ones(2), atol=5e-3, rtol=0)


@pytest.mark.parametrize("known", [(), ("c0",), ("z0",)])
def test_samples_follow_the_density(known: tuple[str, ...]) -> None:
    """E[1/Q] over samples within a box is the box's volume, for each value of the categorical units."""
    q = network(LATENTS)
    codes = torch.tensor([[0.3, -0.2, 0, 1, 0, 1, 0], [0.1, 0.4, 1, 0, 0, 0, 1.0]])
    proposal = q.proposal(IMAGES, codes, known)
    samples = proposal.sample((20_000,), torch.Generator().manual_seed(1))
    real = samples[..., : len([unit for unit in LATENTS.continuous_units if unit not in known])]
    inside = (real.abs() < 1).all(-1)
    inverse = torch.where(inside, (-proposal.log_prob(samples)).exp(), 0.0).double()
    values = math.prod(
        n for unit, n in zip(LATENTS.discrete_units, LATENTS.discrete, strict=True) if unit not in known
    )
    volume = 2 ** real.shape[-1] * values
    se = inverse.std(0) / math.sqrt(20_000)
    assert (se < 0.15 * volume).all()
    assert ((inverse.mean(0) - volume).abs() < 4 * se).all()


def test_score_is_the_log_density_of_the_whole_code_and_of_each_units_head() -> None:
    q = network(LATENTS)
    codes = q.proposal(IMAGES, torch.zeros(2, 7)).sample((), torch.Generator().manual_seed(1))
    log_q, per_unit = q.score(codes, IMAGES)
    torch.testing.assert_close(log_q, q.proposal(IMAGES, codes).log_prob(codes))
    torch.testing.assert_close(per_unit, q(IMAGES).log_prob_per_unit(codes))


@pytest.mark.parametrize(
    "latents", [LatentSpec(1), LatentSpec(3), LatentSpec(0, (4,)), LatentSpec(0, (3, 2))]
)
def test_codes_of_one_kind_only(latents: LatentSpec) -> None:
    q = network(latents)
    proposal = q.proposal(IMAGES, torch.zeros(2, latents.size))
    samples = proposal.sample((5,), torch.Generator().manual_seed(0))
    assert samples.shape == (5, 2, latents.size)
    assert proposal.log_prob(samples).shape == (5, 2)


def test_units_heads_and_flow_learn_from_their_own_terms() -> None:
    """The flow's loss must not pull the heads away from being the best marginals."""
    q = network(LatentSpec(2)).requires_grad_(True)
    log_q, _ = q.score(torch.zeros(2, 2), IMAGES)
    log_q.sum().backward()
    assert q.head.linear.weight.grad is None
    assert q.flow.transform.transforms[0].hyper[0].weight.grad is not None
