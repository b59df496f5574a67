"""How much the codes of a fixed model know about its images: `I_r(z; x̃)`, total, per unit and per group."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from vmivae.errors import ParameterError
from vmivae.model.fixed import measured
from vmivae.model.latents import CodeDistribution, LatentSpec
from vmivae.model.protocol import LatentVariableModel
from vmivae.mutual_information.aggregate import AggregatePosterior
from vmivae.mutual_information.bounds import Mean, barber_agakov, mean, require_possible
from vmivae.mutual_information.pairs import (
    DECODE_BLOCK,
    CodeSource,
    sample_images,
    seeded,
)
from vmivae.mutual_information.q_network import (
    FitRecord,
    Progress,
    QNetwork,
    QNetworkConfig,
    fit_q_network,
)

CODES = ("posterior", "prior")
NEAR_LIMIT = 0.5
"""Nats below log N within which the encoder's information says little but that N is small."""


@dataclass(frozen=True)
class EstimateConfig:
    """`mutual_information` of params.yaml.

    Args:
        codes: where codes come from. `posterior`: `r = q̄`, the aggregate posterior over the given images
            (4.8); `prior`: `r = p` (4.7).
        q_network: the Q-network and its fit.
        samples: fresh pairs (code, image) that the bound is evaluated on.

    Raises:
        ParameterError: a value that is not accepted.
    """

    codes: str = "posterior"
    q_network: QNetworkConfig = field(default_factory=QNetworkConfig)
    samples: int = 10_000

    def __post_init__(self) -> None:
        if self.codes not in CODES:
            raise ParameterError(
                f"mutual_information.codes: must be one of {', '.join(CODES)}, got {self.codes}"
            )
        if self.samples < 2:
            raise ParameterError(f"mutual_information.samples: must be ≥ 2, got {self.samples}")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> EstimateConfig:
        """From the keys of params.yaml (without `split`, which says whose images are given to `estimate`)."""
        nested = {**values}
        if "q_network" in nested:
            nested["q_network"] = QNetworkConfig.from_dict(nested["q_network"])
        return cls(**nested)


@dataclass(frozen=True)
class Estimate:
    """Information of a fixed model, in nats, with standard errors.

    Attributes:
        codes: where codes came from, `posterior` or `prior`.
        lower, lower_se: lower bound of `I_r(z; x̃)`.
        upper, upper_se, gap_se: upper bound, and the standard error of `upper − lower`; None where there
            is none.
        barber_agakov, barber_agakov_se: the Barber–Agakov bound (4.4).
        entropy, entropy_se: `H_r(z)`, differential for real units.
        per_unit: `{"z0": {"lower", "se", "entropy"}, …}`: `H_r(z_j) + E[log Q_j(z_j|x̃)]` and `H_r(z_j)`.
            Their sum is not the total.
        groups: likewise for the `continuous` and the `discrete` units together.
        encoder_information, encoder_information_se: `I_q(x; z) = E[log q(z|x) − log q̄(z)]`; this and what
            follows for posterior codes only.
        encoder_limit: `log N`, the most that it can be.
        rate: `E KL(q(z|x) ‖ p(z))` over the N images, in closed form.
        marginal_kl, marginal_kl_se: `KL(q̄ ‖ p)`; `rate = I_q + KL(q̄ ‖ p)` up to sampling noise.
        images: N, or None for prior codes.
        samples: pairs that the bounds are means over.
        warnings: what a reader must know before trusting a number.
        q_network, history: Q and the history of its fit, empty where Q was given. Not in `to_dict`.
    """

    codes: str
    lower: float
    lower_se: float
    upper: float | None
    upper_se: float | None
    gap_se: float | None
    barber_agakov: float
    barber_agakov_se: float
    entropy: float
    entropy_se: float
    per_unit: dict[str, dict[str, float]]
    groups: dict[str, dict[str, float]]
    encoder_information: float | None
    encoder_information_se: float | None
    encoder_limit: float | None
    rate: float | None
    marginal_kl: float | None
    marginal_kl_se: float | None
    images: int | None
    samples: int
    warnings: list[str]
    q_network: QNetwork = field(repr=False, compare=False)
    history: list[FitRecord] = field(repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain values under the names of the fields, for JSON."""
        return {name: value for name, value in vars(self).items() if name not in ("q_network", "history")}

    def rows(self) -> list[dict[str, float | str]]:
        """One row for the total, each group and each unit: the lower bound also in bits."""
        total = {"lower": self.lower, "se": self.lower_se, "entropy": self.entropy}
        return [
            {
                "unit": unit,
                "lower": part["lower"],
                "lower_se": part["se"],
                "lower_bits": part["lower"] / math.log(2),
                "lower_bits_se": part["se"] / math.log(2),
                "entropy": part["entropy"],
            }
            for unit, part in {"total": total, **self.groups, **self.per_unit}.items()
        ]


def estimate(
    model: LatentVariableModel,
    images: Tensor | None = None,
    config: EstimateConfig | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: Progress | None = None,
    q_network: QNetwork | None = None,
) -> Estimate:
    """Estimate `I_r(z; x̃)` of a fixed model, `z ~ r`, `x̃ ~ p(x|z)`.

    The model is measured in evaluation mode and left as it was, bit for bit; so are torch's global random
    state and its gradient mode.

    Args:
        model: any `LatentVariableModel`, trained here or not.
        images: the N images whose posteriors make q̄, `(N, *event)`; floats, or uint8 pixels that stand for
            `pixel/255`. Needed with `codes: posterior` only.
        config: what to estimate, and with how much effort.
        seed: of every draw.
        device: a torch device, or `auto`: for an `nn.Module` CUDA or Apple's MPS where there is one, for
            another object where its prior is.
        progress: called with what is done, how far it is, how much there is, and a few words.
        q_network: a Q to use as it is, in place of fitting one.

    Raises:
        ParameterError: `images` missing, empty or without a posterior to read them; a Q for other units; a
            device that is not there.
        NonFiniteError: the fit of Q failed.
        ImpossibleEstimateError: a value that only a fault can explain, beyond four standard errors.
    """
    config = config or EstimateConfig()
    with torch.inference_mode(False), torch.no_grad(), measured(model, device) as place:
        source = _source(model, images, config.codes, place)
        history: list[FitRecord] = []
        if q_network is None:
            q_network, history = fit_q_network(model, source, config.q_network, seed, str(place), progress)
        elif q_network.latents != source.latents:
            raise ParameterError(f"q_network: is for {q_network.latents}, the model has {source.latents}")
        with seeded(seed, "evaluation pairs", place) as generator:
            pairs = _score(model, source, q_network.to(place), config.samples, generator, progress)
        return _summarize(config, model.prior.to(place), source, pairs, q_network, history)


@dataclass
class _Scores:
    """What is kept of the fresh pairs: no image, so that memory does not grow with them."""

    codes: Tensor
    component: Tensor | None
    log_q: Tensor
    log_q_per_unit: Tensor


def _source(
    model: LatentVariableModel, images: Tensor | None, codes: str, device: torch.device
) -> CodeSource:
    """`r(z)`: the prior, or the aggregate posterior of the images."""
    if codes == "prior":
        return model.prior.to(device)
    if images is None or len(images) == 0:
        raise ParameterError(
            "images: at least one is needed with mutual_information.codes: posterior, got none"
        )
    posterior = getattr(model, "posterior", None)
    if posterior is None:
        raise ParameterError(
            "mutual_information.codes: posterior needs a model with posterior(images), which this one lacks; "
            "codes: prior does not"
        )
    return AggregatePosterior.of(posterior, images, device)


def _score(
    model: LatentVariableModel,
    source: CodeSource,
    network: QNetwork,
    samples: int,
    generator: torch.Generator,
    progress: Progress | None,
) -> _Scores:
    """Draw pairs that Q was not fitted on, and score them under Q."""
    if isinstance(source, AggregatePosterior):
        codes, component = source.sample_with_component((samples,), generator)
    else:
        codes, component = source.sample((samples,), generator), None
    log_q = []
    for start in range(0, samples, DECODE_BLOCK):
        block = codes[start : start + DECODE_BLOCK]
        log_q.append(network(sample_images(model, block)).log_prob_per_unit(block))
        if progress:
            progress("evaluating the bound", start + len(block), samples, "")
    per_unit = torch.cat(log_q)
    return _Scores(codes, component, per_unit.sum(-1), per_unit)


def _summarize(
    config: EstimateConfig,
    prior: CodeDistribution,
    source: CodeSource,
    scores: _Scores,
    network: QNetwork,
    history: list[FitRecord],
) -> Estimate:
    latents = source.latents
    log_r = source.log_prob(scores.codes)
    total = barber_agakov(scores.log_q, log_r)
    entropy = mean(-log_r)
    warnings: list[str] = []
    encoder: Mean | None = None
    marginal: Mean | None = None
    rate = count = None
    if isinstance(source, AggregatePosterior) and scores.component is not None:
        count = len(source)
        encoder = mean(source.components[scores.component].log_prob(scores.codes) - log_r)
        marginal = mean(log_r - prior.log_prob(scores.codes))
        rate = float(source.components.kl(prior).double().mean())
        require_possible("encoder information I_q(x; z)", encoder, lowest=0.0, highest=math.log(count))
        require_possible("marginal KL(q̄ ‖ p)", marginal, lowest=0.0)
        if encoder.value > math.log(count) - NEAR_LIMIT:
            warnings.append(
                f"The encoder's information, {encoder.value:.2f} nats, is near its limit log N = "
                f"{math.log(count):.2f} for N = {count} images: it says only that N is too small to measure "
                "it. The bounds on I_r(z; x) have no such limit."
            )
    per_unit = {unit: _part(source, scores, [unit]) for unit in latents.units}
    groups = {
        name: _part(source, scores, units)
        for name, units in (("continuous", latents.continuous_units), ("discrete", latents.discrete_units))
        if units
    }
    for unit, classes in zip(latents.discrete_units, latents.discrete, strict=True):
        part = per_unit[unit]
        require_possible(f"information of {unit}", Mean(part["lower"], part["se"]), highest=math.log(classes))
    if latents.discrete:
        part = groups["discrete"]
        highest = latents.max_discrete_entropy
        require_possible(
            "information of the discrete units", Mean(part["lower"], part["se"]), highest=highest
        )
        if not latents.continuous:
            require_possible("information of the codes", total, highest=highest)
    require_possible("the Barber–Agakov bound", total)
    return Estimate(
        codes=config.codes,
        lower=total.value,
        lower_se=total.se,
        upper=None,
        upper_se=None,
        gap_se=None,
        barber_agakov=total.value,
        barber_agakov_se=total.se,
        entropy=entropy.value,
        entropy_se=entropy.se,
        per_unit=per_unit,
        groups=groups,
        encoder_information=encoder.value if encoder else None,
        encoder_information_se=encoder.se if encoder else None,
        encoder_limit=math.log(count) if count else None,
        rate=rate,
        marginal_kl=marginal.value if marginal else None,
        marginal_kl_se=marginal.se if marginal else None,
        images=count,
        samples=config.samples,
        warnings=warnings,
        q_network=network,
        history=history,
    )


def _part(source: CodeSource, scores: _Scores, units: Sequence[str]) -> dict[str, float]:
    """Lower bound `H_r(z_A) + E[log Q_A(z_A|x̃)]` for the units A, and the marginal entropy of A."""
    latents: LatentSpec = source.latents
    chosen = [latents.units.index(unit) for unit in units]
    columns = torch.cat([torch.arange(latents.size)[latents.columns[unit]] for unit in units])
    log_r = source.marginal(units).log_prob(scores.codes[:, columns.to(scores.codes.device)])
    lower = barber_agakov(scores.log_q_per_unit[:, chosen].sum(-1), log_r)
    return {"lower": lower.value, "se": lower.se, "entropy": mean(-log_r).value}
