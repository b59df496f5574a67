"""What a latent-variable model must offer to have its information measured."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor
from torch.distributions import Distribution

from vmivae.model.latents import CodeDistribution, LatentSpec


@runtime_checkable
class LatentVariableModel(Protocol):
    """A prior over codes and a likelihood of images given codes; a posterior only if its codes are wanted."""

    @property
    def latents(self) -> LatentSpec:
        """The units of a code."""
        ...

    @property
    def prior(self) -> CodeDistribution:
        """`p(z)`, with batch shape ()."""
        ...

    def likelihood(self, codes: Tensor) -> Distribution:
        """`p(x|z)` for codes `(B, size)`: batch `(B,)`, event = one image; needs `sample`, `log_prob`."""
        ...
