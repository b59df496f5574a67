"""Fresh pairs `z ~ r(z)`, `x̃ ~ p(x|z)` of a fixed model."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor

from vmivae.checkpoint import NO_CHECKPOINT, Checkpoint, State
from vmivae.model.latents import LatentSpec
from vmivae.model.protocol import LatentVariableModel

DECODE_BLOCK = 2048
"""Codes decoded at once."""


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


def draws_state(generator: torch.Generator | None, device: torch.device) -> State:
    """Where the draws of a stream are: of its generator, if any, and of the global one on the device."""
    state = {"cpu": torch.get_rng_state()}
    if device.type != "cpu":
        state[device.type] = torch.get_device_module(device).get_rng_state()
    return state if generator is None else state | {"generator": generator.get_state()}


def restore_draws(state: State, generator: torch.Generator | None, device: torch.device) -> None:
    """Go on drawing where `draws_state` was taken."""
    torch.set_rng_state(state["cpu"])
    if device.type != "cpu":
        torch.get_device_module(device).set_rng_state(state[device.type])
    if generator is not None:
        generator.set_state(state["generator"])


def in_blocks(
    compute: Callable[[slice], tuple[Tensor, ...]],
    count: int,
    size: int,
    generator: torch.Generator | None,
    device: torch.device,
    dim: int = 0,
    progress: Callable[[int], None] | None = None,
    checkpoint: Checkpoint = NO_CHECKPOINT,
    name: str = "blocks",
) -> tuple[Tensor, ...]:
    """Results for `count` things, `size` of them at a time, joined along `dim`.

    Args:
        compute: gives the results for a slice of the things.
        count, size: how many things there are, and how many make a block.
        generator, device: of the draws of `compute`, beside the global one.
        dim: the dimension of results that counts things.
        progress: called with the number of things done.
        checkpoint: what is done is taken from there, under `name`.
    """
    parts: list[tuple[Tensor, ...]] = []
    done = 0

    def joined() -> tuple[Tensor, ...]:
        return tuple(torch.cat(part, dim) for part in zip(*parts, strict=True))

    def state() -> State:
        return {"done": done, "results": list(joined()), "draws": draws_state(generator, device)}

    if saved := checkpoint.load(name, state()):
        done, parts = saved["done"], [tuple(result.to(device) for result in saved["results"])]
        restore_draws(saved["draws"], generator, device)
    for start in range(done, count, size):
        parts.append(compute(slice(start, start + size)))
        done = min(start + size, count)
        if progress:
            progress(done)
        checkpoint.offer(name, state)
    checkpoint.finish(name, state)
    return joined()
