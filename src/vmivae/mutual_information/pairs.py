"""Fresh pairs `z ~ r(z)`, `x̃ ~ p(x|z)` of a fixed model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor

from vmivae.model.latents import LatentSpec
from vmivae.model.protocol import LatentVariableModel

DECODE_BLOCK = 1024
"""Codes decoded at once: convolutions are fastest in batches of about this size."""


class CodeSource(Protocol):
    """`r(z)`, the distribution that codes are drawn from: the prior, or an aggregate posterior."""

    @property
    def latents(self) -> LatentSpec: ...

    def sample(self, shape: Sequence[int] = ..., generator: torch.Generator | None = ...) -> Tensor: ...

    def log_prob(self, codes: Tensor) -> Tensor: ...

    def marginal(self, units: Sequence[str]) -> CodeSource: ...


def sample_images(model: LatentVariableModel, codes: Tensor, shape: Sequence[int] = ()) -> Tensor:
    """Images `(*shape, B, *event)` sampled from `p(x|z)` (never its mean) for exact codes `(B, size)`."""
    with torch.no_grad():
        return torch.cat(
            [model.likelihood(block).sample(torch.Size(shape)) for block in torch.split(codes, DECODE_BLOCK)],
            dim=len(shape),
        )


def wide(values: Tensor) -> Tensor:
    """In double precision, where the device has it."""
    return values if values.device.type == "mps" else values.double()


@contextmanager
def seeded(seed: int, stream: str, device: torch.device) -> Iterator[torch.Generator]:
    """A generator for the draws of `stream`; meanwhile torch's global one is seeded likewise.

    `Distribution.sample` and the initial weights of a module take no generator: they draw from the global
    one, whose state is restored. Streams are independent: pairs of one are fresh to the others.
    """
    digest = hashlib.sha256(f"{seed} {stream}".encode()).digest()
    number = int.from_bytes(digest[:7])
    forked = [torch.device(device)] if device.type != "cpu" else []
    with torch.random.fork_rng(forked, device_type=device.type if forked else "cuda"):
        torch.manual_seed(number)
        yield torch.Generator(device).manual_seed(number)
