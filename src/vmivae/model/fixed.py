"""Holding a model fixed while it is measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from vmivae.errors import ParameterError
from vmivae.model.device import choose_device


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


def _chosen(device: str, home: torch.device, movable: bool) -> torch.device:
    if device == "auto":
        if not movable:
            return home
        device = str(choose_device())
    try:
        chosen = torch.empty(0, device=device).device
    except (RuntimeError, AssertionError):
        raise ParameterError(f"device: must be auto or a device that is there, got {device}") from None
    if chosen != home and not movable:
        raise ParameterError(
            f"device: the model is on {home} and not an nn.Module that could be moved to {device}"
        )
    return chosen
