"""Means and standard deviations over seeds, and the tables they make."""

import pytest

from vmivae.comparison.grid import GridRun
from vmivae.comparison.page import label, shown, tables
from vmivae.comparison.table import Spread, compare, csv_rows, scores


def row(rate: float, z0: float, z1: float, **more: float) -> dict[str, float]:
    return {"evaluation.rate": rate, "mi.per_unit.z0.lower": z0, "mi.per_unit.z1.lower": z1, **more}


RUNS = [GridRun("elbo", "plain", seed, {}, f"e{seed}") for seed in (0, 1, 2)] + [
    GridRun("beta", "plain", 0, {}, "b0")
]
METRICS = {
    "e0": row(1.0, 0.5, 0.1),
    "e1": row(2.0, 0.2, 0.6),
    "e2": row(6.0, 0.7, 0.0),
    "b0": row(4.0, 0.3, 0.3, **{"mi.per_unit.c0.lower": 1.0, "mi.per_unit.c0.upper": 1.5}),
}


def test_seeds_are_averaged_and_spread_by_hand() -> None:
    elbo, beta = compare(RUNS, METRICS)
    assert (elbo.method, elbo.variant, elbo.seeds) == ("elbo", "plain", (0, 1, 2))
    # Deviations −2, −1, 3 from 3: 14 / 2.
    assert elbo.scores["rate"] == Spread(3.0, pytest.approx(7**0.5))
    assert beta.scores["rate"] == Spread(4.0, None)


def test_real_units_are_compared_by_rank_and_categorical_ones_by_name() -> None:
    elbo, beta = compare(RUNS, METRICS)
    assert elbo.scores["real unit 1, lower"].mean == pytest.approx(0.6)
    assert elbo.scores["real unit 2, lower"].mean == pytest.approx(0.1)
    assert beta.scores["I(c0; x), upper"].mean == 1.5
    assert "I(c0; x), upper" not in elbo.scores


def test_real_units_that_a_run_chooses_go_by_their_name_in_every_line() -> None:
    chosen = GridRun("elbo", "z1", 0, {"objective.information.units": ["z1"]}, "b0")
    everything = GridRun("elbo", "all", 0, {"objective.information.units": "all"}, "e0")
    lines = compare([*RUNS[:3], chosen, everything], METRICS)
    assert [line.scores["I(z1; x), lower"].mean for line in lines] == [pytest.approx(0.7 / 3), 0.3, 0.1]
    assert not [title for title in lines[0].scores if title.startswith("I(z0")]


def test_ranks_head_their_columns() -> None:
    assert [label(title) for title in ("real unit 10, lower", "I(c0; x), lower", "mig")] == [
        "10",
        "I(c0; x), lower",
        "MIG",
    ]


def test_a_score_that_a_seed_lacks_is_left_out() -> None:
    lacking = METRICS | {"e1": {"mi.per_unit.z0.lower": 0.2, "mi.per_unit.z1.lower": 0.6}}
    assert "rate" not in compare(RUNS, lacking)[0].scores


def test_rows_of_the_csv_share_their_columns() -> None:
    first, second = csv_rows(compare(RUNS, METRICS))
    assert list(first) == list(second)
    assert (first["method"], first["seeds"], first["rate mean"]) == ("elbo", 3, 3.0)
    assert first["I(c0; x), lower mean"] is None
    assert second["rate sd"] is None


def test_every_score_is_in_one_table() -> None:
    lines = compare(RUNS, METRICS)
    found = tables(lines)
    titles = [title for chosen in found.values() for title in chosen]
    assert sorted(titles) == sorted({title for line in lines for title in line.scores})
    assert len(titles) == len(set(titles))


def test_scores_against_known_factors_are_taken_along() -> None:
    found = scores(
        {
            "evaluation.disentanglement.scores.mig.mean": 0.4,
            "evaluation.disentanglement.scores.mig.stddev": 0.1,
            "evaluation.disentanglement.images": 1000.0,
        }
    )
    assert found == {"mig": 0.4}


@pytest.mark.parametrize(
    ("spread", "text"),
    [
        (Spread(1.2345, 0.0456), "1.23 ± 0.05"),
        (Spread(-180.0, 2.5), "−180.0 ± 2.5"),
        (Spread(0.5, None), "0.50"),
        (None, "–"),
    ],
)
def test_shown(spread: Spread | None, text: str) -> None:
    assert shown(spread) == text
