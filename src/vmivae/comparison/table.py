"""What came of a comparison: one row per method and variant, means and standard deviations over seeds."""

from __future__ import annotations

import re
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from vmivae.comparison.grid import GridRun

SCORES = {
    "evaluation.distortion": "distortion",
    "evaluation.rate": "rate",
    "evaluation.elbo": "ELBO",
    "evaluation.negative_cross_entropy_minus_rate": "−cross-entropy − rate",
    "mi.lower": "I(z; x), lower",
    "mi.upper": "I(z; x), upper",
}
UNIT = "mi.per_unit."
SCORED = re.compile(r"evaluation\.disentanglement\.scores\.(.+)\.mean")

Metrics = Mapping[str, float]


@dataclass(frozen=True)
class Spread:
    """Mean over seeds, and their standard deviation (n − 1); None for one seed."""

    mean: float
    stddev: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of one value per seed."""
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


@dataclass(frozen=True)
class Line:
    """A method with a variant: its seeds, and each score that all of them have, by its title."""

    method: str
    variant: str
    seeds: tuple[int, ...]
    scores: dict[str, Spread]


def compare(runs: Iterable[GridRun], metrics: Mapping[str, Metrics]) -> list[Line]:
    """Runs of one method and variant brought together, in the order of the grid.

    Args:
        runs: of the grid.
        metrics: of each run's row in MLflow, by the name of its experiment.
    """
    groups: dict[tuple[str, str], list[GridRun]] = {}
    for run in runs:
        groups.setdefault((run.method, run.variant), []).append(run)
    named = frozenset(unit for members in groups.values() for run in members for unit in _chosen(run))
    lines = []
    for (method, variant), members in groups.items():
        each = [scores(metrics[run.experiment], named) for run in members]
        shared = [title for title in each[0] if all(title in one for one in each)]
        spreads = {title: Spread.of([one[title] for one in each]) for title in shared}
        lines.append(Line(method, variant, tuple(run.seed for run in members), spreads))
    return lines


def _chosen(run: GridRun) -> Collection[str]:
    """The units that a run's information maximisation names."""
    units = run.overrides.get("objective.information.units", "all")
    return () if units == "all" else units


def scores(metrics: Metrics, named: Collection[str] = ()) -> dict[str, float]:
    """The scores of one run, by title.

    Real units mean different things in different runs, so they are compared by rank: the most informative one
    first. A categorical unit goes by its name, and so does a real one that is `named`.
    """
    found = {title: metrics[name] for name, title in SCORES.items() if name in metrics}
    units = sorted({name.removeprefix(UNIT).split(".")[0] for name in metrics if name.startswith(UNIT)})
    for unit in units:
        if unit.startswith("c") or unit in named:
            for side in ("lower", "upper"):
                if (name := f"{UNIT}{unit}.{side}") in metrics:
                    found[f"I({unit}; x), {side}"] = metrics[name]
            if (name := f"evaluation.units.{unit}.accuracy") in metrics:
                found[f"accuracy of {unit}"] = metrics[name]
    real = sorted((metrics[f"{UNIT}{unit}.lower"] for unit in units if unit.startswith("z")), reverse=True)
    found |= {f"real unit {rank}, lower": value for rank, value in enumerate(real, start=1)}
    known = {score[1]: metrics[name] for name in sorted(metrics) if (score := SCORED.fullmatch(name))}
    return found | known


def csv_rows(lines: Iterable[Line]) -> list[dict[str, str | int | float | None]]:
    """One row per line, with `<score> mean` and `<score> sd` columns; the same columns in each."""
    lines = list(lines)
    titles = list(dict.fromkeys(title for line in lines for title in line.scores))
    rows = []
    for line in lines:
        row: dict[str, str | int | float | None] = {
            "method": line.method,
            "variant": line.variant,
            "seeds": len(line.seeds),
        }
        for title in titles:
            spread = line.scores.get(title)
            row[f"{title} mean"] = spread.mean if spread else None
            row[f"{title} sd"] = spread.stddev if spread else None
        rows.append(row)
    return rows
