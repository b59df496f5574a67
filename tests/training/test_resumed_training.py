"""Training that was killed goes on and ends with the same bytes."""

from functools import partial
from typing import Any

import pytest
import torch
from test_loop import CAPACITY, LATENTS, same, settings, some_images
from torch import Tensor

from vmivae.checkpoint import NO_CHECKPOINT, Checkpoint
from vmivae.model import VAE
from vmivae.training import History, make_information, train


def trained(checkpoint: Checkpoint = NO_CHECKPOINT, **options: object) -> tuple[VAE, History]:
    """Three epochs of five steps, with the VAE's own noise and pixels drawn afresh."""
    model = VAE((1, 8, 8), LATENTS, architecture="mlp")
    config = settings(epochs=3, temperature={"start": 1.0, "end": 0.5, "steps": 9})
    return model, train(
        model, some_images(90), CAPACITY, config, 0, draw=drawn, checkpoint=checkpoint, **options
    )


def drawn(batch: Tensor, generator: torch.Generator) -> Tensor:
    return (torch.rand(batch.shape, generator=generator) * 255 < batch).to(torch.uint8) * 255


@pytest.mark.parametrize("kills", [(1,), (4,), (5,), (6,), (14,), (1, 1, 3, 2), (3, 7)])
def test_a_killed_training_ends_with_the_same_bytes(killing: Any, kills: tuple[int, ...]) -> None:
    model, history = trained()
    again, resumed = killing(trained, *kills)
    assert same(model, again)
    assert history.rows == resumed.rows
    assert list(history.rows[0]) == list(resumed.rows[0])


def test_the_q_network_and_its_noise_are_kept_too(killing: Any) -> None:
    information = make_information(LATENTS, 1.0, 2.0, codes="posterior")
    model, history = trained(information=information)
    again, resumed = killing(partial(trained, information=information), 4, 3)
    assert same(model, again)
    assert history.rows == resumed.rows


def test_it_goes_on_where_it_was(killing: Any) -> None:
    epochs: list[int] = []
    killing(lambda checkpoint: trained(checkpoint, on_epoch=lambda step, values: epochs.append(step)), 7)
    steps = [[5 * state["epoch"] + state["done"] for _, state in offered] for offered in killing.offered]
    # The eighth step was done, but the kill came before it was kept.
    assert steps == [list(range(1, 9)), list(range(8, 16))]
    assert epochs == [5, 10, 15]
