"""Information maximisation: the VAE is trained to make chosen units predictable from what it draws.

To the objective is added `λ_c·Σ_j (H_r(z_j) + E log Q(z_j|x̃))` over the chosen real units, and likewise
with `λ_d` over the chosen categorical ones (the thesis's framework; InfoGAN's for prior codes, Chen et al.
2016). Q is trained beside the VAE on the same images. The sum is a surrogate: its gradient is biased, its Q
unfinished, its units counted one by one. What was learned is for `mutual_information` to say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vmivae.checkpoint import State
from vmivae.errors import ParameterError
from vmivae.model import VAE, CodeDistribution, LatentSpec
from vmivae.model.likelihoods import pixels_from_uniform
from vmivae.model.networks import seeded_initialization
from vmivae.model.q_network import QNetwork


@dataclass(frozen=True)
class Information:
    """What the objective adds for information.

    Attributes:
        continuous: λ_c, the weight of the chosen real units; 0 where none is chosen.
        discrete: λ_d, the weight of the chosen categorical units; 0 where none is chosen.
        units: the chosen units, in the order of the code.
        codes: where the decoded codes come from: `prior`, or `posterior` of the batch's images.
    """

    continuous: float
    discrete: float
    units: tuple[str, ...]
    codes: Literal["prior", "posterior"] = "prior"

    @property
    def weights(self) -> dict[str, float]:
        """λ by kind of unit, `continuous` and `discrete`, of the kinds that take part."""
        both = {"continuous": self.continuous, "discrete": self.discrete}
        return {kind: weight for kind, weight in both.items() if weight}


def make_information(
    latents: LatentSpec,
    continuous: float = 0.0,
    discrete: float = 0.0,
    units: Literal["all"] | Sequence[str] = "all",
    codes: Literal["prior", "posterior"] = "prior",
) -> Information | None:
    """What the block `objective.information` of params.yaml describes; None where both weights are 0.

    Args:
        latents: the units of a code.
        continuous: λ_c ≥ 0.
        discrete: λ_d ≥ 0.
        units: the units to be made predictable; `all` is every unit of a kind whose weight is not 0.
        codes: `prior` or `posterior`.

    Raises:
        ParameterError: a unit that the code does not have or whose weight is 0, or a weight without a unit.
    """
    chosen: list[str] = []
    for kind, weight, names in (
        ("continuous", continuous, latents.continuous_units),
        ("discrete", discrete, latents.discrete_units),
    ):
        wanted = [name for name in names if (weight if units == "all" else name in units)]
        if bool(weight) != bool(wanted):
            raise ParameterError(
                f"objective.information.{kind}: must be "
                + ("0 without a chosen unit of that kind" if weight else f"> 0 for {', '.join(wanted)}")
                + f", got {weight}"
            )
        chosen += wanted
    if units != "all" and (unknown := [unit for unit in units if unit not in latents.units]):
        raise ParameterError(
            f"objective.information.units: must be of {', '.join(latents.units)}, got {unknown[0]}"
        )
    return Information(continuous, discrete, tuple(chosen), codes) if chosen else None


class Surrogate(nn.Module):
    """`Σ_j (H_r(z_j) + E log Q(z_j|x̃))` of the chosen units of a batch, and the Q-network in it.

    Q reads samples `x̃ ~ p(x|z)` of exact codes. Given the decoder's means instead, it would read differences
    far too faint to survive in a sample. Real units and grey pixels are reparameterised. Black or white
    pixels pass the gradient of their means (straight-through, Bengio et al. 2013). Classes drawn by the
    encoder are credited with what came of them (score function, Williams 1992): the gradient of relaxed or
    straight-through codes favours whatever class was drawn, which ends with one class for all images.

    Args:
        latents: the units of a code.
        image_shape: `(C, H, W)`.
        information: what is chosen.
        seed: of Q's initial weights and of the noise.
        device: where codes and images are.
    """

    def __init__(
        self,
        latents: LatentSpec,
        image_shape: tuple[int, int, int],
        information: Information,
        seed: int,
        device: torch.device,
    ) -> None:
        super().__init__()
        self.latents, self.image_shape, self.information = latents, image_shape, information
        self.columns = latents.columns_of(information.units)
        weights, noises = torch.randint(2**62, (2,), generator=torch.Generator().manual_seed(seed)).tolist()
        with seeded_initialization(weights):
            chosen = CodeDistribution.prior(latents).marginal(information.units).latents
            self.q_network = QNetwork(image_shape, chosen).to(device)
        self.generator = torch.Generator(device).manual_seed(noises)

    def noise(self, count: int) -> tuple[Tensor, Tensor]:
        """What a batch is drawn with: noise of its codes `(B, size)` and of its pixels `(B, C, H, W)`."""
        device = self.generator.device
        codes = self.latents.noise((count,), self.generator, device=device)
        return codes, torch.rand(count, *self.image_shape, generator=self.generator, device=device)

    def state(self) -> State:
        """Q's weights and the state of the noise, for a checkpoint."""
        return {"weights": self.q_network.state_dict(), "noises": self.generator.get_state()}

    def restore(self, state: State) -> None:
        """Put back what `state` gave."""
        self.q_network.load_state_dict(state["weights"])
        self.generator.set_state(state["noises"])

    def forward(
        self, model: VAE, posterior: CodeDistribution, relaxed: Tensor, noise: tuple[Tensor, Tensor]
    ) -> Tensor:
        """The surrogate in nats: `(n,)`, the kinds of unit in `information.weights`; one decoder pass.

        Args:
            model: the VAE, whose decoder gets a gradient; with posterior codes its encoder too.
            posterior: `q(z|x)` of the batch's images.
            relaxed: the codes that were drawn from it, with relaxed categorical units, `(B, size)`.
            noise: what `noise` gave for as many codes.
        """
        of_codes, of_pixels = noise
        if self.information.codes == "prior":
            relaxed = model.prior.reparameterized(of_codes, temperature=1.0)
        codes = exact(relaxed, self.latents)
        q = self.q_network(pixels_from_uniform(model.likelihood(codes), of_pixels))
        chosen = codes[:, self.columns]
        if self.information.codes == "prior":
            log_r = CodeDistribution.prior(q.latents, codes.device).log_prob_per_unit(chosen)
        else:
            log_r = log_mixture_per_unit(posterior.marginal(self.information.units), chosen)
        per_unit = q.log_prob_per_unit(chosen) - log_r
        kinds = per_unit.tensor_split([q.latents.continuous], dim=-1)
        value = torch.stack([kind.sum(-1) for kind in kinds if kind.shape[-1]], dim=-1)
        if self.information.codes == "posterior":
            value = value + credit(value, posterior, codes)
        return value.mean(0)


def exact(relaxed: Tensor, latents: LatentSpec) -> Tensor:
    """Codes `(B, size)` whose categorical units are one-hot, at the largest entry of the relaxed ones."""
    real, blocks = latents.split(relaxed)
    onehots = [F.one_hot(block.argmax(-1), block.shape[-1]).to(block.dtype) for block in blocks]
    return torch.cat([real, *onehots], dim=-1)


def credit(value: Tensor, posterior: CodeDistribution, codes: Tensor) -> Tensor:
    """Zeros whose gradient makes classes likelier that were drawn where `value` came out high, `(B, n)`.

    The score-function estimator (Williams 1992), with the mean of the other images as the baseline.

    Args:
        value: of each image, `(B, n)`.
        posterior: `q(z|x)` of each image.
        codes: the exact codes drawn from it, `(B, size)`.
    """
    score = posterior.log_prob_per_unit(codes)[:, posterior.latents.continuous :].sum(-1, keepdim=True)
    better = (value - value.mean(0)) * len(value) / max(len(value) - 1, 1)
    return better.detach() * (score - score.detach())


def log_mixture_per_unit(components: CodeDistribution, codes: Tensor) -> Tensor:
    """`log q̄_j(z_j)` under the mixture of a batch's posteriors, `(B, D + J)`: minus its mean is `H(q̄(z_j))`.

    Without it, or without its gradient, codes that merely shrink, or all fall into one class, would be
    rewarded: their `log Q` grows. In expectation a unit is credited with at most log B nats.

    Args:
        components: `q(z|x_n)` of the batch, batch shape `(B,)`.
        codes: one exact code from each, `(B, size)`.
    """
    return components.log_prob_per_unit(codes[:, None]).logsumexp(1) - math.log(len(codes))
