"""Fresh pairs `z ~ r(z)`, `x̃ ~ p(x|z)` of a fixed model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from vmivae.errors import ParameterError
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


@contextmanager
def measured(model: Any, device: str = "auto") -> Iterator[torch.device]:
    """Hold a model fixed: evaluation mode, and on `device`; afterwards it is as it was, bit for bit.

    Args:
        model: any object. The modes of an `nn.Module`, or of modules that are attributes of another object,
            are set and restored.
        device: `auto` moves an `nn.Module` to CUDA or Apple's MPS where there is one, and leaves any other
            object where its prior is.

    Yields:
        The device that codes and images belong on.
    """
    held = [model] if isinstance(model, nn.Module) else getattr(model, "__dict__", {}).values()
    roots = [part for part in held if isinstance(part, nn.Module)]
    modes = {module: module.training for root in roots for module in root.modules()}
    home = model.prior.mean.device
    chosen = _chosen(device, home, movable=isinstance(model, nn.Module))
    try:
        if chosen != home:
            model.to(chosen)
        for root in roots:
            root.eval()
        yield chosen
    finally:
        for module, mode in modes.items():
            module.training = mode
        if chosen != home:
            model.to(home)


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


def _chosen(device: str, home: torch.device, movable: bool) -> torch.device:
    if device == "auto":
        if not movable:
            return home
        device = (
            "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        )
    try:
        chosen = torch.empty(0, device=device).device
    except (RuntimeError, AssertionError):
        raise ParameterError(f"device: must be auto or a device that is there, got {device}") from None
    if chosen != home and not movable:
        raise ParameterError(
            f"device: the model is on {home} and not an nn.Module that could be moved to {device}"
        )
    return chosen
