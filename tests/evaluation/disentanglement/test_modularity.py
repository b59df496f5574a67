import numpy as np
import pytest
from known_codes import changed, perfect, rotated, useless

from vmivae.evaluation.disentanglement import Representation, explicitness, modularity
from vmivae.evaluation.disentanglement.modularity import concentration, information_table


def score(codes):
    return modularity(codes, np.random.default_rng(0))


def test_tables_by_hand():
    # 1 − 0.25 / (1 · 2), 1 − 2 / 2 and 1.
    table = np.array([[1.0, 0.5, 0.0], [2.0, 2.0, 2.0], [0.0, 0.0, 3.0]])
    assert concentration(table) == pytest.approx((0.875 + 0 + 1) / 3)
    units, known = np.array([[0, 0], [0, 1], [1, 0], [1, 1]]), np.array([[0], [0], [1], [1]])
    assert information_table(units, known) == pytest.approx(np.array([[np.log(2)], [0]]))


def test_perfect_rotated_and_useless():
    assert score(perfect()) > 0.95
    assert score(rotated()) < 0.9
    assert score(useless()) < 0.1


def test_a_unit_that_knows_nothing_is_left_out():
    codes = perfect()
    noise = np.random.default_rng(3).normal(size=(len(codes), 2))
    beside = Representation(
        codes.factors, np.concatenate([codes.real, noise], 1), codes.categories, codes.sizes
    )
    assert score(beside) == pytest.approx(score(codes), abs=0.01)


def test_explicitness_of_perfect_rotated_and_useless():
    assert explicitness(perfect(), perfect(400, 1)) > 0.95
    assert explicitness(rotated(), rotated(400, 1)) > 0.95
    # An area under a ROC curve is one half at chance: the score cannot fall below.
    assert explicitness(useless(), useless(400, 1)) == pytest.approx(0.5, abs=0.05)


def test_order_and_scale_of_units_change_nothing():
    for make in (perfect, rotated, useless):
        assert score(changed(make())) == pytest.approx(
            score(make()), abs=0.02
        )  # bins have a closed and an open end
        before, after = (
            explicitness(make(), make(400, 1)),
            explicitness(changed(make()), changed(make(400, 1))),
        )
        assert after == pytest.approx(before, abs=5e-3)
