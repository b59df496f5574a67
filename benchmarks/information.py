"""The parts of the mutual-information estimate: log q̄, the fit of Q, the sandwich."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from vmivae.model import VAE, CodeDistribution, LatentSpec
from vmivae.mutual_information.aggregate import AggregatePosterior
from vmivae.mutual_information.bounds import sandwich
from vmivae.mutual_information.fit import QNetworkConfig, fit_q_network
from vmivae.mutual_information.pairs import sample_images
from vmivae.mutual_information.proposals import QProposer


def measure(
    repeats: int,
    device: str = "cpu",
    components: int = 4500,
    codes: int = 10_000,
    steps: int = 100,
    images: int = 16,
    proposals: int = 512,
) -> list[dict[str, object]]:
    """Median seconds of each part for an untrained convolutional VAE, and how much was done in them.

    log q̄ has a plain side: torch's own mixture of normals (so the code here has real units alone).

    Args:
        repeats: interleaved ones.
        device: a torch device.
        components: N of the aggregate posterior.
        codes: whose log q̄ is taken.
        steps: of the fit of Q, at batches of 256.
        images, proposals: of the sandwich; their product is the number of decoder evaluations.
    """
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(components, 10, generator=generator).to(device)
    stddev = torch.rand(components, 10, generator=generator).add(0.1).to(device)
    mixture = AggregatePosterior(CodeDistribution(mean, stddev))
    drawn = mixture.sample((codes,), torch.Generator(device).manual_seed(0))
    torchs = MixtureSameFamily(
        Categorical(logits=torch.zeros(components, device=device)), Independent(Normal(mean, stddev), 1)
    )

    def plain_log_prob() -> Tensor:
        return torch.cat([torchs.log_prob(block) for block in torch.split(drawn, 256)])

    model = VAE((1, 32, 32), LatentSpec(10, (10,))).to(device).eval()
    source = AggregatePosterior(
        CodeDistribution(mean, stddev, [torch.randn(components, 10, generator=generator).to(device)])
    )
    network, _ = fit_q_network(model, source, QNetworkConfig(steps=1), 0, device)
    posed = source.sample((images,), torch.Generator(device).manual_seed(0))
    shown = sample_images(model, posed)

    def fit() -> None:
        fit_q_network(model, source, QNetworkConfig(steps=steps), 0, device)

    def weigh() -> None:
        draws = torch.Generator(device).manual_seed(0)
        sandwich(model, QProposer(source, network), posed, shown, proposals, generator=draws)

    parts: dict[str, tuple[Callable[[], object], str]] = {
        "log q̄, torch's mixture": (plain_log_prob, f"{codes} codes × {components} components"),
        "log q̄": (lambda: mixture.log_prob(drawn), f"{codes} codes × {components} components"),
        "fit of Q": (fit, f"{steps} steps of 256 pairs"),
        "sandwich": (weigh, f"{images} images × {proposals} proposals"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(repeats):
        for name, (part, _) in parts.items():
            began = time.perf_counter()
            with torch.no_grad():
                part()
            if device == "cuda":
                torch.cuda.synchronize()
            seconds[name].append(time.perf_counter() - began)
    return [
        {"part": name, "work": work, "seconds": statistics.median(seconds[name])}
        for name, (_, work) in parts.items()
    ]
