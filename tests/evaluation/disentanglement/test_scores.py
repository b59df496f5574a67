import time

import numpy as np
import pytest
import torch
from known_codes import factors, perfect, rotated, scaled

from vmivae.evaluation.disentanglement import SCORES, Representation, disentanglement_scores
from vmivae.evaluation.disentanglement.representation import Groups
from vmivae.model import CodeDistribution


def posterior(codes, width=0.05):
    real = torch.from_numpy(codes.real)
    logits = [
        torch.from_numpy(np.log(np.eye(size)[codes.categories[:, unit]] + 1e-9))
        for unit, size in enumerate(codes.sizes)
    ]
    return CodeDistribution(real, torch.full_like(real, width), logits)


def scores(train, test, active, seed=0):
    return disentanglement_scores(
        posterior(train), posterior(test), train.factors, test.factors, active, repeats=2, seed=seed
    )


@pytest.mark.slow
def test_every_score_has_a_mean_and_a_spread_and_the_seed_decides():
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    found = scores(perfect(), perfect(600, 1), [True] * 3)
    np.testing.assert_array_equal(state, np.random.get_state()[1])  # noqa: NPY002
    assert tuple(found) == SCORES
    assert all(0.95 < score["mean"] <= 1 + 1e-9 and score["std"] < 0.05 for score in found.values())
    other = rotated(300), rotated(200, 1), [True] * 3
    assert scores(*other) == scores(*other)
    assert scores(*other) != scores(*other, seed=1)


@pytest.mark.slow
def test_units_out_of_use_are_left_out_however_well_their_faint_means_read():
    known, unseen = factors(1200), factors(600, 1)
    faint = [
        Representation(f, np.concatenate([scaled(f), 1e-4 * scaled(f)], axis=1)) for f in (known, unseen)
    ]
    assert scores(*faint, [True] * 3 + [False] * 3)["sap"]["mean"] > 0.95
    assert scores(*faint, [True] * 6)["sap"]["mean"] < 0.05
    nothing = scores(*faint, [False] * 6)
    assert nothing["mig"]["mean"] > 0.5
    assert nothing["sap"] == {"mean": None, "std": None}


def test_too_few_images_give_no_number_and_no_error():
    few = Representation(np.array([[0], [1], [0]]), np.zeros((3, 1)))
    assert scores(few, few, [True])["mig"] == {"mean": None, "std": None}


def test_drawn_images_share_their_factor_and_no_other():
    known = factors(500)
    groups = Groups(known)
    chosen, images = groups.draw(2000, 16, np.random.default_rng(0))
    assert groups.usable == [0, 1, 2]
    np.testing.assert_allclose(np.bincount(chosen) / 2000, 1 / 3, atol=0.05)
    shared = known[images]
    for factor in range(3):
        rows = shared[chosen == factor]
        assert (np.ptp(rows, axis=1)[:, factor] == 0).all()
        assert (np.ptp(rows, axis=1)[:, (factor + 1) % 3] > 0).mean() > 0.99
    assert len(np.unique(images)) > 490


def test_a_value_of_a_single_image_is_never_drawn():
    known = np.array([[0], [0], [1], [1], [2]])
    _, images = Groups(known).draw(200, 4, np.random.default_rng(0))
    assert set(np.unique(images)) == {0, 1, 2, 3}


def test_features_and_bins_by_hand():
    codes = Representation(
        np.zeros((3, 1), dtype=int), np.array([[0.0, 1], [0.5, 1], [1, 1]]), np.array([[2], [0], [1]]), (3,)
    )
    features, owners = codes.features()
    np.testing.assert_array_equal(features[0], [0, 1, 0, 0, 1])
    np.testing.assert_array_equal(owners, [0, 1, 2, 2, 2])
    np.testing.assert_array_equal(codes.binned(4), [[0, 0, 2], [2, 0, 0], [3, 0, 1]])
    assert codes.units == 3


@pytest.mark.slow
def test_ten_thousand_test_images_take_less_than_two_minutes():
    generator = np.random.default_rng(0)
    sizes = (3, 6, 40, 32, 32)
    splits = []
    for count in (20_000, 20_000):
        known = generator.integers(0, sizes, (count, 5))
        real = np.concatenate(
            [known[:, 1:] / 10 + 0.3 * generator.normal(size=(count, 4)), generator.normal(size=(count, 6))],
            axis=1,
        )
        splits.append(
            Representation(known, real, 3 * known[:, :1] + generator.integers(0, 3, (count, 1)), (10,))
        )
    start = time.process_time()
    found = scores(*splits, [True] * 11)
    # Two repeats on two cores; five are the default.
    assert time.process_time() - start < 2 * 120 * 2 / 5
    assert found["dci_informativeness"]["mean"] > 0.7
