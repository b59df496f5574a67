"""How many images and which K: multilevel Monte Carlo for the narrowest interval that a budget buys.

`L_K = L_{K_1} + Σ_l (L_{K_l} − L_{K_{l−1}})` (Giles 2008): many cheap images for small K, and few dear ones
for the differences at large K, which vary less. The Barber–Agakov bound of Q is known from many images, so it
serves every level as a control variate. All choices are made on a pilot whose draws are then discarded:
choosing on the draws that are reported would spoil their standard errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from vmivae.mutual_information.bounds import Mean, Sandwich, mean
from vmivae.mutual_information.evidence import doublings
from vmivae.mutual_information.proposals import Proposer

PILOT_IMAGES = 32
"""Of a pilot, at least."""
PILOT_SPREAD = 32
"""The pilot's K is at most so many times its images: the gap at large K is that of few images."""
PILOT_SHARE = 8
"""The pilot costs at most one such part of the budget."""
FEWEST_IMAGES = 64
"""Of a level: a standard error from fewer is not to be trusted."""
SAVING = 1.001
MARGIN = 0.9
"""Part of the wanted width that is aimed at, since the pilot's own numbers are uncertain."""


@dataclass(frozen=True)
class Level:
    """`L_fine − L_coarse`, averaged over fresh images.

    Attributes:
        coarse, fine: numbers of proposals; the first level has `coarse = 0`, and is `L_fine` itself.
        images: how many.
        slope: of the difference on the control variate.
        proposal: name of the proposer of `L_fine`.
        decodes: decoder evaluations for each image.
    """

    coarse: int
    fine: int
    images: int
    slope: float
    proposal: str
    decodes: int


@dataclass(frozen=True)
class Plan:
    """What is to be drawn.

    Attributes:
        pairs: fresh pairs for the Barber–Agakov bound.
        levels: from small K to large; the last one gives the gap between the bounds too.
        slopes: of `L_K` on the control variate at K = 1, 2, 4, … of the last level.
        width: total width that the pilot expects; None without a pilot.
    """

    pairs: int
    levels: list[Level]
    slopes: list[float]
    width: float | None = None

    @property
    def decodes(self) -> int:
        """Decoder evaluations of all draws."""
        return self.pairs + sum(level.images * level.decodes for level in self.levels)


def pilot_size(budget: int, reading: int = 0) -> tuple[int, int] | None:
    """Images of the pilot and its largest K, a power of two; None where the budget can afford no pilot.

    Args:
        budget: decoder evaluations.
        reading: those that the proposer needs to read an image.
    """
    share = budget // PILOT_SHARE
    affordable = share // PILOT_IMAGES - reading
    if affordable < 16:
        return None
    proposals: int = 2 ** (affordable.bit_length() - 1)
    while proposals > PILOT_SPREAD * (images := share // (proposals + reading)):
        proposals //= 2
    return images, proposals


def single_level(pairs: int, images: int, proposals: int, proposal: str) -> Plan:
    """The plan without a pilot."""
    level = Level(0, proposals, images, 1.0, proposal, proposals + 1)
    return Plan(pairs, [level], [1.0] * len(doublings(proposals)))


def choose(
    pilot: Sandwich, pairs: int, budget: int, proposer: Proposer, below: Proposer, width: float | None = None
) -> Plan:
    """The plan of the least total width `(U + 2 se) − (L − 2 se)` within a budget.

    Args:
        pilot: the sandwich of a few images, at every K that is considered; with `pilot.below`, its levels are
            considered as the whole of a plan, and as the coarse part of one.
        pairs: fresh pairs for the Barber–Agakov bound, at least; they do not count.
        budget: decoder evaluations.
        proposer: of the pilot.
        below: of `pilot.below`, where there is one.
        width: if given, the cheapest plan that the pilot expects to reach it; the best one where none does.
    """
    options = [_Option(pilot, top, proposer, below) for top in range(1, len(pilot.proposals))]
    if pilot.below:
        tops = range(1, len(pilot.below.proposals))
        options += [_Option(pilot.below, top, below, below) for top in tops]
    budgets = [budget]
    if width is not None:
        cheaper = [int(budget * 2 ** (-step / 4)) for step in range(40)]
        budgets = [b for b in sorted(cheaper) if min(o.width(b, pairs) for o in options) <= MARGIN * width]
    chosen = budgets[0] if budgets else budget
    return min(options, key=lambda option: option.width(chosen, pairs)).plan(chosen, pairs)


class _Option:
    """The cheapest chain of levels up to one K of the pilot.

    The coarse bounds are those of `pilot.below` where there is one, else the pilot's own at smaller K, whose
    proposals are among those of the fine one.
    """

    def __init__(self, pilot: Sandwich, top: int, proposer: Proposer, below: Proposer) -> None:
        self._pilot, self._top, self._proposer = pilot, top, proposer
        coarse: Sandwich = pilot.below or pilot
        self._apart = pilot.below is not None
        self._below = below if self._apart else proposer
        steps = len(coarse.proposals) if self._apart else top
        self._proposals = [*coarse.proposals[:steps], pilot.proposals[top]]
        self._bounds: list[Tensor] = [*coarse.lower[:steps], pilot.lower[top]]
        self._gap = max(0.0, float(pilot.gap[top].mean()))
        # Shortest path: a level costs √(variance × decodes), and the least total wins.
        effort: dict[int | None, float] = {None: 0.0}
        previous: dict[int, int | None] = {}
        for fine in range(steps + 1):
            candidates = {c: effort[c] + self._effort(c, fine) for c in (None, *range(fine))}
            # A level on the way that saves next to nothing is left out.
            saving = {c: value * (SAVING if c is not None else 1) for c, value in candidates.items()}
            previous[fine] = min(saving, key=saving.__getitem__)
            effort[fine] = candidates[previous[fine]]
        self._path: list[tuple[int | None, int]] = []
        fine_or_none: int | None = steps
        while fine_or_none is not None:
            self._path.insert(0, (previous[fine_or_none], fine_or_none))
            fine_or_none = previous[fine_or_none]
        self._levels_effort = effort[steps]
        slope = _slope(pilot.lower[top], pilot.control)
        self._first_variance = slope**2 * float(pilot.control.var())

    def width(self, budget: int, pairs: int) -> float:
        """Expected total width; infinite where the budget does not buy the fewest images of each level."""
        drawn, images = self._pairs(budget, pairs), self._images(self._left(budget, pairs))
        if images is None:
            return math.inf
        variance = self._first_variance / drawn
        for level, count in zip(self._path, images, strict=True):
            variance += self._effort(*level) ** 2 / self._cost(*level) / count
        return self._gap + 4 * math.sqrt(variance)

    def plan(self, budget: int, pairs: int) -> Plan:
        """What to draw."""
        control = self._pilot.control
        images = self._images(self._left(budget, pairs)) or [FEWEST_IMAGES] * len(self._path)
        levels = []
        for (coarse, fine), count in zip(self._path, images, strict=True):
            slope = _slope(self._difference(coarse, fine), control)
            proposer = self._proposer if self._is_last(fine) else self._below
            known = 0 if coarse is None else self._proposals[coarse]
            decodes = self._decodes(coarse, fine) + proposer.decodes
            levels.append(Level(known, self._proposals[fine], count, slope, proposer.name, decodes))
        slopes = [_slope(row, control) for row in self._pilot.lower[: self._top + 1]]
        return Plan(self._pairs(budget, pairs), levels, slopes, self.width(budget, pairs))

    def _left(self, budget: int, pairs: int) -> int:
        """Of the budget, after the pairs."""
        drawn = self._pairs(budget, pairs)
        return budget - (drawn if drawn > pairs else 0)

    def _images(self, budget: int) -> list[int] | None:
        """Images of each level, in proportion to √(variance / decodes); None if too few."""
        fewest: set[int] = set()
        while True:
            spent = sum(FEWEST_IMAGES * self._cost(*self._path[index]) for index in fewest)
            if spent > budget:
                return None
            free = [index for index in range(len(self._path)) if index not in fewest]
            total = sum(self._effort(*self._path[index]) for index in free)
            images = [FEWEST_IMAGES] * len(self._path)
            for index in free:
                level = self._path[index]
                share = self._effort(*level) / max(total, 1e-12)
                images[index] = round((budget - spent) * share / self._cost(*level))
            few = {index for index in free if images[index] < FEWEST_IMAGES}
            if not few:
                return images
            fewest |= few

    def _pairs(self, budget: int, pairs: int) -> int:
        first = math.sqrt(self._first_variance)
        return max(pairs, round(budget * first / max(first + self._levels_effort, 1e-12)))

    def _is_last(self, fine: int) -> bool:
        return fine == len(self._bounds) - 1

    def _difference(self, coarse: int | None, fine: int) -> Tensor:
        value = self._bounds[fine]
        return value if coarse is None else value - self._bounds[coarse]

    def _effort(self, coarse: int | None, fine: int) -> float:
        control = self._pilot.control
        difference = self._difference(coarse, fine)
        difference = difference - _slope(difference, control) * control
        variance = float(difference.var())
        if self._is_last(fine):
            variance = max(variance, float((difference + self._pilot.gap[self._top]).var()))
        return math.sqrt(variance * self._cost(coarse, fine))

    def _cost(self, coarse: int | None, fine: int) -> int:
        """Of an image, in decoder evaluations that take as long."""
        return self._decodes(coarse, fine) + (self._proposer if self._is_last(fine) else self._below).setup

    def _decodes(self, coarse: int | None, fine: int) -> int:
        """Of an image's proposals and the code that made it."""
        apart = self._apart and self._is_last(fine) and coarse is not None
        return (
            self._proposals[fine] + 1 + (self._proposals[coarse] + 1 if apart and coarse is not None else 0)
        )


def _slope(values: Tensor, control: Tensor) -> float:
    """Least-squares slope of values on a control variate."""
    centred = control - control.mean()
    spread = float((centred**2).sum())
    return float((values * centred).sum()) / spread if spread > 0 else 0.0


@dataclass(frozen=True)
class Interval:
    """Lower and upper bound with standard errors, and the gap between them with its own."""

    lower: Mean
    upper: Mean
    gap: Mean

    @property
    def width(self) -> float:
        """Of what is claimed, `[L − 2 se, U + 2 se]`."""
        return self.upper.value + 2 * self.upper.se - self.lower.value + 2 * self.lower.se


def combine(plan: Plan, barber_agakov: Tensor, levels: list[Sandwich]) -> Interval:
    """`L` and `U` of a plan's draws, all of which are independent between levels.

    Args:
        plan: what was drawn.
        barber_agakov: the control variate, of the fresh pairs, `(plan.pairs,)`.
        levels: the sandwich of each level's images.
    """
    first = mean(barber_agakov)
    weight = sum(level.slope for level in plan.levels)
    residuals = []
    for level, drawn in zip(plan.levels, levels, strict=True):
        difference = drawn.lower[-1] - level.slope * drawn.control
        if level.coarse:
            coarse = drawn.below or drawn
            difference = difference - coarse.lower[coarse.proposals.index(level.coarse)]
        residuals.append(difference)
    gap = levels[-1].gap[-1]
    below = [_scaled(weight, first), *map(mean, residuals)]
    above = [*below[:-1], mean(residuals[-1] + gap)]
    return Interval(_total(below), _total(above), mean(gap))


def curve(plan: Plan, barber_agakov: Tensor, drawn: Sandwich) -> list[dict[str, float | None]]:
    """Both bounds at every K, from the images of the last level, with the control variate."""
    first = mean(barber_agakov)
    rows: list[dict[str, float | None]] = []
    for index, proposals in enumerate(drawn.proposals):
        slope = plan.slopes[index]
        bounds = [
            _total([_scaled(slope, first), mean(bound[index] - slope * drawn.control)])
            for bound in (drawn.lower, drawn.upper)
        ]
        rows.append(
            {
                "proposals": proposals,
                "lower": bounds[0].value,
                "lower_se": bounds[0].se,
                "upper": bounds[1].value,
                "upper_se": bounds[1].se,
            }
        )
    return rows


def with_control(barber_agakov: Tensor, control: Tensor, values: Tensor) -> Mean:
    """Mean of values whose control variate, the Barber–Agakov bound, is also known from many fresh pairs.

    Args:
        barber_agakov: of the fresh pairs, `(S,)`.
        control: of the images that the values belong to, `(M,)`.
        values: `(M,)`.
    """
    return _total([mean(barber_agakov), mean(values - control)])


def _scaled(factor: float, part: Mean) -> Mean:
    return Mean(factor * part.value, abs(factor) * part.se)


def _total(parts: list[Mean]) -> Mean:
    """Sum of independent means."""
    return Mean(sum(part.value for part in parts), math.hypot(*(part.se for part in parts)))
