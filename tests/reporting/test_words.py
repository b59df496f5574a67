from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from small_results import PARAMETERS

from vmivae.reporting import words
from vmivae.reporting.results import Results

Small = Callable[..., Results]


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        (8.214, 2, "8.21"),
        (-0.5, 1, "−0.5"),
        (-0.001, 2, "0.00"),
        (60000, 0, "60\u202f000"),
        (0.996, 2, "1.00"),
    ],
)
def test_numbers_have_a_real_minus_and_no_negative_zero(value: float, decimals: int, text: str) -> None:
    assert words.number(value, decimals) == text


@pytest.mark.parametrize(
    ("error", "decimals"),
    [(2.0, 1), (0.5, 1), (0.1, 1), (0.03, 2), (0.004, 3), (1e-6, 3), (0.0, 2), (None, 2)],
)
def test_a_standard_error_shows_one_digit(error: float | None, decimals: int) -> None:
    assert words.decimals(error) == decimals


def test_measured_is_as_precise_as_its_error() -> None:
    assert words.measured(8.2149, 0.031) == "8.21 ± 0.03"
    assert words.measured(85.25, 1.3) == "85.2 ± 1.3"


@pytest.mark.parametrize(
    ("nats", "text"),
    [(0.0, "1.0"), (2.4, "11"), (8.2, "3\u202f600"), (14.5, "2.0 million"), (23.1, "11 billion")],
)
def test_alternatives_are_the_exponential(nats: float, text: str) -> None:
    assert words.alternatives(nats) == text


def test_the_first_sentence_states_the_lower_bound_in_nats_and_bits(small: Small) -> None:
    first = words.summary(small())[0]
    # 6.4321 / log 2 = 9.2796 and e^6.4321 = 621.5
    assert "at least 6.43 ± 0.03 nats" in first
    assert "(9.28 bits)" in first
    assert "one of 620 equally likely" in first


def test_the_first_sentence_states_the_interval_when_there_is_one(small: Small) -> None:
    first = words.summary(small(upper=True))[0]
    # 6.4321 − 2 · 0.0345 and 6.7654 + 2 · 0.0456
    assert "between 6.36 and 6.86 nats" in first
    assert "(9.18 and 9.89 bits)" in first


def test_a_bound_within_noise_of_zero_is_not_called_information(small: Small) -> None:
    results = small()
    empty = replace(results, information=results.information | {"lower": 0.05, "lower_se": 0.04})
    assert "No information" in words.summary(empty)[0]


def test_active_units_and_agreement_are_told(small: Small) -> None:
    text = " ".join(words.summary(small(3, (3,), classes=["a", "b", "c"])))
    assert "2 of the 3 real units are active" in text
    assert "z2, z1 and z0 carry most: at least 0.60, 0.40 and 0.20 nats" in text
    assert "at least 0.80 of the 1.10 nats that 3 categories can hold" in text
    assert "81.2 ± 2.0" in text


def test_only_classes_of_categories_in_use_are_counted_as_named(small: Small) -> None:
    results = small(0, (4,), classes=["a", "b", "c", "d"])
    assert results.usage("c0").all()
    results.evaluation["units"]["c0"]["majority_map"] = [0, 0, 1, 3]
    assert "name 3 of the 4 classes" in " ".join(words.summary(results))
    unused = np.array(results.codes)
    unused[:, 3] = -9
    assert "name 2 of the 4 classes" in " ".join(words.summary(replace(results, codes=unused)))


def test_grey_images_under_a_bernoulli_are_not_called_a_log_likelihood(small: Small) -> None:
    results = small()
    text = " ".join(words.cautions(results, PARAMETERS))
    assert "25&thinsp;% of the pixels" in text
    assert "cross-entropy" in text
    assert "(cross-entropy)" in words.summary(results)[-1]


def test_binary_images_bring_no_caution_about_grey(small: Small) -> None:
    text = " ".join(words.cautions(small(grey=0.0), PARAMETERS))
    assert "Grey pixels" not in text
    assert "Lower bounds only" in text


def test_the_estimate_s_own_warnings_are_passed_on_escaped(small: Small) -> None:
    results = small()
    results.information["warnings"] = ["N < 100"]
    assert "N &lt; 100" in " ".join(words.cautions(results, PARAMETERS))


def test_an_interval_brings_no_caution_about_lower_bounds(small: Small) -> None:
    assert "Lower bounds only" not in " ".join(words.cautions(small(upper=True), PARAMETERS))


def test_a_missed_capacity_is_told_for_its_kind_of_unit(small: Small) -> None:
    results = small()
    results.train.update(kl_continuous=4.1, capacity_continuous=5.0, kl_discrete=1.0, capacity_discrete=1.1)
    text = " ".join(words.cautions(results, PARAMETERS))
    assert "KL of the real units ended at 4.10 nats, its target C at 5.00" in text
    assert "categorical units ended" not in text
