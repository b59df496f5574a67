import numpy as np
import pytest
import torch
from known_codes import factors, perfect, rotated, scaled, useless

from vmivae.evaluation.disentanglement import mutual_information_gap
from vmivae.evaluation.factors import factor_entropies, factor_information
from vmivae.model import CodeDistribution


def score(codes, width=0.02):
    real = torch.from_numpy(codes.real * 1.0)
    logits = [
        torch.from_numpy(np.log(np.eye(size)[codes.categories[:, unit]] + 1e-9))
        for unit, size in enumerate(codes.sizes)
    ]
    posterior = CodeDistribution(real, torch.full_like(real, width), logits)
    return mutual_information_gap(
        factor_information(posterior, codes.factors), factor_entropies(codes.factors)
    )


def test_a_table_by_hand():
    table = np.array([[0.6, 0.1], [0.2, 0.5], [0.0, 0.2]])
    # (0.6 − 0.2) / 0.8 and (0.5 − 0.2) / 1.0
    assert mutual_information_gap(table, np.array([0.8, 1.0])) == pytest.approx((0.5 + 0.3) / 2)
    assert mutual_information_gap(table[::-1], np.array([0.8, 1.0])) == pytest.approx(0.4)
    assert mutual_information_gap(table[:1], np.array([0.8, 1.0])) == pytest.approx((0.75 + 0.1) / 2)


def test_perfect_rotated_and_useless():
    assert score(perfect()) > 0.95
    assert score(rotated()) < 0.5
    assert abs(score(useless(), width=1.0)) < 0.1


def test_the_table_knows_entropies_and_independence():
    known = factors(4000)
    real = torch.from_numpy(scaled(known)[:, 1:2])
    posterior = CodeDistribution(real, torch.full_like(real, 1e-3))
    table = factor_information(posterior, known)
    assert table.shape == (1, 3)
    assert table[0, 1] == pytest.approx(factor_entropies(known)[1], abs=1e-3)
    assert table[0, 0] < 0.01
    assert factor_entropies(np.array([[0, 3], [1, 3]])) == pytest.approx([np.log(2), 0])
