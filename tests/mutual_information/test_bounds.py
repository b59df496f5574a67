import math

import pytest
import torch
from known_models import Apart, NarrowEncoder, Table, correlated, orthogonal

from vmivae.errors import ImpossibleEstimateError
from vmivae.model import LatentVariableModel
from vmivae.model.reference import GaussianMixture, LinearGaussian
from vmivae.mutual_information import AggregatePosterior, QNetworkConfig, fit_q_network
from vmivae.mutual_information.adapted import AdaptedProposer, StudentFamily
from vmivae.mutual_information.bounds import Mean, barber_agakov, mean, require_possible, sandwich
from vmivae.mutual_information.pairs import sample_images
from vmivae.mutual_information.proposals import Proposer, QProposer, TiltedProposer


def test_standard_error_has_the_unbiased_variance() -> None:
    value, se = mean(torch.tensor([1.0, 2.0, 6.0]))
    assert value == 3.0
    assert se == pytest.approx(math.sqrt((4 + 1 + 9) / 2 / 3))


def test_barber_agakov_is_entropy_plus_expected_log_q() -> None:
    log_q, log_r = torch.tensor([-1.0, -2.0]), torch.tensor([-3.0, -5.0])
    assert barber_agakov(log_q, log_r).value == pytest.approx(4.0 - 1.5)


def test_noise_within_four_standard_errors_passes_as_it_is() -> None:
    require_possible("information", Mean(-0.39, 0.1), lowest=0.0)
    require_possible("information", Mean(5.39, 0.1), highest=5.0)


@pytest.mark.parametrize(
    ("estimate", "words"),
    [
        (Mean(-0.5, 0.1), "below 0.0000"),
        (Mean(5.5, 0.1), "above 5.0000"),
        (Mean(math.nan, 0.1), "not a finite number"),
        (Mean(math.inf, 0.1), "not a finite number"),
    ],
)
def test_more_than_four_standard_errors_beyond_the_possible_stops(estimate: Mean, words: str) -> None:
    with pytest.raises(ImpossibleEstimateError, match=words) as caught:
        require_possible("encoder information", estimate, lowest=0.0, highest=5.0)
    assert str(caught.value).startswith("encoder information: ")
    assert "\n" not in str(caught.value)


KNOWN: dict[str, LatentVariableModel] = {
    "orthogonal map": orthogonal(6, [2.0, 1.0, 0.5]),
    "correlated map": correlated(12, 4),
    "ignored code": LinearGaussian(torch.zeros(5, 2), 1.0),
    "noiseless classes": Table(5 * torch.eye(6), scale=0.2),
    "noisy classes, ignored units": Table(torch.eye(4), scale=0.5, continuous=2),
    "mixture": GaussianMixture(
        torch.tensor([0.5, 0.3, 0.2]), torch.tensor([[0.0, 0], [1, 0], [0, 2]]), torch.eye(2).expand(3, 2, 2)
    ),
    "real and categorical units": Apart(correlated(8, 2), classes=3),
    "narrow encoder": NarrowEncoder(orthogonal(6, [8.0, 4.0]), mean=1.5, stddev=0.1),
}


@pytest.mark.slow
@pytest.mark.parametrize("codes", ["prior", "posterior"])
@pytest.mark.parametrize("case", KNOWN)
def test_lower_bounds_rise_and_upper_bounds_fall_with_the_number_of_proposals(case: str, codes: str) -> None:
    """`L_K ≤ L_2K ≤ U_2K ≤ U_K` in expectation; Q is hardly fitted, so that there is room between them."""
    model = KNOWN[case]
    if codes == "posterior" and not hasattr(model, "posterior"):
        pytest.skip("it has no encoder")
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        r = model.prior
        if codes == "posterior":
            r = AggregatePosterior.of(model.posterior, sample_images(model, r.sample((40,), generator)))
        network, _ = fit_q_network(model, r, QNetworkConfig(steps=20, batch_size=64))
        drawn = r.sample((600,), generator)
        images = sample_images(model, drawn)
        proposers: list[Proposer] = [QProposer(r, network)]
        if isinstance(r, AggregatePosterior):
            proposers.append(TiltedProposer(r, network))
        else:
            adapted = AdaptedProposer(model, network, StudentFamily(r, network))
            proposers += [adapted] if adapted.worthwhile else []
        for proposer in proposers:
            found = sandwich(model, proposer, drawn, images, 64, generator=generator)
            for steps in (found.lower.diff(dim=0), -found.upper.diff(dim=0), found.gap):
                for step in steps:
                    assert mean(step).value > -3.5 * mean(step).se - 1e-5, proposer.name
            assert mean(found.gap[-1]).value <= mean(found.gap[0]).value + 1e-5
