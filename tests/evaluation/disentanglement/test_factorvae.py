import numpy as np
import pytest
from known_codes import changed, perfect, rotated, useless

from vmivae.evaluation.disentanglement import Representation, factorvae_score
from vmivae.evaluation.disentanglement.factorvae import count_votes, majority_accuracy, relative_variances


def score(codes):
    return factorvae_score(codes, np.random.default_rng(0))


def test_votes_by_hand():
    units, known = np.array([0, 0, 0, 1, 1]), np.array([2, 2, 0, 1, 1])
    train = count_votes(units, known, 3, 3)
    np.testing.assert_array_equal(train, [[1, 0, 2], [0, 2, 0], [0, 0, 0]])
    # Unit 0 stands for factor 2, unit 1 for factor 1.
    assert majority_accuracy(train, np.array([[3, 0, 1], [0, 4, 2], [0, 0, 0]])) == pytest.approx(5 / 10)


def test_variances_by_hand():
    codes = Representation(
        np.zeros((4, 1), dtype=int),
        np.array([[0.0, 5], [2, 5], [0, 5], [2, 5]]),
        np.array([[0], [0], [1], [1]]),
        (2,),
    )
    found = relative_variances(codes, np.array([[0, 2], [0, 1]]))
    # Real: 0 and 1 of 1; a unit that never changes never varies least; Gini ½ and 0 of ½.
    np.testing.assert_array_equal(found, [[0, np.inf, 1], [1, np.inf, 0]])


def test_perfect_rotated_and_useless():
    assert score(perfect()) > 0.95
    assert score(rotated()) < 0.9
    # Guessing one of three factors: the score cannot fall below chance.
    assert score(useless()) == pytest.approx(1 / 3, abs=0.1)


def test_order_and_scale_of_units_change_nothing():
    for make in (perfect, rotated, useless):
        assert score(changed(make())) == pytest.approx(score(make()), abs=1e-3)


def test_images_that_share_nothing_have_no_score():
    assert score(Representation(np.arange(9)[:, None], np.zeros((9, 1)))) is None
