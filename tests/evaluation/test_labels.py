import itertools
import math
import time

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from vmivae.evaluation.labels import (
    categorical_information,
    label_information,
    majority_map,
    real_information,
)
from vmivae.evaluation.mixtures import FINEST, Grid
from vmivae.model import CodeDistribution


def by_quadrature(mean, stddev):
    """Entropy of the equally weighted mixture, adaptively, to about 1e-10."""

    def integrand(z):
        density = norm.pdf(z, mean, stddev).mean()
        return -density * math.log(density) if density > 0 else 0.0

    low, high = (mean - 12 * stddev).min(), (mean + 12 * stddev).max()
    edges = np.unique(np.concatenate([[low, high], *(mean + k * stddev for k in (-4, -1, 1, 4))]))
    return sum(quad(integrand, a, b, epsabs=1e-12)[0] for a, b in itertools.pairwise(edges))


@pytest.mark.parametrize("stddev", [1e-3, 0.7, 40.0])
def test_entropy_of_one_gaussian(stddev):
    grid = Grid(np.array([0.3]), np.array([stddev]))
    entropy = grid.entropy(grid.density(np.array([0.3]), np.array([stddev])))
    assert entropy == pytest.approx(0.5 * math.log(2 * math.pi * math.e * stddev**2), abs=1e-7)


def test_entropy_of_a_mixture_of_narrow_and_wide_components():
    mean, stddev = np.array([-1.0, 0.2, 0.25, 2.0]), np.array([0.9, 0.003, 0.02, 0.15])
    grid = Grid(mean, stddev)
    density = grid.density(mean, stddev)
    assert density.sum() * grid.step == pytest.approx(1, abs=1e-9)
    assert grid.entropy(density) == pytest.approx(by_quadrature(mean, stddev), abs=1e-6)


def test_two_well_separated_classes_are_known_to_log_2():
    mean = np.array([-3.0, -3.1, 3.0, 3.1, -2.9, 2.9])
    labels = np.array([0, 0, 7, 7, 0, 7])
    assert real_information(mean, np.full(6, 0.1), labels) == pytest.approx(math.log(2), abs=1e-7)


def test_unequal_classes_give_the_entropy_of_the_label():
    labels = np.array([0, 0, 0, 1])
    information = real_information(10.0 * labels, np.ones(4), labels)
    assert information == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25), abs=1e-6)


def test_no_dependence_gives_zero():
    mean, stddev = np.tile(np.linspace(-2, 2, 20), 3), np.tile(np.linspace(0.01, 1, 20), 3)
    assert real_information(mean, stddev, np.repeat([0, 1, 2], 20)) == pytest.approx(0, abs=1e-9)
    probs = torch.from_numpy(np.random.default_rng(0).dirichlet(np.ones(4), 20)).repeat(3, 1)
    assert categorical_information(probs, np.repeat([0, 1, 2], 20)) == pytest.approx(0, abs=1e-12)


def test_overlapping_classes_by_quadrature():
    mean, stddev = np.array([-0.5, 0.1, 0.6, 1.5]), np.array([0.4, 0.2, 1.0, 0.05])
    labels = np.array([0, 0, 1, 1])
    expected = by_quadrature(mean, stddev) - 0.5 * (
        by_quadrature(mean[:2], stddev[:2]) + by_quadrature(mean[2:], stddev[2:])
    )
    assert real_information(mean, stddev, labels) == pytest.approx(expected, abs=1e-6)


def test_information_of_samples_not_of_posterior_means():
    # The means tell the classes apart exactly; a code drawn from these posteriors hardly does.
    labels = np.array([0, 1])
    information = real_information(np.array([0.0, 0.1]), np.ones(2), labels)
    assert information == pytest.approx(0.1**2 / 8, rel=0.01)


def test_information_does_not_depend_on_the_unit_of_measurement():
    rng = np.random.default_rng(1)
    mean, stddev, labels = rng.normal(size=50), rng.uniform(0.01, 1, 50), rng.integers(0, 3, 50)
    expected = real_information(mean, stddev, labels)
    assert real_information(1000 * mean + 5, 1000 * stddev, labels) == pytest.approx(expected, abs=1e-7)


def test_sixty_thousand_components_of_very_different_widths_are_quick():
    rng = np.random.default_rng(2)
    mean, stddev = rng.normal(size=60_000), np.exp(rng.uniform(math.log(1e-4), 0, 60_000))
    labels = rng.integers(0, 10, 60_000)
    start = time.perf_counter()
    assert 0 < real_information(mean, stddev, labels) < 0.1
    assert time.perf_counter() - start < 15


def test_a_degenerate_width_stays_within_bounds():
    mean, stddev = np.array([0.0, 1.0]), np.array([1e-30, 1.0])
    assert Grid(mean, stddev).points == FINEST
    assert real_information(mean, stddev, np.array([0, 1])) == pytest.approx(math.log(2), abs=1e-2)


def test_categorical_information_by_hand():
    probs = torch.tensor([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8], [0.2, 0.8]], dtype=torch.float64)

    def entropy(p):
        return -p * math.log(p) - (1 - p) * math.log(1 - p)

    expected = entropy(0.5) - 0.5 * entropy(0.8) - 0.5 * entropy(0.2)
    assert categorical_information(probs, np.array([4, 4, 9, 9])) == pytest.approx(expected, abs=1e-12)
    certain = torch.eye(3)[[0, 1, 2, 0, 1, 2]]
    assert categorical_information(certain, np.array([1, 2, 0, 1, 2, 0])) == pytest.approx(math.log(3))


def test_label_information_names_every_unit():
    labels = np.array([0, 1])
    q = CodeDistribution(
        torch.tensor([[-9.0, 0.0], [9.0, 0.0]]), torch.ones(2, 2), [torch.tensor([[40.0, 0.0], [0.0, 40.0]])]
    )
    information = label_information(q, labels)
    assert list(information) == ["z0", "z1", "c0"]
    assert [information[unit] for unit in information] == pytest.approx(
        [math.log(2), 0, math.log(2)], abs=1e-6
    )


def test_majority_map_by_hand():
    classes = np.array([0, 0, 0, 1, 1, 3])
    labels = np.array([5, 5, 2, 2, 2, 0])
    # Class 2 has no image: the commonest label of all, which is 2 (three times).
    assert majority_map(classes, labels, 4).tolist() == [5, 2, 2, 0]
