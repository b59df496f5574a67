"""Training that was killed goes on and ends with the same bytes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest
import torch
from test_loop import CAPACITY, LATENTS, same, settings, some_images
from torch import Tensor

from vmivae.checkpoint import NO_CHECKPOINT, Checkpoint, State
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
def test_a_killed_training_ends_with_the_same_bytes(
    killed_and_resumed: Callable[..., tuple[VAE, History]], kills: tuple[int, ...]
) -> None:
    model, history = trained()
    again, resumed = killed_and_resumed(trained, *kills)
    assert same(model, again)
    assert history.rows == resumed.rows
    assert list(history.rows[0]) == list(resumed.rows[0])


def test_the_q_network_and_its_noise_are_kept_too(
    killed_and_resumed: Callable[..., tuple[VAE, History]],
) -> None:
    information = make_information(LATENTS, 1.0, 2.0, codes="posterior")
    model, history = trained(information=information)
    again, resumed = killed_and_resumed(partial(trained, information=information), 4, 3)
    assert same(model, again)
    assert history.rows == resumed.rows


@dataclass
class Watched:
    """Notes the steps that are offered to `checkpoint`."""

    checkpoint: Checkpoint
    steps: list[int] = field(default_factory=list)

    def load(self, name: str, like: State) -> State | None:
        return self.checkpoint.load(name, like)

    def offer(self, name: str, state: Callable[[], State]) -> None:
        self.steps.append(state()["epoch"] * 5 + state()["done"])
        self.checkpoint.offer(name, state)

    def finish(self, name: str, state: Callable[[], State]) -> None:
        self.checkpoint.finish(name, state)


def test_it_goes_on_where_it_was(killed_and_resumed: Callable[..., None]) -> None:
    seen: list[Watched] = []
    epochs: list[int] = []

    def compute(checkpoint: Checkpoint) -> None:
        seen.append(Watched(checkpoint))
        trained(seen[-1], on_epoch=lambda step, values: epochs.append(step))

    killed_and_resumed(compute, 7)
    # The eighth step was done, but the kill came before it was kept.
    assert [watched.steps for watched in seen] == [list(range(1, 9)), list(range(8, 16))]
    assert epochs == [5, 10, 15]
