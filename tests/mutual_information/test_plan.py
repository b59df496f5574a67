import math
from dataclasses import dataclass, replace

import pytest
import torch

from vmivae.mutual_information.bounds import Mean, Sandwich, mean
from vmivae.mutual_information.plan import (
    Level,
    Plan,
    choose,
    combine,
    curve,
    pilot_size,
    single_level,
    with_control,
)


def made_up(count: int, proposals: list[int], seed: int = 0) -> Sandwich:
    """L_K rises and U_K falls towards a pointwise information of sd 2; both differences shrink like 1/√K."""
    generator = torch.Generator().manual_seed(seed)
    truth = 5 + 2 * torch.randn(count, generator=generator).double()
    spread = torch.rand(len(proposals), 2, count, generator=generator).double()
    scale = torch.tensor(proposals).double()[:, None].rsqrt()
    even = torch.ones(count).double()
    lower, upper = truth - 2 * scale * spread[:, 0], truth + 2 * scale * spread[:, 1]
    return Sandwich(proposals, lower, upper, even, even, lower[0])


@dataclass(frozen=True)
class Proposing:
    name: str
    decodes: int

    @property
    def setup(self) -> int:
        return self.decodes


Q = Proposing("q", 0)
DOUBLINGS = [2**i for i in range(11)]


def test_levels_add_up_to_the_last_lower_bound() -> None:
    """With the same images on every level and no control variate the sum telescopes exactly."""
    drawn = made_up(100, [1, 2, 4, 8])
    first = Sandwich([1, 2], drawn.lower[:2], drawn.upper[:2], drawn.effective, drawn.largest, drawn.control)
    plan = Plan(100, [Level(0, 2, 100, 0.0, "q", 3), Level(2, 8, 100, 0.0, "q", 9)], [0.0] * 4)
    interval = combine(plan, drawn.control, [first, drawn])
    assert interval.lower.value == pytest.approx(float(drawn.lower[-1].mean()))
    assert interval.upper.value == pytest.approx(float(drawn.upper[-1].mean()))
    assert interval.gap == mean(drawn.gap[-1])


def test_standard_errors_of_independent_parts_add_in_squares() -> None:
    pairs, low = torch.tensor([1.0, 3.0]), torch.tensor([0.0, 4.0])
    drawn = Sandwich(
        [1, 2], torch.stack([low, low + torch.tensor([0.0, 2.0])]), torch.zeros(2, 2) + 9, low, low, low
    )
    interval = combine(Plan(2, [Level(0, 2, 2, 1.0, "q", 3)], [1.0, 1.0]), pairs, [drawn])
    assert interval.lower == (pytest.approx(2 + 1), pytest.approx(math.hypot(1, 1)))
    assert interval.width == pytest.approx(
        interval.upper.value - interval.lower.value + 2 * (interval.upper.se + interval.lower.se)
    )


def test_control_variate_changes_the_noise_not_the_mean() -> None:
    """The slope is fixed before the draws: over many repetitions the estimate is unbiased, and less noisy."""
    errors: dict[float, list[float]] = {1.0: [], 0.5: []}
    for seed in range(200):
        pairs = made_up(2000, [1], seed=1000 + seed).control
        drawn = made_up(40, [1, 4], seed=seed)
        drawn.lower[1] -= 0.5 * (drawn.lower[0] - 4)
        for slope, found in errors.items():
            found.append(
                combine(Plan(2000, [Level(0, 4, 40, slope, "q", 5)], [slope] * 2), pairs, [drawn]).lower.value
            )
    plain, controlled = (torch.tensor(found) for found in errors.values())
    noise = float(plain.std()) / math.sqrt(200)
    assert float(controlled.mean()) == pytest.approx(float(plain.mean()), abs=4 * noise)
    assert controlled.std() < 0.7 * plain.std()


def test_with_control_uses_the_many_pairs() -> None:
    value, se = with_control(torch.tensor([1.0, 3.0]), torch.tensor([0.0, 1.0]), torch.tensor([0.5, 1.5]))
    assert value == pytest.approx(2.5)
    assert se == pytest.approx(1.0)


def test_a_plan_spends_its_budget_and_no_more() -> None:
    pilot = made_up(32, DOUBLINGS)
    for budget in (20_000, 262_144, 4_000_000):
        plan = choose(pilot, 10_000, budget, Q, Q)
        counted = plan.decodes - (10_000 if plan.pairs == 10_000 else 0)
        assert 0.8 * budget < counted < 1.02 * budget
        assert plan.levels[0].coarse == 0
        for before, after in zip(plan.levels, plan.levels[1:], strict=False):
            assert before.fine == after.coarse
            assert before.images >= after.images


def test_more_budget_buys_larger_k() -> None:
    pilot = made_up(32, DOUBLINGS)
    assert (
        choose(pilot, 10_000, 10_000, Q, Q).levels[-1].fine
        < choose(pilot, 10_000, 10**7, Q, Q).levels[-1].fine
    )


def test_a_wide_target_is_met_at_less_cost_and_an_unreachable_one_takes_all() -> None:
    pilot = made_up(32, DOUBLINGS)
    whole = choose(pilot, 10_000, 10**6, Q, Q)
    assert choose(pilot, 10_000, 10**6, Q, Q, width=1.0).decodes < 0.2 * whole.decodes
    assert choose(pilot, 10_000, 10**6, Q, Q, width=1e-6) == whole


def beside() -> Sandwich:
    """A pilot with tight bounds, and bounds of Q that still lie far apart at large K below it."""
    q = made_up(64, DOUBLINGS)
    tight = 0.02 * torch.ones(1, 64).double()
    truth = (q.lower[-1] + q.upper[-1]) / 2
    lower, upper = torch.cat([q.lower[:1], truth - tight]), torch.cat([q.upper[:1], truth + tight])
    return Sandwich([1, 16], lower, upper, q.effective, q.largest, q.control, below=q)


def test_coarse_bounds_of_a_cheaper_proposer_are_drawn_below_a_dear_one() -> None:
    plan = choose(beside(), 1000, 10**6, Proposing("dear", 500), Q)
    *below, last = plan.levels
    assert last.proposal == "dear"
    assert last.fine == 16
    assert {level.proposal for level in below} == {"q"}
    assert last.coarse == below[-1].fine
    assert last.decodes == 500 + 17 + last.coarse + 1
    assert [level.decodes for level in below] == [level.fine + 1 for level in below]
    assert plan.decodes < 1.1 * 10**6
    assert plan.width < choose(beside().below, 1000, 10**6, Q, Q).width
    assert plan.width < choose(replace(beside(), below=None), 1000, 10**6, Proposing("dear", 500), Q).width


def test_a_proposer_that_costs_more_than_it_gives_is_left_alone() -> None:
    plan = choose(beside(), 1000, 10**4, Proposing("dear", 50_000), Q)
    assert {level.proposal for level in plan.levels} == {"q"}


def test_levels_of_two_proposers_add_up_to_the_dear_ones_bound() -> None:
    pilot = beside()
    plan = Plan(64, [Level(0, 8, 64, 0.0, "q", 9), Level(8, 16, 64, 0.0, "dear", 0)], [0.0] * 2)
    interval = combine(plan, pilot.control, [replace(pilot.below, **first(pilot.below, 4)), pilot])
    assert interval.lower.value == pytest.approx(float(pilot.lower[-1].mean()))
    assert interval.upper.value == pytest.approx(float(pilot.upper[-1].mean()))


def first(drawn: Sandwich, count: int) -> dict:
    return {name: getattr(drawn, name)[:count] for name in ("proposals", "lower", "upper")}


def test_small_budgets_have_no_pilot() -> None:
    assert pilot_size(8 * 256) is None
    assert pilot_size(256 * 1024) == (32, 1024)
    assert pilot_size(256 * 1024, reading=768) == (32, 256)


@pytest.mark.parametrize("budget", [10**6, 10**7, 10**9])
def test_a_large_pilot_has_more_images_too(budget: int) -> None:
    images, proposals = pilot_size(budget, reading=500)
    assert images > 32
    assert proposals <= 32 * images
    assert 0.9 * budget / 8 < images * (proposals + 500) <= budget / 8


def test_without_a_pilot_there_is_one_level() -> None:
    assert single_level(500, 256, 8, "q") == Plan(500, [Level(0, 8, 256, 1.0, "q", 9)], [1.0] * 4)


def test_curve_starts_at_barber_agakov() -> None:
    drawn = made_up(50, [1, 2, 4])
    pairs = made_up(1000, [1], seed=3).control
    rows = curve(single_level(1000, 50, 4, "q"), pairs, drawn)
    assert [row["proposals"] for row in rows] == [1, 2, 4]
    first = mean(pairs)
    assert Mean(rows[0]["lower"], rows[0]["lower_se"]) == first
    assert rows[2]["lower"] == pytest.approx(first.value + float((drawn.lower[2] - drawn.lower[0]).mean()))
