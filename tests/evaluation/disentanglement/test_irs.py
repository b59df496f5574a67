import numpy as np
import pytest
from known_codes import changed, perfect, rotated, useless

from vmivae.evaluation.disentanglement import Representation, irs
from vmivae.evaluation.disentanglement import irs as score
from vmivae.evaluation.disentanglement.irs import QUANTILE, robustness


def test_a_table_by_hand():
    known = np.array([[a, b] for a in (0, 1) for b in (0, 1)] * 100)
    a, b = known.T
    codes = Representation(known, np.stack([2.0 * a, a + 0.5 * b, 0.0 * a], axis=1))
    # Unit 0 is fixed by a. Unit 1 goes from 0 to 1.5: ±0.75 in all, ±0.25 given a, ±0.5 given b.
    # Unit 2 never moves.
    assert robustness(codes) == pytest.approx(np.array([[1, 0], [1 - 0.25 / 0.75, 1 - 0.5 / 0.75], [0, 0]]))
    sizes = np.array([1, 0.75 / np.std(a + 0.5 * b)])
    assert irs(codes) == pytest.approx((sizes @ [1, 2 / 3]) / sizes.sum())


def test_classes_by_hand():
    known = np.array([[0], [1], [2]] * 100)
    codes = Representation(known, categories=known // 2, sizes=(2,))
    # Shares ⅔ and ⅓: the largest distance is 1 − ⅓; given the factor it is 0.
    assert robustness(codes) == pytest.approx(np.array([[1.0]]))
    assert QUANTILE < 1


def test_perfect_rotated_and_useless():
    assert score(perfect()) > 0.95
    assert score(rotated(3000)) < 0.6
    assert score(useless(3000)) < 0.1
    assert score(Representation(np.arange(4)[:, None] % 2, np.zeros((4, 2)))) == 0


def test_order_and_scale_of_units_change_nothing():
    for make in (perfect, rotated, useless):
        assert score(changed(make())) == pytest.approx(score(make()))
