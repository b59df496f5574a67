"""Training objectives, as losses to be made small, in nats per image.

Every loss is made of three batch means: the distortion `−E_q[log p(x|z)]`, summed over all channels and
pixels, and the closed-form `KL(q(z|x) ‖ p(z))`, summed over the real units and over the categorical units.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from vmivae.errors import ParameterError
from vmivae.model import LatentSpec


@dataclass(frozen=True)
class Ramp:
    """A value that goes linearly from `start` to `end` within `steps` training steps, then stays.

    A function of the step alone: resuming or validating cannot shift it.

    Example:
        >>> [Ramp(start=0.0, end=5.0, steps=10)(step) for step in (0, 5, 10, 1000)]
        [0.0, 2.5, 5.0, 5.0]
    """

    start: float
    end: float
    steps: int = 1

    def __call__(self, step: int) -> float:
        """The value after `step` training steps."""
        return self.start + (self.end - self.start) * min(step / self.steps, 1.0)

    @classmethod
    def of(cls, value: float | Mapping[str, Any] | Ramp) -> Ramp:
        """A ramp from its fields; a number is a ramp that stands still."""
        if isinstance(value, Ramp):
            return value
        return cls(**value) if isinstance(value, Mapping) else cls(start=value, end=value)


class Objective(Protocol):
    """What training makes small."""

    def capacity(self, step: int) -> tuple[float | None, float | None]:
        """`C(t)` of the real and of the categorical units, in nats; None where there is no target."""
        ...

    def loss(self, distortion: Tensor, kl: tuple[Tensor, Tensor], capacity: tuple[Tensor, Tensor]) -> Tensor:
        """The loss from batch means, in nats; pairs are of the real and of the categorical units."""
        ...


@dataclass(frozen=True)
class Beta:
    """`distortion + β·KL` (3.17); `β = 1` is minus the ELBO (3.3)."""

    beta: float = 1.0

    def capacity(self, step: int) -> tuple[None, None]:
        """No target."""
        return None, None

    def loss(self, distortion: Tensor, kl: tuple[Tensor, Tensor], capacity: tuple[Tensor, Tensor]) -> Tensor:
        """The loss from batch means; the capacity has no part in it."""
        continuous, discrete = kl
        return distortion + self.beta * (continuous + discrete)


@dataclass(frozen=True)
class Capacity:
    """`distortion + γ·|KL − C(t)|` (3.19), for real and categorical units apart (Dupont 2018).

    Attributes:
        gamma: γ of the real and of the categorical units.
        continuous: `C(t)` of the real units, in nats; None without such units.
        discrete: `C(t)` of the categorical units, in nats; None without such units.
    """

    gamma: tuple[float, float]
    continuous: Ramp | None
    discrete: Ramp | None

    def capacity(self, step: int) -> tuple[float | None, float | None]:
        """`C(t)` after `step` training steps."""
        return (
            None if self.continuous is None else self.continuous(step),
            None if self.discrete is None else self.discrete(step),
        )

    def loss(self, distortion: Tensor, kl: tuple[Tensor, Tensor], capacity: tuple[Tensor, Tensor]) -> Tensor:
        """The loss from batch means: the absolute value is the mean's, not a mean of absolute values."""
        excess = [gamma * (k - c).abs() for gamma, k, c in zip(self.gamma, kl, capacity, strict=True)]
        return distortion + excess[0] + excess[1]


def make_objective(
    latents: LatentSpec,
    regularizer: str,
    beta: float = 1.0,
    gamma: float | Mapping[str, float] = 30.0,
    capacity: Mapping[str, Mapping[str, Any]] | None = None,
) -> Objective:
    """The objective that the `objective` block of params.yaml describes.

    Args:
        latents: the units of a code.
        regularizer: `beta` or `capacity`.
        beta: with `beta`: β.
        gamma: with `capacity`: γ, one number or one each for `continuous` and `discrete`.
        capacity: with `capacity`: fields of a `Ramp` for `continuous` and `discrete`; the discrete `end` may
            be None, which is `Σ log K_j`.

    Raises:
        ParameterError: an unknown regularizer, a missing ramp, or a discrete capacity above `Σ log K_j`.
    """
    if regularizer == "beta":
        return Beta(beta)
    if regularizer != "capacity":
        raise ParameterError(f"objective.regularizer: must be one of beta, capacity, got {regularizer}")
    ramps = dict(capacity or {})
    gammas = gamma if isinstance(gamma, Mapping) else {"continuous": gamma, "discrete": gamma}
    most = latents.max_discrete_entropy
    if latents.discrete and "discrete" in ramps and ramps["discrete"]["end"] is None:
        ramps["discrete"] = {**ramps["discrete"], "end": most}
    for name, units in (("continuous", latents.continuous_units), ("discrete", latents.discrete_units)):
        if units and name not in ramps:
            raise ParameterError(
                f"objective.capacity.{name}: missing, and the code has units {', '.join(units)}"
            )
    discrete = Ramp.of(ramps["discrete"]) if latents.discrete else None
    if discrete is not None and max(discrete.start, discrete.end) > most + 1e-9:
        raise ParameterError(
            f"objective.capacity.discrete: must be ≤ {most:.4f} = Σ log K_j nats, "
            f"got {max(discrete.start, discrete.end)}"
        )
    return Capacity(
        gamma=(gammas["continuous"], gammas["discrete"]),
        continuous=Ramp.of(ramps["continuous"]) if latents.continuous else None,
        discrete=discrete,
    )
