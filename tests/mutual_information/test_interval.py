"""The two-sided interval against known answers."""

import math
from dataclasses import replace

import pytest
import torch
from known_models import Apart, NarrowEncoder, Table, correlated, orthogonal

from vmivae.errors import ParameterError
from vmivae.model.q_network import QNetwork
from vmivae.model.reference import LinearGaussian
from vmivae.mutual_information import (
    Estimate,
    EstimateConfig,
    ImportanceConfig,
    QNetworkConfig,
    estimate,
)
from vmivae.mutual_information.plan import Interval


def config(
    steps: int = 300, family: str = "gaussian", codes: str = "prior", **importance: object
) -> EstimateConfig:
    settings = ImportanceConfig(**{"images": 128, "samples": 128, **importance})  # type: ignore[arg-type]
    return EstimateConfig(codes, QNetworkConfig(family, steps), 4000, settings)


def assert_contains(result: Estimate, truth: float, sigmas: float = 3.5) -> None:
    assert result.lower < truth + sigmas * result.lower_se
    assert result.upper > truth - sigmas * result.upper_se
    assert result.upper > result.lower - 1e-3 - 4 * result.gap_se


@pytest.mark.parametrize("family", ["gaussian", "flow"])
def test_dependent_units_are_within_the_interval_though_not_within_barber_agakovs_reach(family: str) -> None:
    model = correlated(12, 4)
    truth = float(model.information())
    result = estimate(model, None, config(steps=300, family=family))
    assert_contains(result, truth)
    assert result.gap < 0.1
    assert result.width < 0.5
    if family == "gaussian":
        assert result.barber_agakov < truth - 0.2
    else:
        assert result.barber_agakov > truth - 0.15
    assert result.curve[0]["lower"] == pytest.approx(result.barber_agakov, abs=1e-4)


def test_a_poor_q_and_few_proposals_still_give_two_bounds_in_order() -> None:
    model = correlated(16, 10)
    truth = float(model.information())
    result = estimate(model, None, config(steps=40, images=400, samples=8))
    assert [(level["coarse"], level["fine"], level["images"]) for level in result.levels] == [(0, 8, 400)]
    assert result.decodes == 4000 + 400 * 9
    assert result.lower < truth - 3 * result.lower_se
    assert result.upper > truth + 3 * result.upper_se
    assert result.gap > 0.3
    assert "Q fits poorly" in result.warnings[0]
    assert "family: flow" in result.warnings[0]


def test_poor_proposals_from_the_aggregate_posterior_are_not_blamed_on_q_alone() -> None:
    model = correlated(16, 10, scale=0.3)
    images = model.likelihood(model.prior.sample((50,), torch.Generator().manual_seed(0))).mean
    result = estimate(model, images, config(codes="posterior", steps=20, samples=8))
    assert result.proposal == "aggregate_posterior"
    assert result.warnings[0].startswith("The aggregate posterior, tilted by what Q reads")
    assert "family" not in result.warnings[0]


def test_an_ignored_code_carries_nothing() -> None:
    result = estimate(LinearGaussian(torch.zeros(5, 2), 1.0), None, config())
    assert abs(result.lower) <= 0.02 + 3 * result.lower_se
    assert abs(result.upper) <= 0.02 + 3 * result.upper_se


@pytest.mark.parametrize("codes", ["prior", "posterior"])
def test_a_noiseless_k_way_code_carries_log_k(codes: str) -> None:
    result = estimate(Table(5 * torch.eye(6), scale=0.2), 5 * torch.eye(6), config(codes=codes))
    for part in (
        {"lower": result.lower, "upper": result.upper},
        result.groups["discrete"],
        result.per_unit["c0"],
    ):
        assert part["lower"] == pytest.approx(math.log(6), abs=0.02)
        assert part["upper"] == pytest.approx(math.log(6), abs=0.02)


def test_posterior_codes_are_bounded_under_the_entropy_that_they_have() -> None:
    model = NarrowEncoder(orthogonal(6, [8.0, 4.0]), mean=1.5, stddev=0.1)
    result = estimate(model, torch.zeros(20, 6), config(codes="posterior"))
    assert_contains(result, model.information())
    assert result.gap < 0.1


@pytest.mark.parametrize("family", ["gaussian", "flow"])
def test_groups_and_units_meet_their_truth_from_both_sides(family: str) -> None:
    model = Apart(correlated(8, 2), classes=3)
    real = float(model.decoder.information())
    result = estimate(model, None, config(family=family, images=128, samples=256, units="all"))
    assert_contains(result, real + math.log(3))
    truths = {"continuous": real, "discrete": math.log(3)}
    truths |= dict(zip(("z0", "z1"), model.decoder.unit_information().tolist(), strict=True))
    for name, truth in {**truths, "c0": math.log(3)}.items():
        part = {**result.groups, **result.per_unit}[name]
        assert part["lower"] < truth + 0.005 + 3.5 * part["se"], name
        assert part["upper"] > truth - 0.005 - 3.5 * part["upper_se"], name
        assert part["upper"] - part["lower"] < 0.15, name
        assert part["barber_agakov"] < truth + 0.005 + 3.5 * part["barber_agakov_se"], name


def test_a_unit_that_carries_nothing_keeps_its_barber_agakov_bound() -> None:
    """With a poor Q for the rest, the sandwich of an ignored unit is far below zero; its own bound is not."""
    model = Apart(LinearGaussian(correlated(16, 10).weight, 0.3), classes=2)

    class Ignoring(Apart):
        def likelihood(self, codes):
            return super().likelihood(torch.cat([codes[:, :-2], torch.zeros(len(codes), 2)], dim=-1))

    result = estimate(Ignoring(model.decoder, 2), None, config(steps=100, images=64, samples=32))
    part = result.per_unit["c0"]
    assert part["lower"] == part["barber_agakov"]
    assert abs(part["lower"]) <= 0.05 + 3 * part["se"]
    assert part["upper"] > -3 * part["upper_se"]


def test_units_beyond_the_categorical_ones_are_two_sided_on_request_only() -> None:
    model = Apart(orthogonal(4, [1.0, 2.0]), classes=3)
    result = estimate(model, None, config(steps=20, images=20, samples=8))
    assert "upper" in result.per_unit["c0"]
    assert "upper" not in result.per_unit["z0"]
    assert {name for name, part in result.groups.items() if "upper" in part} == {"continuous", "discrete"}
    rows = {row["unit"]: row for row in result.rows()}
    assert rows["z0"]["upper"] is None
    assert rows["total"]["upper_bits"] == pytest.approx(result.upper / math.log(2))


def test_a_lone_group_has_the_interval_of_the_whole() -> None:
    result = estimate(orthogonal(4, [1.0, 2.0]), None, config(steps=20, images=20, samples=8))
    assert result.groups["continuous"]["lower"] == result.lower
    assert result.groups["continuous"]["upper"] == result.upper


def test_a_width_that_is_asked_for_is_met_with_no_more_than_it_needs() -> None:
    model = correlated(12, 4)
    whole = estimate(model, None, config(steps=300, images=256, samples=256))
    result = estimate(
        model, None, config(steps=300, images=256, samples=256, width=0.5), q_network=whole.q_network
    )
    assert result.width_met
    assert result.width <= 0.5
    assert result.decodes < 0.7 * whole.decodes
    missed = estimate(model, None, config(images=64, samples=64, width=1e-3), q_network=whole.q_network)
    assert missed.width_met is False
    assert "not the 0.001 asked for" in missed.warnings[0]


def test_a_width_that_the_pilot_promised_in_vain_is_not_blamed_on_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = config(steps=300, images=256, samples=256, width=0.5)
    monkeypatch.setattr(Interval, "width", property(lambda interval: 0.7))
    result = estimate(correlated(12, 4), None, wanted)
    assert result.width_met is False
    warning = result.warnings[0]
    assert warning.startswith("The interval is 0.70 nats wide, not the 0.5 asked for: by its pilot ")
    assert f" {result.decodes} of 65536 decodes would have been enough" in warning


def test_a_q_that_errs_badly_on_one_pair_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    score = QNetwork.score

    def once(
        network: QNetwork, codes: torch.Tensor, images: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        per_unit = score(network, codes, images)[1].clone()
        per_unit[0, 0] -= 1e4
        return per_unit.sum(-1), per_unit

    model, brief = correlated(12, 4), {"samples": 2000, "importance": None}
    fine = estimate(model, None, replace(config(steps=300), **brief))
    assert fine.warnings == []
    monkeypatch.setattr(QNetwork, "score", once)
    (warning,) = estimate(model, None, replace(config(), **brief), q_network=fine.q_network).warnings
    assert warning.startswith("Q errs badly on few images: one of 2000 pairs makes 100% of the variance")


@pytest.mark.slow
@pytest.mark.parametrize("codes", ["prior", "posterior"])
def test_bounds_and_coverage_over_twenty_seeds(codes: str) -> None:
    """Pooled z-scores: L is not above the truth, nor U below it, and the claimed interval holds it."""
    model = correlated(12, 4)
    narrow = NarrowEncoder(model, mean=0.5, stddev=0.7)
    truth = float(model.information()) if codes == "prior" else narrow.information()
    measured = model if codes == "prior" else narrow
    images = torch.zeros(10, 12)
    first = estimate(measured, images, config(codes=codes, steps=400, images=128, samples=128), seed=99)
    results = [
        estimate(
            measured,
            images,
            config(codes=codes, images=128, samples=128),
            seed=seed,
            q_network=first.q_network,
        )
        for seed in range(20)
    ]
    below = sum((r.lower - truth) / r.lower_se for r in results) / math.sqrt(20)
    above = sum((r.upper - truth) / r.upper_se for r in results) / math.sqrt(20)
    assert below < 3
    assert above > -3
    held = [r.lower - 2 * r.lower_se <= truth <= r.upper + 2 * r.upper_se for r in results]
    assert sum(held) >= 17
    assert all(r.upper >= r.lower - 3 * r.gap_se for r in results)
    spread = (
        torch.tensor([r.lower for r in results]).std() / torch.tensor([r.lower_se for r in results]).mean()
    )
    assert 0.6 < spread < 1.6


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"images": 4.5}, "images: must be a whole number ≥ 4, got 4.5"),
        ({"images": 3}, "images: must be a whole number ≥ 4"),
        ({"samples": 0}, "samples: must be a whole number ≥ 1"),
        ({"width": 0.0}, "width: must be > 0 or null"),
        ({"units": "z0"}, "units: must be one of categorical, all"),
    ],
)
def test_settings_that_are_not_accepted_name_the_key(values: dict, key: str) -> None:
    with pytest.raises(ParameterError, match=f"mutual_information.importance.{key}"):
        EstimateConfig.from_dict({"importance": values})
