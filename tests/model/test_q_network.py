"""The Q-network: which images it reads, and that it is a distribution of exact codes."""

import pytest
import torch

from vmivae.model.latents import CodeDistribution, LatentSpec
from vmivae.model.q_network import QNetwork


@pytest.mark.parametrize("shape", [(1, 32, 32), (3, 64, 64), (1, 8, 8), (7,), (2, 3), (1, 28, 28)])
def test_any_event_shape_is_read(shape: tuple[int, ...]) -> None:
    latents = LatentSpec(2, (3,))
    q = QNetwork(shape, latents)(torch.rand(5, *shape))
    assert q.latents == latents
    assert q.batch_shape == (5,)


def test_a_categorical_q_gives_probabilities_of_exact_codes() -> None:
    q = QNetwork((4,), LatentSpec(0, (3,)))(torch.rand(2, 4))
    assert isinstance(q, CodeDistribution)
    total = sum(q.log_prob(code.expand(2, 3)).exp() for code in torch.eye(3))
    torch.testing.assert_close(total, torch.ones(2))
