"""Train variational autoencoders, and say how much their codes know about the images."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vmivae.model import load_vae
    from vmivae.params import load_params

__all__ = ["load_params", "load_vae"]

_HOMES = {"load_params": "vmivae.params", "load_vae": "vmivae.model"}


def __getattr__(name: str) -> Any:
    # Loaded on first use (PEP 562): `import vmivae` alone takes neither torch nor pydantic.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
