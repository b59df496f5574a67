"""Which device to compute on."""

from __future__ import annotations

import torch

from vmivae.errors import ParameterError


def choose_device(name: str = "auto") -> torch.device:
    """The device called `name`; `auto` is CUDA if there is one, else Apple's MPS, else the CPU.

    Raises:
        ParameterError: a device that this machine does not have.
    """
    present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    available = [device for device, there in present.items() if there]
    if name == "auto":
        return torch.device(available[0])
    if name not in available:
        raise ParameterError(
            f"train.device: must be one of auto, {', '.join(available)} on this machine, got {name}"
        )
    return torch.device(name)
