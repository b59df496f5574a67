"""The latent mix: normal and categorical units, their prior, posterior, samples, divergences and entropies.

A code is one row of `D + Σ K_j` numbers: the `D` real units first, then a one-hot block per categorical unit.
All information quantities are in nats.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class LatentSpec:
    """Which units a code has: `continuous` real ones, and one categorical one per entry of `discrete`.

    Example:
        >>> spec = LatentSpec(continuous=2, discrete=(10, 3))
        >>> spec.units, spec.size
        (('z0', 'z1', 'c0', 'c1'), 15)

    Raises:
        ValueError: no unit at all, a negative count, or a categorical unit of fewer than 2 classes.
    """

    continuous: int = 0
    discrete: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "discrete", tuple(self.discrete))
        if self.continuous < 0:
            raise ValueError(f"continuous must be ≥ 0, got {self.continuous}")
        if any(classes < 2 for classes in self.discrete):
            raise ValueError(f"a categorical unit needs at least 2 classes, got {list(self.discrete)}")
        if not self.continuous and not self.discrete:
            raise ValueError("a code needs at least one unit, got continuous=0 and discrete=[]")

    @property
    def size(self) -> int:
        """Length of a code, `D + Σ K_j`."""
        return self.continuous + sum(self.discrete)

    @property
    def units(self) -> tuple[str, ...]:
        """Names of the units: `z0 … z{D-1}`, then `c0 … c{J-1}`."""
        return self.continuous_units + self.discrete_units

    @property
    def continuous_units(self) -> tuple[str, ...]:
        """Names of the real units."""
        return tuple(f"z{i}" for i in range(self.continuous))

    @property
    def discrete_units(self) -> tuple[str, ...]:
        """Names of the categorical units."""
        return tuple(f"c{j}" for j in range(len(self.discrete)))

    @property
    def columns(self) -> dict[str, slice]:
        """The columns of a code that belong to each unit."""
        columns = {unit: slice(i, i + 1) for i, unit in enumerate(self.continuous_units)}
        start = self.continuous
        for unit, classes in zip(self.discrete_units, self.discrete, strict=True):
            columns[unit] = slice(start, start + classes)
            start += classes
        return columns

    def columns_of(self, units: Collection[str]) -> list[int]:
        """The columns of a code that belong to the named units, in the order of the code.

        Raises:
            KeyError: a unit that the code does not have.
        """
        for unit in units:
            if unit not in self.units:
                raise KeyError(f"no unit {unit!r}; the units are {', '.join(self.units)}")
        return [
            column
            for unit, columns in self.columns.items()
            if unit in units
            for column in range(columns.start, columns.stop)
        ]

    @property
    def max_discrete_entropy(self) -> float:
        """`Σ log K_j`: the most that the categorical units can carry, in nats."""
        return sum(math.log(classes) for classes in self.discrete)

    def noise(
        self,
        shape: Sequence[int] = (),
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """What samples are made of, `(*shape, size)`: a standard normal per real unit, a Gumbel per class."""
        normal = torch.randn(*shape, self.continuous, generator=generator, device=device, dtype=dtype)
        exponential = torch.empty(*shape, self.size - self.continuous, device=device, dtype=dtype)
        exponential.exponential_(generator=generator)
        # Some generators return 0, whose Gumbel is infinite.
        gumbel = -exponential.clamp_min_(torch.finfo(exponential.dtype).tiny).log_()
        return torch.cat([normal, gumbel], dim=-1)

    def split(self, codes: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Split codes `(…, size)` into real units `(…, D)` and a list of blocks `(…, K_j)`."""
        real, *blocks = torch.split(codes, [self.continuous, *self.discrete], dim=-1)
        return real, list(blocks)


class CodeDistribution:
    """A batch of factorised code distributions, `N(mean, diag stddev²) × Π Cat(softmax(logits_j))` (3.5).

    Args:
        mean: `(*batch, D)`; D may be 0.
        stddev: `(*batch, D)`, positive.
        logits: one tensor `(*batch, K_j)` per categorical unit; need not be normalised.

    Example:
        >>> q = CodeDistribution(torch.zeros(5, 2), torch.ones(5, 2), logits=[torch.zeros(5, 10)])
        >>> codes = q.sample()
        >>> codes.shape, q.log_prob(codes).shape, q.entropy_per_unit().shape
        (torch.Size([5, 12]), torch.Size([5]), torch.Size([5, 3]))
    """

    def __init__(self, mean: Tensor, stddev: Tensor, logits: Sequence[Tensor] = ()) -> None:
        self.mean = mean
        self.stddev = stddev
        self.log_probs = [F.log_softmax(block, dim=-1) for block in logits]

    @classmethod
    def prior(cls, latents: LatentSpec, device: torch.device | str | None = None) -> CodeDistribution:
        """`N(0, I) × Π Cat(1/K_j)`, with batch shape ()."""
        return cls(
            torch.zeros(latents.continuous, device=device),
            torch.ones(latents.continuous, device=device),
            [torch.zeros(classes, device=device) for classes in latents.discrete],
        )

    @property
    def latents(self) -> LatentSpec:
        """The units that this is a distribution of."""
        return LatentSpec(self.mean.shape[-1], tuple(block.shape[-1] for block in self.log_probs))

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the batch of distributions."""
        return self.mean.shape[:-1]

    @property
    def probs(self) -> list[Tensor]:
        """Class probabilities of each categorical unit, `(*batch, K_j)`."""
        return [block.exp() for block in self.log_probs]

    @property
    def expectation(self) -> Tensor:
        """`E[code]`, `(*batch, size)`: means, then class probabilities. Not itself a code."""
        return torch.cat([self.mean, *self.probs], dim=-1)

    def __getitem__(self, index: int | slice | Tensor) -> CodeDistribution:
        """Select along the first batch dimension."""
        return CodeDistribution(
            self.mean[index], self.stddev[index], [block[index] for block in self.log_probs]
        )

    def to(self, device: torch.device | str) -> CodeDistribution:
        """The same distribution on another device."""
        return CodeDistribution(
            self.mean.to(device), self.stddev.to(device), [block.to(device) for block in self.log_probs]
        )

    def marginal(self, units: Sequence[str]) -> CodeDistribution:
        """Distribution of the named units alone, kept in the order of the code.

        Raises:
            KeyError: a unit that the code does not have.
        """
        latents = self.latents
        for unit in units:
            if unit not in latents.units:
                raise KeyError(f"no unit {unit!r}; the units are {', '.join(latents.units)}")
        real = [i for i, unit in enumerate(latents.continuous_units) if unit in units]
        return CodeDistribution(
            self.mean[..., real],
            self.stddev[..., real],
            [
                block
                for unit, block in zip(latents.discrete_units, self.log_probs, strict=True)
                if unit in units
            ],
        )

    def sample(self, shape: Sequence[int] = (), generator: torch.Generator | None = None) -> Tensor:
        """Exact codes `(*shape, *batch, size)`: the categorical blocks are one-hot."""
        with torch.no_grad():
            normal, gumbels = self.latents.split(self._noise(shape, generator))
            blocks = [
                F.one_hot((log_probs + gumbel).argmax(-1), log_probs.shape[-1]).to(log_probs.dtype)
                for log_probs, gumbel in zip(self.log_probs, gumbels, strict=True)
            ]
            return torch.cat([self.mean + self.stddev * normal, *blocks], dim=-1)

    def rsample(
        self, temperature: float | Tensor, shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Differentiable codes `(*shape, *batch, size)`, for training only: `reparameterized` fresh noise."""
        return self.reparameterized(self._noise(shape, generator), temperature)

    def reparameterized(self, noise: Tensor, temperature: float | Tensor) -> Tensor:
        """Differentiable codes made from `noise` `(…, size)` of `LatentSpec.noise`, for training only.

        Real units by reparameterisation (3.16); categorical blocks relaxed by Gumbel-Softmax at `temperature`
        (Jang et al. 2017; Maddison et al. 2017), so they are not one-hot.
        """
        normal, gumbels = self.latents.split(noise)
        blocks = [
            F.softmax((log_probs + gumbel) / temperature, dim=-1)
            for log_probs, gumbel in zip(self.log_probs, gumbels, strict=True)
        ]
        return torch.cat([self.mean + self.stddev * normal, *blocks], dim=-1)

    def log_prob(self, codes: Tensor) -> Tensor:
        """Log-density of exact codes `(…, size)`, summed over units: `(…)`, in nats."""
        return self.log_prob_per_unit(codes).sum(-1)

    def log_prob_per_unit(self, codes: Tensor) -> Tensor:
        """Log-density of each unit of exact codes `(…, size)`: `(…, D + J)`, in nats."""
        real, blocks = self.latents.split(codes)
        normal = -0.5 * ((real - self.mean) / self.stddev) ** 2 - self.stddev.log() - 0.5 * LOG_2PI
        categorical = [
            torch.where(code > 0, code * block, 0.0).sum(-1, keepdim=True)
            for code, block in zip(blocks, self.log_probs, strict=True)
        ]
        return torch.cat([normal, *categorical], dim=-1)

    def entropy(self) -> Tensor:
        """Entropy (differential for the real units), summed over units: `(*batch)`, in nats."""
        return self.entropy_per_unit().sum(-1)

    def entropy_per_unit(self) -> Tensor:
        """Entropy of each unit: `(*batch, D + J)`, in nats."""
        normal = self.stddev.log() + 0.5 * (LOG_2PI + 1)
        categorical = [-_expected(block, block) for block in self.log_probs]
        return torch.cat([normal, *categorical], dim=-1)

    def kl(self, other: CodeDistribution) -> Tensor:
        """`KL(self ‖ other)`, summed over units: `(*batch)`, in nats."""
        return self.kl_per_unit(other).sum(-1)

    def kl_per_unit(self, other: CodeDistribution) -> Tensor:
        """`KL(self ‖ other)` of each unit in closed form: `(*batch, D + J)`, in nats."""
        ratio = self.stddev / other.stddev
        shift = (self.mean - other.mean) / other.stddev
        normal = 0.5 * (ratio**2 + shift**2 - 1) - ratio.log()
        categorical = [
            _expected(block, block - reference)
            for block, reference in zip(self.log_probs, other.log_probs, strict=True)
        ]
        return torch.cat([normal, *categorical], dim=-1)

    def _noise(self, shape: Sequence[int], generator: torch.Generator | None) -> Tensor:
        return self.latents.noise(
            (*shape, *self.batch_shape), generator, device=self.mean.device, dtype=self.mean.dtype
        )


def _expected(log_probs: Tensor, values: Tensor) -> Tensor:
    """`Σ_k p_k v_k` over the last axis (kept, of length 1); a class of probability 0 counts as 0."""
    probs = log_probs.exp()
    return torch.where(probs > 0, probs * values, 0.0).sum(-1, keepdim=True)
