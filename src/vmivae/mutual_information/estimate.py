"""How much the codes of a fixed model know about its images: `I_r(z; x̃)`, total, per unit and per group."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from vmivae.checkpoint import NO_CHECKPOINT, Checkpoint
from vmivae.errors import ParameterError
from vmivae.model.fixed import measured
from vmivae.model.latents import CodeDistribution
from vmivae.model.protocol import (
    LatentVariableModel,
    require_likelihood,
    require_posterior,
    require_prior,
)
from vmivae.model.q_network import QNetwork
from vmivae.mutual_information.adapted import AdaptedProposer, Family, StudentFamily, TiltFamily
from vmivae.mutual_information.aggregate import AggregatePosterior
from vmivae.mutual_information.bounds import (
    Mean,
    Sandwich,
    barber_agakov,
    mean,
    require_possible,
    sandwich,
)
from vmivae.mutual_information.evidence import LogEvidence, log_evidence
from vmivae.mutual_information.fit import FitRecord, QNetworkConfig, fit_q_network
from vmivae.mutual_information.pairs import DECODE_BLOCK, CodeSource, in_blocks, sample_images, seeded
from vmivae.mutual_information.plan import (
    Interval,
    Plan,
    choose,
    combine,
    curve,
    pilot_size,
    single_level,
    with_control,
)
from vmivae.mutual_information.proposals import (
    Proposer,
    QProposer,
    TiltedProposer,
    best_proposer,
    calibration_pairs,
)
from vmivae.progress import Progress

CODES = ("posterior", "prior")
FEW_EFFECTIVE = 10.0
MANY_DOMINATED = 0.1
"""Share of images dominated by one weight, above which the weights are warned of."""
FEWEST_OF_PART = 64
"""Images that the two-sided interval of a group or unit is a mean over, where no fewer are asked for."""
POOR_PROPOSALS = {
    "q_network": ("Q fits poorly", "more q_network.steps, q_network.family: flow"),
    "adapted_q_network": (
        "The proposals fitted to each image miss many codes that could have made it",
        "more q_network.steps, q_network.family: flow",
    ),
    "adapted_aggregate_posterior": (
        "The proposals fitted to each image miss many codes that could have made it",
        "more q_network.steps",
    ),
    "aggregate_posterior": (
        "The aggregate posterior, tilted by what Q reads of an image, seldom proposes the codes that could "
        "have made it",
        "more q_network.steps",
    ),
}
"""What is at fault where the weights are uneven, by what proposed the codes, and what helps."""
MOSTLY_SPENT = 0.9
"""Share of a budget from which it is the budget that an interval lacks."""
MOST_OF_ONE_PAIR = 0.2
"""Share of one pair in the variance of the Barber–Agakov bound beyond which its error is not known."""
NEGLIGIBLE = 0.02
"""Nats of standard error that are no reason for a warning."""
NEAR_LIMIT = 0.5
"""Nats below log N within which the encoder's information says little but that N is small."""


@dataclass(frozen=True)
class ImportanceConfig:
    """`mutual_information.importance` of params.yaml: the effort spent on the two-sided interval.

    Args:
        images, samples: their product is the budget of the total interval, in decoder evaluations. A pilot
            decides how it is divided between images and proposals; a budget too small for one is spent as
            named. The two-sided interval of a group or unit takes a quarter of it.
        width: total width to aim at, `(U + 2 se) − (L − 2 se)` in nats: no more of the budget is spent than
            that needs. None: the narrowest interval that the budget buys.
        units: which units get a two-sided interval: `categorical` ones, or `all`. Groups always do.

    Raises:
        ParameterError: a value that is not accepted.
    """

    images: int = 256
    samples: int = 1024
    width: float | None = None
    units: str = "categorical"

    def __post_init__(self) -> None:
        for key, least in (("images", 4), ("samples", 1)):
            value = getattr(self, key)
            if not isinstance(value, int) or value < least:
                raise ParameterError(
                    f"mutual_information.importance.{key}: must be a whole number ≥ {least}, got {value}"
                )
        if self.width is not None and not 0 < self.width < math.inf:
            raise ParameterError(
                f"mutual_information.importance.width: must be > 0 or null, got {self.width}"
            )
        if self.units not in ("categorical", "all"):
            raise ParameterError(
                f"mutual_information.importance.units: must be one of categorical, all, got {self.units}"
            )


@dataclass(frozen=True)
class EstimateConfig:
    """`mutual_information` of params.yaml.

    Args:
        codes: where codes come from. `posterior`: `r = q̄`, the aggregate posterior over the given images
            (4.8); `prior`: `r = p` (4.7).
        q_network: the Q-network and its fit.
        samples: fresh pairs (code, image) that the Barber–Agakov bound is evaluated on.
        importance: of the two-sided interval; None for the Barber–Agakov bound alone.

    Raises:
        ParameterError: a value that is not accepted.
    """

    codes: str = "posterior"
    q_network: QNetworkConfig = field(default_factory=QNetworkConfig)
    samples: int = 10_000
    importance: ImportanceConfig | None = field(default_factory=ImportanceConfig)

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
        if nested.get("importance") is not None:
            nested["importance"] = ImportanceConfig(**nested["importance"])
        return cls(**nested)


@dataclass(frozen=True)
class Estimate:
    """Information of a fixed model, in nats, with standard errors.

    Attributes:
        codes: where codes came from, `posterior` or `prior`.
        lower, lower_se: lower bound of `I_r(z; x̃)`: `L_K`, or Barber–Agakov where no interval was asked for.
        upper, upper_se: upper bound `U_K`; it and the rest of the interval are None where none was asked for.
        gap, gap_se: `upper − lower`, which has much less noise than either.
        width: of what is claimed, `(upper + 2 se) − (lower − 2 se)`.
        width_target, width_met: the width that was asked for, if any, and whether it was reached.
        proposal: what proposed the codes: `q_network`, or `aggregate_posterior` tilted by it; `adapted_…`
            where that was fitted to each image.
        decodes: decoder evaluations spent on the total interval, the pilot's included.
        levels: `{"coarse", "fine", "images", "slope"}` of each level of the multilevel estimate, and the
            `proposal` and `decodes`.
        curve: both bounds with standard errors at K = 1, 2, 4, …, from the images of the last level; without
            an interval the Barber–Agakov bound at K = 1 alone.
        effective_sample_size: median and least over these images, of the weights of the largest K.
        largest_weight: median and greatest share of one weight in their sum.
        barber_agakov, barber_agakov_se: the Barber–Agakov bound (4.4) of Q alone.
        entropy, entropy_se: `H_r(z)`, differential for real units.
        per_unit: `{"z0": {"lower", "se", "entropy", "barber_agakov", "barber_agakov_se"}, …}`; `upper` and
            `upper_se` too where the interval has two sides. Their sum is not the total.
        groups: likewise for the `continuous` and the `discrete` units together.
        encoder_information, encoder_information_se: `I_q(x; z) = E[log q(z|x) − log q̄(z)]`; this and what
            follows for posterior codes only.
        encoder_limit: `log N`, the most that it can be.
        rate: `E KL(q(z|x) ‖ p(z))` over the N images, in closed form.
        marginal_kl, marginal_kl_se: `KL(q̄ ‖ p)`; `rate = I_q + KL(q̄ ‖ p)` up to sampling noise.
        images: N, or None for prior codes.
        samples: pairs that the Barber–Agakov bound is a mean over.
        warnings: what a reader must know before trusting a number.
        q_network, history: Q and the history of its fit, empty where Q was given. Not in `to_dict`.
    """

    codes: str
    lower: float
    lower_se: float
    upper: float | None
    upper_se: float | None
    gap: float | None
    gap_se: float | None
    width: float | None
    width_target: float | None
    width_met: bool | None
    proposal: str | None
    decodes: int | None
    levels: list[dict[str, float]]
    curve: list[dict[str, float | None]]
    effective_sample_size: dict[str, float] | None
    largest_weight: dict[str, float] | None
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

    def rows(self) -> list[dict[str, float | str | None]]:
        """One row for the total, each group and each unit; bounds also in bits, None where there is none."""
        total = {"lower": self.lower, "se": self.lower_se, "entropy": self.entropy}
        if self.upper is not None and self.upper_se is not None:
            total |= {"upper": self.upper, "upper_se": self.upper_se}
        total |= {"barber_agakov": self.barber_agakov, "barber_agakov_se": self.barber_agakov_se}
        return [
            {
                "unit": unit,
                "lower": part["lower"],
                "lower_se": part["se"],
                "upper": part.get("upper"),
                "upper_se": part.get("upper_se"),
                "lower_bits": part["lower"] / math.log(2),
                "upper_bits": part["upper"] / math.log(2) if "upper" in part else None,
                "barber_agakov": part["barber_agakov"],
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
    checkpoint: Checkpoint = NO_CHECKPOINT,
) -> Estimate:
    """Estimate `I_r(z; x̃)` of a fixed model, `z ~ r`, `x̃ ~ p(x|z)`.

    The model is measured in evaluation mode and left as it was, bit for bit; so are torch's global random
    state and its gradient mode.

    Args:
        model: any `LatentVariableModel`, trained here or not.
        images: the N images whose posteriors make q̄, `(N, *event)`; floats, or uint8 pixels that stand for
            `pixel/255`. Needed with `codes: posterior` only.
        config: what to estimate, and with how much effort; None for the defaults, with posterior codes where
            images are given and prior codes where none are.
        seed: of every draw.
        device: a torch device, or `auto`: for an `nn.Module` CUDA or Apple's MPS where there is one, for
            another object where its prior is.
        progress: called with what is done, how far it is, how much there is, and a few words.
        q_network: a Q to use as it is, in place of fitting one.
        checkpoint: what it holds is not computed again, and the result is the same.

    Raises:
        ParameterError: `images` missing, empty, no tensor, not finite, or without a posterior to read them; a
            Q for other units; a device that is not there; a prior, likelihood or posterior that does not fit.
        NonFiniteError: the fit of Q failed.
        ImpossibleEstimateError: a value that only a fault can explain, beyond four standard errors.
        Interrupted: a signal came; what was reached is in `checkpoint`.
    """
    if images is not None:
        _require_images(images)
    config = config or EstimateConfig(codes="prior" if images is None else "posterior")
    if not isinstance(config, EstimateConfig):
        raise ParameterError(
            f"config: must be an EstimateConfig, got {type(config).__name__} (see EstimateConfig.from_dict)"
        )
    require_prior(model)
    with torch.inference_mode(False), torch.no_grad(), measured(model, device) as place:
        with seeded(seed, "trial of the likelihood", place) as generator:
            require_likelihood(model, model.prior.to(place).sample((4,), generator))
        source = _source(model, images, config.codes, place)
        history: list[FitRecord] = []
        if q_network is None:
            q_network, history = fit_q_network(
                model, source, config.q_network, seed, str(place), progress, checkpoint
            )
        elif q_network.latents != source.latents:
            raise ParameterError(f"q_network: is for {q_network.latents}, the model has {source.latents}")
        network = q_network.to(place)
        bench = _Bench(model, source, network, seed, place, progress, checkpoint)
        return _Estimation(bench, config, model.prior.to(place)).result(history)


@dataclass(frozen=True)
class _Bench:
    """A model on the bench, with its codes' source and Q. Each stream of draws is independent."""

    model: LatentVariableModel
    source: CodeSource
    network: QNetwork
    seed: int
    device: torch.device
    progress: Progress | None
    checkpoint: Checkpoint

    def proposers(self) -> tuple[Proposer, AdaptedProposer | None]:
        """A proposer, and the one that begins with it and is fitted to each image, where that is worth it."""
        family: Family | None = None
        base: Proposer = QProposer(self.source, self.network)
        if isinstance(self.source, AggregatePosterior):
            with seeded(self.seed, "choice of the proposal", self.device) as generator:
                codes = self.source.sample((calibration_pairs(self.source),), generator)
                images = sample_images(self.model, codes)
                base = best_proposer(self.source, self.network, codes, images)
            if isinstance(base, TiltedProposer):
                family = TiltFamily(base)
        elif isinstance(self.source, CodeDistribution):
            family = StudentFamily(self.source, self.network)
        adapted = AdaptedProposer(self.model, self.network, family) if family else None
        return base, adapted if adapted and adapted.worthwhile else None

    def score(self, samples: int) -> _Scores:
        """Draw pairs that Q was not fitted on, and score them under Q."""
        with seeded(self.seed, "evaluation pairs", self.device) as generator:
            component = None
            if isinstance(self.source, AggregatePosterior):
                codes, component = self.source.sample_with_component((samples,), generator)
            else:
                codes = self.source.sample((samples,), generator)

            def scored(block: slice) -> tuple[Tensor, ...]:
                return self.network.score(codes[block], sample_images(self.model, codes[block]))

            def evaluated(done: int) -> None:
                if self.progress:
                    self.progress("evaluating the bound", done, samples, "")

            log_q, per_unit = in_blocks(
                scored,
                samples,
                DECODE_BLOCK,
                generator,
                self.device,
                progress=evaluated,
                checkpoint=self.checkpoint,
                name="evaluation pairs",
            )
        return _Scores(codes, component, self.source.log_prob(codes), log_q, per_unit)

    def sandwich(
        self,
        stream: str,
        proposer: Proposer,
        images: int,
        proposals: int,
        base: Proposer | None = None,
        below: int = 0,
    ) -> Sandwich:
        """`L_K` and `U_K` of fresh images; beside them, if `below` is given, those of `base` up to that K."""
        with seeded(self.seed, stream, self.device) as generator:
            codes = self.source.sample((images,), generator)
            drawn = sample_images(self.model, codes)
            control = self._unit_scores(codes, drawn)[0] - self.source.log_prob(codes)

            def bounds(of: Proposer, most: int, name: str) -> Sandwich:
                return sandwich(
                    self.model,
                    of,
                    codes,
                    drawn,
                    most,
                    control,
                    generator,
                    self.progress,
                    self.checkpoint,
                    name,
                )

            found = bounds(proposer, proposals, stream)
            if base is None or not below:
                return found
            return replace(found, below=bounds(base, below, f"{stream}, below"))

    def _unit_scores(self, codes: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
        """`log Q(z|x̃)` of pairs, and that of each unit."""
        blocks = zip(torch.split(codes, DECODE_BLOCK), torch.split(images, DECODE_BLOCK), strict=True)
        log_q, per_unit = zip(*(self.network.score(code, image) for code, image in blocks), strict=True)
        return torch.cat(log_q), torch.cat(per_unit)

    def evidence(
        self, proposer: Proposer, parts: Sequence[tuple[str, ...]], images: int, proposals: int
    ) -> tuple[Tensor, Tensor, dict[tuple[str, ...], LogEvidence]]:
        """Fresh codes, their unit scores under Q, and `log p_r(x̃|z_A)` for each A in `parts`."""
        with seeded(self.seed, "groups and units", self.device) as generator:
            codes = self.source.sample((images,), generator)
            drawn = sample_images(self.model, codes)
            found = {
                known: log_evidence(
                    self.model,
                    proposer,
                    codes,
                    drawn,
                    proposals,
                    known,
                    generator,
                    self.progress,
                    self.checkpoint,
                    f"proposals that know {', '.join(known) or 'no unit'}",
                )
                for known in parts
            }
            per_unit = self._unit_scores(codes, drawn)[1]
        return codes, per_unit, found


@dataclass(frozen=True)
class _Scores:
    """What is kept of fresh pairs: no image, so that memory hardly grows with their number."""

    codes: Tensor
    component: Tensor | None
    log_r: Tensor
    log_q: Tensor
    log_q_per_unit: Tensor


class _Estimation:
    """The draws of one estimate, and what they say."""

    def __init__(self, bench: _Bench, config: EstimateConfig, prior: CodeDistribution) -> None:
        self._bench, self._config, self._prior = bench, config, prior
        self._latents = bench.source.latents
        self._warnings: list[str] = []

    def result(self, history: list[FitRecord]) -> Estimate:
        """Draw, and summarise."""
        importance = self._config.importance
        plan, spent = self._plan(importance) if importance else (None, 0)
        self._scores = self._bench.score(plan.pairs if plan else self._config.samples)
        scores = self._scores
        pointwise = scores.log_q - scores.log_r
        total = barber_agakov(scores.log_q, scores.log_r)
        require_possible("the Barber–Agakov bound", total, highest=self._most(self._latents.units))
        self._judge_fit(pointwise, total)
        entropy = mean(-scores.log_r)
        interval, drawn = self._interval(plan, pointwise) if plan else (None, [])
        if importance and interval and plan:
            self._judge(importance, interval, drawn[-1], plan.decodes + spent)
        per_unit, groups = self._parts(importance, total, interval)
        target = importance.width if importance else None
        return Estimate(
            codes=self._config.codes,
            lower=interval.lower.value if interval else total.value,
            lower_se=interval.lower.se if interval else total.se,
            upper=interval.upper.value if interval else None,
            upper_se=interval.upper.se if interval else None,
            gap=interval.gap.value if interval else None,
            gap_se=interval.gap.se if interval else None,
            width=interval.width if interval else None,
            width_target=target,
            width_met=interval.width <= target if interval and target is not None else None,
            proposal=self._proposer.name if plan else None,
            decodes=plan.decodes + spent if plan else None,
            levels=[vars(level).copy() for level in plan.levels] if plan else [],
            curve=curve(plan, pointwise, drawn[-1]) if plan else [_start(total)],
            effective_sample_size=_spread(drawn[-1].effective, "least") if drawn else None,
            largest_weight=_spread(drawn[-1].largest, "greatest") if drawn else None,
            barber_agakov=total.value,
            barber_agakov_se=total.se,
            entropy=entropy.value,
            entropy_se=entropy.se,
            per_unit=per_unit,
            groups=groups,
            **self._encoder(),
            samples=len(scores.log_q),
            warnings=self._warnings,
            q_network=self._bench.network,
            history=history,
        )

    def _plan(self, importance: ImportanceConfig) -> tuple[Plan, int]:
        """What to draw, and the decodes of the pilot that says so."""
        budget, pairs, bench = importance.images * importance.samples, self._config.samples, self._bench
        self._base, adapted = bench.proposers()
        self._proposer, finest, below = self._base, self._base, 0
        size = pilot_size(budget)
        if size is None:
            return single_level(pairs, importance.images, importance.samples, self._base.name), 0
        if adapted and (fitted := pilot_size(budget, adapted.decodes)):
            # Where fitting to images pays, more proposals of the base than that costs hardly do.
            below = min(size[1], 2 ** adapted.decodes.bit_length())
            finest, size = adapted, fitted
        images, proposals = size
        pilot = bench.sandwich("pilot", finest, images, proposals, self._base, below)
        spent = images * (finest.decodes + proposals + 1 + (below + 1 if below else 0))
        plan = choose(pilot, pairs, budget - spent, finest, self._base, importance.width)
        if plan.levels[-1].proposal == finest.name:
            self._proposer = finest
        return plan, spent

    def _interval(self, plan: Plan, pointwise: Tensor) -> tuple[Interval, list[Sandwich]]:
        drawn = []
        for number, level in enumerate(plan.levels):
            last = level.proposal == self._proposer.name
            proposer = self._proposer if last else self._base
            below = level.coarse if last and proposer is not self._base else 0
            drawn.append(
                self._bench.sandwich(f"level {number}", proposer, level.images, level.fine, self._base, below)
            )
        interval = combine(plan, pointwise, drawn)
        most = self._most(self._latents.units)
        require_possible("the lower bound L", interval.lower, highest=most)
        require_possible("the upper bound U", interval.upper, lowest=0.0)
        require_possible("the gap U − L", interval.gap, lowest=0.0)
        return interval, drawn

    def _judge_fit(self, pointwise: Tensor, total: Mean) -> None:
        """Warn where Q has not learnt enough to be built upon."""
        squares = (pointwise - pointwise.mean()).square()
        rare = float(squares.max() / squares.sum()) if float(squares.sum()) > 0 else 0.0
        if rare > MOST_OF_ONE_PAIR and total.se > NEGLIGIBLE:
            self._warnings.append(
                f"Q errs badly on few images: one of {len(pointwise)} pairs makes {100 * rare:.0f}% of the "
                f"variance of its bound, {total.value:.2f} ± {total.se:.2f} nats. Where errors are rare and "
                "large, standard errors may be too small; more q_network.steps help."
            )

    def _judge(self, importance: ImportanceConfig, interval: Interval, drawn: Sandwich, decodes: int) -> None:
        """Warn where the interval is not what was asked for, or its weights are not to be trusted."""
        if importance.width is not None and interval.width > importance.width:
            budget = importance.images * importance.samples
            self._warnings.append(
                f"The interval is {interval.width:.2f} nats wide, not the {importance.width:g} asked for: "
                + (
                    f"the budget of {importance.images} × {importance.samples} decodes does not buy it."
                    if decodes > MOSTLY_SPENT * budget
                    else f"by its pilot {decodes} of {budget} decodes would have been enough, but the images "
                    "drawn then vary more. A smaller importance.width spends more."
                )
            )
        dominated = float((drawn.largest > 0.5).double().mean())
        effective, fewest = float(drawn.effective.median()), min(FEW_EFFECTIVE, drawn.proposals[-1] / 4)
        if drawn.proposals[-1] > 2 and (effective < fewest or dominated > MANY_DOMINATED):
            cause, remedy = POOR_PROPOSALS[self._proposer.name]
            self._warnings.append(
                f"{cause}: of {drawn.proposals[-1]} proposals the median image has an effective sample size "
                f"of {effective:.1f}, and for {100 * dominated:.0f}% of the images one weight is more than "
                "half of the sum. The bounds hold on average, but their standard errors may be too small; "
                f"{remedy} or more importance.samples help."
            )

    def _most(self, units: Sequence[str]) -> float:
        """The most that units can carry: Σ log K of categorical ones, no limit with a real one."""
        classes = dict(zip(self._latents.discrete_units, self._latents.discrete, strict=True))
        return sum(math.log(classes[unit]) if unit in classes else math.inf for unit in units)

    def _capped(self, units: Sequence[str], upper: Mean) -> Mean:
        """An upper bound, or the entropy's own limit where that is lower: it holds without an error."""
        most = self._most(units)
        return upper if upper.value < most else Mean(most, 0.0)

    def _parts(
        self, importance: ImportanceConfig | None, total: Mean, interval: Interval | None
    ) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
        """Bounds of every unit and group; two-sided ones where they are asked for."""
        latents = self._latents
        named = {"continuous": latents.continuous_units, "discrete": latents.discrete_units}
        groups = {name: units for name, units in named.items() if units}
        sets = {(unit,) for unit in latents.units} | set(groups.values())
        parts = {units: self._lower(units) for units in sets}
        if importance and interval:
            chosen = latents.discrete_units if importance.units == "categorical" else latents.units
            wanted = [*groups.values(), *((unit,) for unit in chosen)]
            wanted = [units for units in dict.fromkeys(wanted) if units != latents.units]
            if wanted:
                self._add_upper(parts, wanted, importance)
        if latents.units in parts and interval:
            parts[latents.units] |= _sides(interval.lower, interval.upper)
        return (
            {unit: dict(parts[(unit,)]) for unit in latents.units},
            {name: dict(parts[units]) for name, units in groups.items()},
        )

    def _lower(self, units: tuple[str, ...]) -> dict[str, float]:
        """`H_r(z_A) + E[log Q_A(z_A|x̃)]` for the units A, and the marginal entropy of A."""
        log_q, log_r = self._unit_scores(units, self._scores.codes, self._scores.log_q_per_unit)
        bound = barber_agakov(log_q, log_r)
        require_possible(f"information of {', '.join(units)}", bound, highest=self._most(units))
        return {
            "lower": bound.value,
            "se": bound.se,
            "entropy": mean(-log_r).value,
            "barber_agakov": bound.value,
            "barber_agakov_se": bound.se,
        }

    def _add_upper(
        self,
        parts: dict[tuple[str, ...], dict[str, float]],
        wanted: list[tuple[str, ...]],
        importance: ImportanceConfig,
    ) -> None:
        """`I(z_A; x̃) = E[log p_r(x̃|z_A) − log p_r(x̃)]` from both sides, for each A in `wanted`.

        For a unit that carries little, Barber–Agakov can be the better lower bound. One half of the images
        decides which is reported; the other half, or the Barber–Agakov pairs, give its value: the larger of
        two noisy bounds would be no bound.
        """
        images, proposals = importance.images, max(1, importance.samples // 4)
        if self._proposer.decodes:
            # Proposals fitted to an image are fewer, and what the fit decodes is saved on images.
            fewer = max(1, proposals // 4)
            images = max(min(images, FEWEST_OF_PART), images * proposals // (fewer + self._proposer.decodes))
            proposals = fewer
        codes, per_unit, found = self._bench.evidence(self._proposer, [(), *wanted], images, proposals)
        evidence = found[()]
        for units in wanted:
            given = found[units]
            log_q, log_r = self._unit_scores(units, self._scores.codes, self._scores.log_q_per_unit)
            control_q, control_r = self._unit_scores(units, codes, per_unit)
            first, control = log_q - log_r, control_q - control_r
            below, above = given.low[-1] - evidence.high[-1], given.high[-1] - evidence.low[-1]
            half = len(codes) // 2
            lower, upper = barber_agakov(log_q, log_r), with_control(first, control, above)
            gain = mean((below - control)[:half])
            if gain.value > 2 * gain.se:
                lower = with_control(first, control[half:], below[half:])
            what = f"information of {', '.join(units)}"
            require_possible(f"{what}, lower bound", lower, highest=self._most(units))
            require_possible(f"{what}, upper bound", upper, lowest=0.0)
            parts[units] |= _sides(lower, self._capped(units, upper))

    def _unit_scores(
        self, units: tuple[str, ...], codes: Tensor, log_q_per_unit: Tensor
    ) -> tuple[Tensor, Tensor]:
        """`log Q_A(z_A|x̃)` and `log r(z_A)` of pairs."""
        chosen = [self._latents.units.index(unit) for unit in units]
        log_r = self._bench.source.marginal(units).log_prob(codes[:, self._latents.columns_of(units)])
        return log_q_per_unit[:, chosen].sum(-1), log_r

    def _encoder(self) -> dict[str, Any]:
        """The encoder's own information, its rate, and how far q̄ is from the prior."""
        names = [
            *("encoder_information", "encoder_information_se", "encoder_limit"),
            *("rate", "marginal_kl", "marginal_kl_se", "images"),
        ]
        source, scores = self._bench.source, self._scores
        if not isinstance(source, AggregatePosterior) or scores.component is None:
            return dict.fromkeys(names)
        limit = math.log(len(source))
        encoder = mean(source.components[scores.component].log_prob(scores.codes) - scores.log_r)
        marginal = mean(scores.log_r - self._prior.log_prob(scores.codes))
        rate = float(source.components.kl(self._prior).double().mean())
        require_possible("encoder information I_q(x; z)", encoder, lowest=0.0, highest=limit)
        require_possible("marginal KL(q̄ ‖ p)", marginal, lowest=0.0)
        if encoder.value > limit - NEAR_LIMIT:
            self._warnings.append(
                f"The encoder's information, {encoder.value:.2f} nats, is near its limit log N = {limit:.2f} "
                f"for N = {len(source)} images: it says only that N is too small to measure it. The bounds "
                "on I_r(z; x) have no such limit."
            )
        return dict(zip(names, (*encoder, limit, rate, *marginal, len(source)), strict=True))


def _start(total: Mean) -> dict[str, float | None]:
    return {
        "proposals": 1,
        "lower": total.value,
        "lower_se": total.se,
        "upper": None,
        "upper_se": None,
    }


def _sides(lower: Mean, upper: Mean) -> dict[str, float]:
    return {"lower": lower.value, "se": lower.se, "upper": upper.value, "upper_se": upper.se}


def _spread(values: Tensor, extreme: str) -> dict[str, float]:
    worst = values.min() if extreme == "least" else values.max()
    return {"median": float(values.median()), extreme: float(worst)}


def _require_images(images: Tensor) -> None:
    if not isinstance(images, Tensor):
        raise ParameterError(f"images: must be a torch Tensor, got {type(images).__name__}")
    if not images.is_floating_point() and images.dtype != torch.uint8:
        raise ParameterError(f"images: must be floating-point numbers or uint8 pixels, got {images.dtype}")
    if images.is_floating_point() and not bool(images.isfinite().all()):
        raise ParameterError("images: must be finite numbers, got NaN or infinity")


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
    aggregate = AggregatePosterior.of(posterior, images, device)
    require_posterior(aggregate.components, model.latents, len(images))
    return aggregate
