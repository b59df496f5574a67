import numpy as np
import pytest
from known_codes import changed, perfect, rotated, useless

from vmivae.evaluation.disentanglement import Representation, betavae_score
from vmivae.evaluation.disentanglement.betavae import differences


def score(codes):
    return betavae_score(codes, np.random.default_rng(0))


def test_differences_by_hand():
    codes = Representation(
        np.zeros((4, 1), dtype=int), np.array([[0.0], [1], [3], [7]]), np.array([[0], [1], [0], [2]]), (3,)
    )
    # Pairs (0, 2), (1, 3), then (0, 0), (3, 3).
    found = differences(codes, np.array([[0, 1, 2, 3], [0, 3, 0, 3]]))
    np.testing.assert_array_equal(found, [[(3 + 6) / 2, 1 / 2], [0, 0]])


def test_perfect_rotated_and_useless():
    assert score(perfect()) > 0.95
    # A linear classifier reads rotated codes too: the score is known to be lenient.
    assert 0.5 < score(rotated()) <= score(perfect())
    # Guessing one of three factors: the score cannot fall below chance.
    assert score(useless()) == pytest.approx(1 / 3, abs=0.1)


def test_order_and_scale_of_units_change_nothing():
    for make in (perfect, rotated, useless):
        assert score(changed(make())) == pytest.approx(score(make()), abs=2e-3)


def test_images_that_share_nothing_have_no_score():
    assert score(Representation(np.arange(9)[:, None], np.zeros((9, 1)))) is None
