import numpy as np
import pytest
from known_codes import changed, perfect, rotated, useless

from vmivae.evaluation.disentanglement import Representation, sap
from vmivae.evaluation.disentanglement.sap import predictability


def test_a_table_by_hand():
    known = np.array([[0], [0], [1], [1], [2], [2]] * 5)
    # Unit 0 tells all values; unit 1 tells value 0 from the rest; unit 2 nothing.
    real = np.stack([known[:, 0] * 3.0, (known[:, 0] > 0) * 1.0, np.zeros(30)], axis=1)
    codes = Representation(known, real)
    # Balanced accuracy 1, (1 + 1 + 0) / 3 and ⅓, rescaled so that ⅓ is 0.
    assert predictability(codes, codes) == pytest.approx(np.array([[1], [0.5], [0]]))
    assert sap(codes, codes) == pytest.approx(0.5)


def test_rare_values_count_as_much_as_common_ones():
    known = np.array([[0]] * 90 + [[1]] * 10)
    codes = Representation(known, np.zeros((100, 1)))
    assert predictability(codes, codes) == pytest.approx(np.array([[0]]))


def test_perfect_rotated_and_useless():
    assert sap(perfect(), perfect(400, 1)) > 0.95
    assert sap(rotated(), rotated(400, 1)) < 0.4
    assert sap(useless(), useless(400, 1)) < 0.1


def test_order_and_scale_of_units_change_nothing():
    assert sap(changed(perfect()), changed(perfect(400, 1))) == pytest.approx(sap(perfect(), perfect(400, 1)))
    assert sap(changed(useless()), changed(useless(400, 1))) == pytest.approx(
        sap(useless(), useless(400, 1)), abs=0.02
    )
