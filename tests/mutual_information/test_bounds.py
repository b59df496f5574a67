import math

import pytest
import torch

from vmivae.errors import ImpossibleEstimateError
from vmivae.mutual_information.bounds import Mean, barber_agakov, mean, require_possible


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
