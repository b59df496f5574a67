"""InfoNCE with the known likelihood as its critic: the rival that needs no Q. All in nats."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Distribution
from torch.nn.functional import softplus

from vmivae.model import CodeDistribution, LatentVariableModel
from vmivae.mutual_information import AggregatePosterior

CODES_AT_ONCE = 256
IMAGES_AT_ONCE = 128

CodeSource = CodeDistribution | AggregatePosterior
Progress = Callable[[str, int, int, str], None]


@dataclass(frozen=True)
class InfoNCE:
    """Bounds of `I_r(z; x̃)` from codes drawn without a look at the image.

    Attributes:
        lower, lower_se: InfoNCE, at most `log batch` whatever the information is.
        upper, upper_se: its leave-one-out counterpart, an upper bound in expectation.
        batch: B, the codes that each image was compared with, its own included.
        images: that the bounds are means over.
    """

    lower: float
    lower_se: float
    upper: float
    upper_se: float
    batch: int
    images: int


def info_nce(
    model: LatentVariableModel,
    source: CodeSource,
    images: int = 2048,
    batch: int = sys.maxsize,
    seconds: float = math.inf,
    seed: int = 0,
    progress: Progress | None = None,
) -> InfoNCE:
    """`E[log p(x̃|z_1) − log (1/B) Σ_b p(x̃|z_b)]`, `z_1` the code of `x̃`, `z_2..B ~ r`.

    With the likelihood as the critic this is the best that InfoNCE can do (van den Oord et al. 2018; Poole
    et al. 2019, section 2.5). Without `z_1` in the mean, and `B − 1` in place of B, it is an upper bound.
    All images share the codes `z_2..B`: of one batch of InfoNCE the first `images` rows.

    Args:
        model: its likelihood.
        source: `r(z)`.
        images: rows.
        batch: B, at least 2; smaller where the time is up.
        seconds: after which no further block of codes is drawn.
        seed: of every draw.
        progress: called with what is done, how far it is, how much there is, and a few words.
    """
    began = time.perf_counter()
    with torch.no_grad(), torch.random.fork_rng([]):
        torch.manual_seed(seed)
        generator = torch.Generator().manual_seed(seed)
        codes = source.sample((images,), generator)
        drawn = model.likelihood(codes).sample()
        parts = torch.split(drawn, IMAGES_AT_ONCE)
        own = model.likelihood(codes).log_prob(drawn).double()
        others, log_sum = 0, torch.full_like(own, -math.inf)
        while others < batch - 1 and (others == 0 or time.perf_counter() - began < seconds):
            count = min(CODES_AT_ONCE, batch - 1 - others)
            likelihood = model.likelihood(source.sample((count,), generator))
            log_p = torch.cat([log_prob_of_pairs(likelihood, part).double() for part in parts])
            log_sum = torch.logaddexp(log_sum, log_p.logsumexp(-1))
            others += count
            spent = time.perf_counter() - began
            if progress and spent < seconds < math.inf:
                progress("InfoNCE", int(spent), math.ceil(seconds), f"batch {others + 1}")
    lower = own - torch.logaddexp(own, log_sum) + math.log(others + 1)
    upper = own - log_sum + math.log(others)
    return InfoNCE(*_mean(lower), *_mean(upper), others + 1, images)


def log_prob_of_pairs(likelihood: Distribution, images: Tensor) -> Tensor:
    """`log p(x_i|z_j)` of every image `(M, *event)` under every code of a batch `(B,)`: `(M, B)`."""
    pixel = getattr(likelihood, "base_dist", None)
    if isinstance(pixel, Bernoulli):
        # One matrix product, many times faster: log p = x · logits − Σ log(1 + exp(logits)).
        logits = pixel.logits.flatten(1)
        return images.flatten(1) @ logits.T - softplus(logits).sum(-1)
    return likelihood.log_prob(images[:, None])


def _mean(values: Tensor) -> tuple[float, float]:
    """Mean and its standard error."""
    return float(values.mean()), float(values.std()) / math.sqrt(len(values))
