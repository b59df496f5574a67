"""Objectives against values computed by hand, on grey and RGB images, and against the classic slips."""

import math

import pytest
import torch

from vmivae.errors import ParameterError
from vmivae.model import VAE, CodeDistribution, LatentSpec
from vmivae.training import Beta, Capacity, Objective, Ramp, make_objective

LATENTS = LatentSpec(2, (10, 2))
RAMPS = {
    "continuous": {"start": 0.0, "end": 5.0, "steps": 100},
    "discrete": {"start": 0.0, "end": None, "steps": 50},
}


def loss(objective: Objective, distortion: float, kl: tuple[float, float], step: int = 0) -> float:
    capacity = [torch.tensor(value or 0.0) for value in objective.capacity(step)]
    pair = (torch.tensor(kl[0]), torch.tensor(kl[1]))
    return float(objective.loss(torch.tensor(distortion), pair, (capacity[0], capacity[1])))


def test_beta_and_elbo() -> None:
    assert loss(Beta(), 100.0, (7.0, 2.0)) == 109.0
    assert loss(Beta(4.0), 100.0, (7.0, 2.0)) == 136.0
    assert loss(Beta(0.0), 100.0, (7.0, 2.0)) == 100.0
    assert Beta().capacity(10) == (None, None)


def test_capacity() -> None:
    objective = make_objective(LATENTS, "capacity", gamma=30.0, capacity=RAMPS)
    assert objective.capacity(0) == (0.0, 0.0)
    assert objective.capacity(25) == (1.25, pytest.approx(math.log(20) / 2))
    assert objective.capacity(10**6) == (5.0, pytest.approx(math.log(20)))
    assert loss(objective, 100.0, (7.0, 2.0)) == pytest.approx(100 + 30 * 7 + 30 * 2)
    # Above and below the target cost the same.
    assert loss(objective, 100.0, (6.0, 2.0), 100) == pytest.approx(
        100 + 30 * 1 + 30 * (math.log(20) - 2), rel=1e-6
    )
    assert loss(objective, 100.0, (4.0, 2.0), 100) == pytest.approx(
        100 + 30 * 1 + 30 * (math.log(20) - 2), rel=1e-6
    )


def test_gamma_may_differ_per_type() -> None:
    objective = make_objective(
        LATENTS, "capacity", gamma={"continuous": 10.0, "discrete": 2.0}, capacity=RAMPS
    )
    assert loss(objective, 50.0, (3.0, 1.0)) == pytest.approx(50 + 10 * 3 + 2 * 1)


def test_capacity_targets_the_mean_of_the_batch_not_each_image() -> None:
    # Images with KL 0 and 4 around C = 2: the mean is on target, so nothing is paid.
    objective = Capacity(gamma=(30.0, 30.0), continuous=Ramp(2.0, 2.0), discrete=None)
    codes = CodeDistribution(torch.tensor([[0.0], [math.sqrt(8.0)]]), torch.ones(2, 1))
    kl = codes.kl_per_unit(CodeDistribution.prior(codes.latents)).mean(0).sum()
    assert kl.item() == pytest.approx(2.0)
    assert loss(objective, 1.0, (kl.item(), 0.0)) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("channels", [1, 3])
def test_elbo_of_known_images_counts_every_channel_and_unit(channels: int) -> None:
    latents = LatentSpec(2, (10,))
    vae = VAE((channels, 4, 4), latents, architecture="mlp")
    with torch.no_grad():
        for linear in (vae.head.linear, vae.decoder[-2]):
            linear.weight.zero_()
            linear.bias.zero_()
        # mean 1 and variance e for both real units; class 0 for certain.
        vae.head.linear.bias.copy_(torch.tensor([1.0, 1.0, 1.0, 1.0, 1e4, *[0.0] * 9]))
    images = torch.randint(0, 2, (6, channels, 4, 4)).float()
    posterior = vae.posterior(images)
    distortion = -vae.likelihood(posterior.rsample(0.67)).log_prob(images).mean()
    kl = posterior.kl_per_unit(vae.prior).mean(0)
    assert distortion.item() == pytest.approx(channels * 16 * math.log(2), rel=1e-6)
    # ½(σ² + μ² − 1 − log σ²) = ½(e + 1 − 1 − 1) each.
    assert kl[:2].sum().item() == pytest.approx(math.e - 1, rel=1e-6)
    assert kl[2:].sum().item() == pytest.approx(math.log(10), rel=1e-6)
    elbo = -loss(Beta(), distortion.item(), (kl[:2].sum().item(), kl[2:].sum().item()))
    assert elbo == pytest.approx(-(channels * 16 * math.log(2) + math.e - 1 + math.log(10)), rel=1e-6)


def test_ramps_are_functions_of_the_step_alone() -> None:
    ramp = Ramp(1.0, 3.0, 4)
    forwards = [ramp(step) for step in range(7)]
    assert forwards == [1.0, 1.5, 2.0, 2.5, 3.0, 3.0, 3.0]
    assert [ramp(step) for step in reversed(range(7))] == forwards[::-1]
    assert Ramp(3.0, 1.0, 2)(1) == 2.0


def test_numbers_and_blocks_make_ramps() -> None:
    assert Ramp.of(0.67)(0) == Ramp.of(0.67)(10**9) == 0.67
    assert Ramp.of({"start": 1.0, "end": 0.5, "steps": 10}) == Ramp(1.0, 0.5, 10)


def test_one_kind_of_unit_alone() -> None:
    real = make_objective(LatentSpec(2, ()), "capacity", capacity=RAMPS)
    assert real.capacity(100) == (5.0, None)
    assert loss(real, 1.0, (5.0, 0.0), 100) == 1.0
    categorical = make_objective(LatentSpec(0, (10,)), "capacity", capacity=RAMPS)
    assert categorical.capacity(100) == (None, pytest.approx(math.log(10)))


@pytest.mark.parametrize("key", ["start", "end"])
def test_discrete_capacity_never_exceeds_what_the_units_can_carry(key: str) -> None:
    ramps = {**RAMPS, "discrete": {"start": 0.0, "end": 1.0, "steps": 5, key: 3.0}}
    with pytest.raises(ParameterError, match=r"objective.capacity.discrete: must be ≤ 2.9957 .* got 3.0"):
        make_objective(LATENTS, "capacity", capacity=ramps)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"regularizer": "elbo"}, "objective.regularizer: must be one of beta, capacity, got elbo"),
        ({"regularizer": "capacity"}, "objective.capacity.continuous: missing"),
    ],
)
def test_refused(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make_objective(LATENTS, **arguments)
