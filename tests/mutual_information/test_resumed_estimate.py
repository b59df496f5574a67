"""An estimate that was killed goes on and ends with the same bytes."""

from itertools import pairwise
from typing import Any

import pytest
import torch

from vmivae.checkpoint import NO_CHECKPOINT, Checkpoint
from vmivae.model import VAE
from vmivae.model.latents import LatentSpec
from vmivae.mutual_information import Estimate, EstimateConfig, ImportanceConfig, QNetworkConfig, estimate


def estimated(family: str, checkpoint: Checkpoint = NO_CHECKPOINT) -> Estimate:
    """A fit with two validations, pairs in three blocks, a pilot, and levels and units in several blocks."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (50, 1, 4, 4), generator=generator, dtype=torch.uint8)
    config = EstimateConfig(
        codes="posterior",
        q_network=QNetworkConfig(family=family, steps=40, batch_size=300),
        samples=4100,
        importance=ImportanceConfig(images=600, samples=16, units="all"),
    )
    model = VAE((1, 4, 4), LatentSpec(2, (3,)), "mlp")
    return estimate(model, images, config, seed=0, device="cpu", checkpoint=checkpoint)


def same(first: Estimate, second: Estimate) -> bool:
    weights, others = (list(result.q_network.state_dict().values()) for result in (first, second))
    return (
        first.to_dict() == second.to_dict()
        and first.history == second.history
        and all(torch.equal(a, b) for a, b in zip(weights, others, strict=True))
    )


@pytest.mark.parametrize("family", ["gaussian", pytest.param("flow", marks=pytest.mark.slow)])
def test_a_killed_estimate_ends_with_the_same_bytes(killing: Any, family: str) -> None:
    undisturbed = killing(lambda checkpoint: estimated(family, checkpoint))
    names = [name for name, _ in killing.offered[0]]
    first = {name: names.index(name) for name in names}
    assert {"fit of the Q-network", "evaluation pairs", "pilot", "level 0"} < set(first)
    assert len(first) >= 8

    # In the fit's first and second lot of pairs, after its first validation, and in all that comes after it.
    steps = sorted({3, 14, 30, *(at + 1 for at in first.values()), len(names) - 1})
    kills = [later - earlier for earlier, later in pairwise([0, *steps])]
    assert same(undisturbed, killing(lambda checkpoint: estimated(family, checkpoint), *kills))


def test_what_was_done_is_not_repeated(killing: Any) -> None:
    killing(lambda checkpoint: estimated("gaussian", checkpoint))
    (names,) = ([name for name, _ in offered] for offered in killing.offered)
    at = names.index("level 0") + 1
    killing(lambda checkpoint: estimated("gaussian", checkpoint), at)
    before, after = ([name for name, _ in offered] for offered in killing.offered[1:])
    assert (before, after) == (names[: at + 1], names[at:])
