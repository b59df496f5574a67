"""Representations whose scores are known: perfect, rotated and useless."""

import numpy as np

from vmivae.evaluation.disentanglement import Representation

VALUES = (3, 4, 5)


def factors(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, VALUES, (count, len(VALUES)))


def scaled(known: np.ndarray) -> np.ndarray:
    return known / (np.array(VALUES) - 1) * 2 - 1


def perfect(count: int = 1200, seed: int = 0) -> Representation:
    """One unit for each factor: a categorical one for the first, real ones for the others."""
    known = factors(count, seed)
    return Representation(known, scaled(known)[:, 1:], (2 - known[:, :1]), (3,))


def rotated(count: int = 1200, seed: int = 0) -> Representation:
    """Every unit is a mixture of all factors in equal parts."""
    known = factors(count, seed)
    mixing = np.array([[1, 1, 1], [1, -1, 0], [1, 1, -2]]) / np.sqrt([[3], [2], [6]])
    return Representation(known, scaled(known) @ mixing.T)


def useless(count: int = 1200, seed: int = 0) -> Representation:
    """Units that know nothing of any factor."""
    generator = np.random.default_rng(seed + 1000)
    return Representation(
        factors(count, seed), generator.normal(size=(count, 3)), generator.integers(0, 4, (count, 1)), (4,)
    )


def changed(codes: Representation) -> Representation:
    """The same code with its real units in another order and on other scales, its classes renamed."""
    order = np.arange(codes.real.shape[1])[::-1]
    scale = np.array([-300.0, 0.02, 5.0])[: len(order)]
    classes = codes.categories
    renamed = [(size - 1) - classes[:, unit] for unit, size in enumerate(codes.sizes)]
    return Representation(
        codes.factors,
        codes.real[:, order] * scale + 7,
        np.stack(renamed, axis=1) if renamed else classes,
        codes.sizes,
    )
