import numpy as np
import pytest
from known_codes import changed, perfect, rotated, useless

from vmivae.evaluation.disentanglement import dci
from vmivae.evaluation.disentanglement.dci import completeness, disentanglement


def test_importances_by_hand():
    table = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 0.0]])
    # Row concentrations 1, 0, 0 with weights ½, ½, 0.
    assert disentanglement(table) == pytest.approx(0.5)
    # Columns: (⅔, ⅓, 0) and (0, 1, 0); entropies to the base 3.
    entropy = -(2 / 3 * np.log(2 / 3) + 1 / 3 * np.log(1 / 3)) / np.log(3)
    assert completeness(table) == pytest.approx((1 - entropy + 1) / 2)
    assert disentanglement(np.zeros((2, 2))) == 0
    assert disentanglement(np.eye(3)) == completeness(np.eye(3)) == 1
    assert disentanglement(np.ones((3, 3))) == pytest.approx(0)
    assert completeness(np.ones((1, 3))) == 1  # one unit is all that there is


def test_perfect():
    found = dci(perfect(), perfect(400, 1), 0)
    assert min(found.disentanglement, found.completeness, found.informativeness) > 0.95


def test_rotated_codes_are_informative_and_not_disentangled():
    found = dci(rotated(), rotated(400, 1), 0)
    assert found.informativeness > 0.8
    assert max(found.disentanglement, found.completeness) < 0.5


def test_useless():
    found = dci(useless(), useless(400, 1), 0)
    assert max(found.disentanglement, found.completeness, found.informativeness) < 0.1


def test_order_and_scale_of_units_change_nothing():
    for make in (perfect, useless):
        before, after = dci(make(), make(400, 1), 0), dci(changed(make()), changed(make(400, 1)), 0)
        assert after.disentanglement == pytest.approx(before.disentanglement, abs=0.03)
        assert after.completeness == pytest.approx(before.completeness, abs=0.03)
        assert after.informativeness == pytest.approx(before.informativeness, abs=0.05)
