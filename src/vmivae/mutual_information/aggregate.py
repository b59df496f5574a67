"""The aggregate posterior `q̄(z) = (1/N) Σ_n q(z|x_n)`: exact log-densities over all N images, in nats."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from vmivae.model.latents import LOG_2PI, CodeDistribution, LatentSpec
from vmivae.model.protocol import naming, require_posterior

BLOCK_ELEMENTS = 2**23
"""Most (code, component) pairs held at once: 64 MB in double precision."""
FARTHEST = 5.0
"""Standard deviations from its component that a code is thought to lie at most."""
ROUND_OFF = 0.01
"""Round-off of one log-density that is let pass, in nats at worst; its mean is far smaller."""
NEGLIGIBLE = -80.0
"""Logarithm of a component's share in a density that is lost in single precision, whatever N is."""
IMPOSSIBLE = -1e4
"""Stands for log 0 in a matrix product, where `0 × −∞` would be NaN."""


class AggregatePosterior:
    """Mixture of the posteriors of N images with equal weights (source of codes in 4.8).

    Args:
        components: `q(z|x_n)` with batch shape `(N,)`.

    Example:
        >>> posteriors = CodeDistribution(torch.zeros(7, 2), torch.ones(7, 2), logits=[torch.zeros(7, 10)])
        >>> mixture = AggregatePosterior(posteriors)
        >>> codes = mixture.sample((5,))
        >>> codes.shape, mixture.log_prob(codes).shape
        (torch.Size([5, 12]), torch.Size([5]))
    """

    def __init__(self, components: CodeDistribution) -> None:
        self.components = components
        mean, stddev = components.mean, components.stddev
        self._centre = mean.mean(0)
        mean = mean - self._centre
        wide = self._precision_needed(mean, stddev)
        mean, precision = mean.to(wide), stddev.to(wide) ** -2
        log_probs = [block.to(wide).clamp(min=IMPOSSIBLE) for block in components.log_probs]
        self._table = torch.cat([-0.5 * precision, mean * precision, *log_probs], dim=-1)
        self._constant = (
            -0.5 * (mean**2 * precision + LOG_2PI).sum(-1)
            - stddev.to(wide).log().sum(-1)
            - math.log(len(mean))
        )

    @classmethod
    def of(
        cls,
        posterior: Callable[[Tensor], CodeDistribution],
        images: Tensor,
        device: torch.device | str = "cpu",
        batch_size: int = 1024,
    ) -> AggregatePosterior:
        """Encode images `(N, *event)` in batches. uint8 pixels stand for `pixel/255`.

        Raises:
            ParameterError: `posterior` fails for the images or gives no distribution of codes for each.
        """
        parts: list[CodeDistribution] = []
        for batch in torch.split(images, batch_size):
            batch = batch.to(device)
            with torch.no_grad(), naming(f"model.posterior: fails for images of shape {tuple(batch.shape)}"):
                part = posterior(batch if batch.is_floating_point() else batch.float() / 255)
            require_posterior(part, parts[0].latents if parts else None, len(batch))
            parts.append(part)
        blocks = zip(*(part.log_probs for part in parts), strict=True)
        return cls(
            CodeDistribution(
                torch.cat([part.mean for part in parts]),
                torch.cat([part.stddev for part in parts]),
                [torch.cat(block) for block in blocks],
            )
        )

    def __len__(self) -> int:
        """Number of components, N."""
        return len(self.components.mean)

    @property
    def latents(self) -> LatentSpec:
        """The units that this is a distribution of."""
        return self.components.latents

    def marginal(self, units: Sequence[str]) -> AggregatePosterior:
        """Aggregate posterior of the named units alone.

        Raises:
            KeyError: a unit that the code does not have.
        """
        return AggregatePosterior(self.components.marginal(units))

    def sample(self, shape: Sequence[int] = (), generator: torch.Generator | None = None) -> Tensor:
        """Exact codes `(*shape, size)`: an image uniformly at random, then a code from its posterior."""
        return self.sample_with_component(shape, generator)[0]

    def sample_with_component(
        self, shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Exact codes `(*shape, size)`, and which image's posterior each came from, `(*shape)`."""
        device = self.components.mean.device
        component = torch.randint(len(self), (math.prod(shape),), generator=generator, device=device)
        codes = self.components[component].sample((), generator)
        return codes.reshape(*shape, -1), component.reshape(*shape)

    def log_prob(self, codes: Tensor) -> Tensor:
        """`log q̄(z)` of exact codes `(…, size)`: `(…)`, by log-sum-exp over all N components.

        `log q(z|x_n)` is linear in `(z², z, one-hots)`, so all components together are one matrix product;
        blocks of codes keep the memory bounded whatever N is.
        """
        flat = codes.reshape(-1, codes.shape[-1])
        rows = max(1, BLOCK_ELEMENTS // len(self))
        blocks = [self._log_prob(block) for block in torch.split(flat, rows)]
        return torch.cat(blocks).reshape(codes.shape[:-1]).to(codes.dtype)

    def log_responsibilities(self, codes: Tensor) -> Tensor:
        """`log p(n|z)`: which image's posterior exact codes `(M, size)` came from, `(M, N)`."""
        rows = max(1, BLOCK_ELEMENTS // len(self))
        return torch.cat([self._log_joint(block).log_softmax(-1) for block in torch.split(codes, rows)])

    def _log_prob(self, codes: Tensor) -> Tensor:
        joint = self._log_joint(codes)
        highest = joint.amax(-1, keepdim=True)
        # Relative to the highest term, single precision is enough, and its exponential much faster, where it
        # does not underflow.
        relative = joint.sub_(highest).float().clamp_(min=NEGLIGIBLE)
        return highest.squeeze(-1) + relative.exp_().sum(-1).log()

    def _log_joint(self, codes: Tensor) -> Tensor:
        """`log q(z|x_n) − log N`, `(M, N)`."""
        real, onehots = codes.tensor_split([self.latents.continuous], dim=-1)
        centred = (real - self._centre).to(self._table.dtype)
        statistics = torch.cat([centred**2, centred, onehots.to(self._table.dtype)], dim=-1)
        return torch.addmm(self._constant, statistics, self._table.T)

    @staticmethod
    def _precision_needed(mean: Tensor, stddev: Tensor) -> torch.dtype:
        """Round-off of the quadratic forms grows with (distance / stddev)²: single where that is small."""
        reach = (mean.abs() + FARTHEST * stddev).amax(0)
        largest = float(((reach / stddev) ** 2).sum(-1).max())
        exact = largest * torch.finfo(torch.float32).eps < ROUND_OFF
        return torch.float32 if exact or mean.device.type == "mps" else torch.float64
