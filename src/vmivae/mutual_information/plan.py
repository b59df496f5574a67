"""How many images and which K: multilevel Monte Carlo for the narrowest interval that a budget buys.

`L_K = L_1 + Σ_l (L_{K_l} − L_{K_{l−1}})` (Giles 2008): many cheap images for L_1, the Barber–Agakov bound,
and few dear ones for the differences at large K, which vary less. L_1 is known from many images, so it serves
every level as a control variate too. All choices are made on a pilot whose draws are then discarded: choosing
on the draws that are reported would spoil their standard errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from vmivae.mutual_information.bounds import Mean, Sandwich, mean

PILOT_IMAGES = 32
PILOT_SHARE = 8
"""The pilot costs at most one such part of the budget."""
FEWEST_IMAGES = 32
"""Of a level: a standard error from fewer is not to be trusted."""
MARGIN = 0.9
"""Part of the wanted width that is aimed at, since the pilot's own numbers are uncertain."""


@dataclass(frozen=True)
class Level:
    """`L_fine − L_coarse`, averaged over fresh images.

    Attributes:
        coarse, fine: numbers of proposals.
        images: how many.
        slope: of the difference on L_1, the control variate.
    """

    coarse: int
    fine: int
    images: int
    slope: float


@dataclass(frozen=True)
class Plan:
    """What is to be drawn.

    Attributes:
        pairs: fresh pairs for the Barber–Agakov bound.
        levels: from small K to large; the last one gives the gap between the bounds too.
    """

    pairs: int
    levels: list[Level]

    @property
    def decodes(self) -> int:
        """Decoder evaluations of all draws."""
        return self.pairs + sum(level.images * (level.fine + 1) for level in self.levels)


def pilot_proposals(budget: int) -> int | None:
    """Largest K, a power of two, that the pilot of a budget can afford; None where it can afford no pilot."""
    affordable = budget // (PILOT_SHARE * PILOT_IMAGES)
    return 2 ** (affordable.bit_length() - 1) if affordable >= 16 else None


def single_level(pairs: int, images: int, proposals: int) -> Plan:
    """The plan without a pilot."""
    return Plan(pairs, [Level(1, proposals, images, 0.0)])


def choose(pilot: Sandwich, pairs: int, budget: int, width: float | None = None) -> Plan:
    """The plan of the least total width `(U + 2 se) − (L − 2 se)` within a budget.

    Args:
        pilot: the sandwich of a few images, at every K that is considered.
        pairs: fresh pairs for the Barber–Agakov bound, at least; they do not count.
        budget: decoder evaluations.
        width: if given, the cheapest plan that the pilot expects to reach it; the best one where none does.
    """
    options = [_Option(pilot, top) for top in range(1, len(pilot.proposals))]
    budgets = [budget]
    if width is not None:
        cheaper = [int(budget * 2 ** (-step / 4)) for step in range(40)]
        budgets = [b for b in sorted(cheaper) if min(o.width(b, pairs) for o in options) <= MARGIN * width]
    chosen = budgets[0] if budgets else budget
    return min(options, key=lambda option: option.width(chosen, pairs)).plan(chosen, pairs)


class _Option:
    """The cheapest chain of levels up to one K of the pilot."""

    def __init__(self, pilot: Sandwich, top: int) -> None:
        self._pilot, self._top = pilot, top
        self._gap = max(0.0, float(pilot.gap[top].mean()))
        # Shortest path: a level costs √(variance × decodes), and the least total wins.
        effort, previous = {0: 0.0}, {}
        for fine in range(1, top + 1):
            candidates = {c: effort[c] + self._effort(c, fine) for c in range(fine)}
            previous[fine] = min(candidates, key=candidates.__getitem__)
            effort[fine] = candidates[previous[fine]]
        self._path: list[tuple[int, int]] = []
        fine = top
        while fine:
            self._path.insert(0, (previous[fine], fine))
            fine = previous[fine]
        self._levels_effort = effort[top]
        slope = _slope(pilot.lower[top] - pilot.barber_agakov, pilot.barber_agakov)
        self._first_variance = (1 + slope) ** 2 * float(pilot.barber_agakov.var())

    def width(self, budget: int, pairs: int) -> float:
        """Expected total width."""
        drawn = self._pairs(budget, pairs)
        spent = drawn if drawn > pairs else 0
        variance = self._first_variance / drawn + self._levels_effort**2 / max(1, budget - spent)
        return self._gap + 4 * math.sqrt(variance)

    def plan(self, budget: int, pairs: int) -> Plan:
        """How many images each level gets: in proportion to √(variance / decodes)."""
        drawn = self._pairs(budget, pairs)
        left = budget - (drawn if drawn > pairs else 0)
        levels = []
        for coarse, fine in self._path:
            share = self._effort(coarse, fine) / max(self._levels_effort, 1e-12)
            slope = _slope(self._pilot.lower[fine] - self._pilot.lower[coarse], self._pilot.barber_agakov)
            images = max(FEWEST_IMAGES, round(left * share / self._cost(fine)))
            levels.append(Level(self._pilot.proposals[coarse], self._pilot.proposals[fine], images, slope))
        return Plan(drawn, levels)

    def _pairs(self, budget: int, pairs: int) -> int:
        first = math.sqrt(self._first_variance)
        return max(pairs, round(budget * first / max(first + self._levels_effort, 1e-12)))

    def _effort(self, coarse: int, fine: int) -> float:
        first = self._pilot.barber_agakov
        difference = self._pilot.lower[fine] - self._pilot.lower[coarse]
        difference = difference - _slope(difference, first) * first
        if fine == self._top:
            upper = difference + self._pilot.gap[fine]
            variance = max(float(difference.var()), float(upper.var()))
        else:
            variance = float(difference.var())
        return math.sqrt(variance * self._cost(fine))

    def _cost(self, index: int) -> int:
        return self._pilot.proposals[index] + 1


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
        barber_agakov: `L_1` of the fresh pairs, `(plan.pairs,)`.
        levels: the sandwich of each level's images.
    """
    first = mean(barber_agakov)
    weight = 1 + sum(level.slope for level in plan.levels)
    residuals = []
    for level, drawn in zip(plan.levels, levels, strict=True):
        coarse = drawn.lower[drawn.proposals.index(level.coarse)]
        residuals.append(drawn.lower[-1] - coarse - level.slope * drawn.barber_agakov)
    gap = levels[-1].gap[-1]
    below = [Mean(weight * first.value, abs(weight) * first.se), *map(mean, residuals)]
    above = [*below[:-1], mean(residuals[-1] + gap)]
    return Interval(_total(below), _total(above), mean(gap))


def curve(barber_agakov: Tensor, drawn: Sandwich) -> list[dict[str, float]]:
    """Both bounds at every K, from the images of one level, with L_1 as control variate."""
    first = mean(barber_agakov)
    rows = []
    for index, proposals in enumerate(drawn.proposals):
        bounds = [
            _total([first, mean(bound[index] - drawn.barber_agakov)]) for bound in (drawn.lower, drawn.upper)
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


def _total(parts: list[Mean]) -> Mean:
    """Sum of independent means."""
    return Mean(sum(part.value for part in parts), math.hypot(*(part.se for part in parts)))
