"""Benchmark of the information estimators: known answers, trained VAEs, a rival; JSON and Markdown tables."""

from __future__ import annotations

import itertools
import platform
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from info_nce import info_nce
from information_cases import Case, SkippedCase, TrainedModels, all_cases, linear_gaussian
from information_tables import fill, tables

from vmivae import stage
from vmivae.console import say
from vmivae.errors import DataError, ParameterError
from vmivae.files import read_json, write_json
from vmivae.mutual_information import EstimateConfig, ImportanceConfig, QNetworkConfig, estimate

NEEDS = {
    "gaussian": (),
    "flow": (),
    "info-nce": ("gaussian",),
    "flow-in-time-of-gaussian": ("gaussian", "flow"),
    "gaussian-in-time-of-flow": ("gaussian", "flow"),
}
"""Every method, and those whose seconds it is given."""
COMPARED = ("mnist5k", "fashion")
"""Models on which the families of Q are compared in the same time."""
RIVAL_IMAGES = 2048
NAME = "benchmark_information"
KEPT = Path(".vmivae/benchmark")

Row = dict[str, Any]
Progress = Callable[[str, int, int, str], None]


def main(
    patterns: Annotated[
        list[str] | None, typer.Argument(help="Cases, or case/method, to run: 'linear-*', '*/flow'.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of every draw; the models stay as they are.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder of the JSON and of the page with the tables.")] = Path(
        "docs"
    ),
    force: Annotated[bool, typer.Option("--force", help="Repeat what is done already.")] = False,
    fashion_mnist: Annotated[Path, typer.Option(help="Folder with the files of Fashion-MNIST.")] = Path(
        "/usr/share/datasets/fashion-mnist"
    ),
) -> None:
    """Measure how well the information estimators do. What is done already is kept, so a rerun goes on."""
    with stage.ProgressReporter(seconds=30) as progress:
        cases = all_cases(TrainedModels(KEPT, fashion_mnist, progress))
        benchmark = Benchmark(cases, out, seed, progress=progress)
        try:
            benchmark.run(patterns or ["*"], force)
        except KeyboardInterrupt as error:
            say("interrupted: the same command goes on, without --force", sys.stderr)
            raise typer.Exit(getattr(error, "exit_code", 130)) from None


@dataclass
class Benchmark:
    """Cases, and the rows that are done.

    Args:
        cases: by name; called, a case is made.
        out: folder of the JSON and of the page.
        seed: of every draw.
        config: of the estimates; codes and family are those of the row.
        progress: of a row.

    Raises:
        DataError: the JSON in `out` is something else.
    """

    cases: Mapping[str, Callable[[], Case]]
    out: Path
    seed: int = 0
    config: EstimateConfig = field(default_factory=EstimateConfig)
    progress: Progress | None = None

    def __post_init__(self) -> None:
        file = self.out / f"{NAME}.json"
        try:
            self._rows: dict[str, Row] = read_json(file)["rows"] if file.exists() else {}
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{file}: holds no rows of this benchmark ({error}); move it away") from None

    def run(self, patterns: list[str], force: bool = False) -> None:
        """Run the rows that the patterns name, each written as soon as it is done; again only with `force`.

        A row of another seed or other settings does not count as done.

        Raises:
            ParameterError: a pattern that names nothing.
        """
        chosen = self._chosen(patterns)
        _warm_up()
        for case, methods in chosen.items():
            try:
                made = self.cases[case]()
            except SkippedCase as reason:
                print(f"{case}: skipped, {reason}", flush=True)
                continue
            for method in methods:
                for needed in NEEDS[method]:
                    if needed not in methods:
                        self._obtain(case, needed, made)
                self._obtain(case, method, made, force)
        self._write()

    def _chosen(self, patterns: list[str]) -> dict[str, list[str]]:
        """Methods to run by case, all in their order."""
        chosen: dict[str, list[str]] = {}
        unused = set(patterns)
        for case, method in itertools.product(self.cases, NEEDS):
            if "-in-time-of-" in method and not case.startswith(COMPARED):
                continue
            naming = {p for p in patterns if fnmatch(case, p) or fnmatch(f"{case}/{method}", p)}
            if naming:
                chosen.setdefault(case, []).append(method)
            unused -= naming
        if unused:
            raise ParameterError(
                f"{min(unused)}: names nothing; cases are {', '.join(self.cases)}, "
                f"each with {', '.join(f'/{method}' for method in NEEDS)}"
            )
        return chosen

    def _obtain(self, case: str, method: str, made: Case, again: bool = False) -> None:
        """Run a row, unless it is done."""
        name = f"{case}/{method}"
        config = self._settings(case, method, made)
        kept = self._rows.get(name)
        if kept and not again and (kept["seed"], kept["config"]) == (self.seed, asdict(config)):
            return
        began = time.perf_counter()
        row = self._rival(made, config) if isinstance(config, RivalConfig) else self._sandwich(made, config)
        seconds = time.perf_counter() - began
        self._rows[name] = {
            "case": case,
            "method": method,
            "seed": self.seed,
            "config": asdict(config),
            "truth": made.truth,
            "truth_se": made.truth_se,
            **row,
            "seconds": seconds,
        }
        self._write()
        print(f"{name}: {row['lower']:.3f} to {row['upper']:.3f} nats in {seconds:.0f} s", flush=True)

    def _settings(self, case: str, method: str, made: Case) -> EstimateConfig | RivalConfig:
        if method == "info-nce":
            return RivalConfig(RIVAL_IMAGES, self._rows[f"{case}/gaussian"]["seconds"])
        family, _, reference = method.partition("-in-time-of-")
        q_network = replace(self.config.q_network, family=family)
        config = replace(self.config, codes=made.codes, q_network=q_network)
        if reference:
            own, other = self._rows[f"{case}/{family}"], self._rows[f"{case}/{reference}"]
            config = in_time_of(config, own, other)
        return config

    def _sandwich(self, made: Case, config: EstimateConfig) -> Row:
        watch = Stopwatch(self.progress)
        result = estimate(made.model, made.images, config, self.seed, device="cpu", progress=watch).to_dict()
        names = ["barber_agakov", "barber_agakov_se", "lower", "lower_se", "upper", "upper_se"]
        names += ["gap", "gap_se", "width", "proposal", "decodes", "levels", "warnings"]
        row = {name: result[name] for name in names}
        row["effective_sample_size"] = result["effective_sample_size"]["median"]
        row["fit_seconds"] = watch.seconds
        return row

    def _rival(self, made: Case, config: RivalConfig) -> Row:
        bounds = info_nce(
            made.model,
            made.source,
            config.images,
            seconds=config.seconds,
            seed=self.seed,
            progress=self.progress,
        )
        return asdict(bounds)

    def _write(self) -> None:
        names = [f"{case}/{method}" for case in self.cases for method in NEEDS]
        self._rows = {name: self._rows[name] for name in names if name in self._rows}
        machine = {
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "python": platform.python_version(),
        }
        write_json(self.out / f"{NAME}.json", {"machine": machine, "rows": self._rows})
        seeds = ", ".join(str(seed) for seed in sorted({row["seed"] for row in self._rows.values()}))
        about = (
            f"On the CPU with {machine['threads']} threads, PyTorch {machine['torch']}, seed {seeds}. "
            "Values in nats, ± one standard error."
        )
        fill(self.out / f"{NAME}.md", tables(self._rows, list(self.cases), about))


def _warm_up() -> None:
    """Have everything loaded, so that the first row is not charged for it."""
    q_network = QNetworkConfig("flow", steps=2, batch_size=8)
    config = EstimateConfig("prior", q_network, samples=8, importance=ImportanceConfig(images=4, samples=4))
    estimate(linear_gaussian(1, 0.0).model, None, config, device="cpu")


@dataclass(frozen=True)
class RivalConfig:
    """Of InfoNCE: how many images, and how many seconds there are for them."""

    images: int
    seconds: float


class Stopwatch:
    """Passes progress on, and notes how long the fit of Q took."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress, self._began, self.seconds = progress, time.perf_counter(), 0.0

    def __call__(self, what: str, done: int, total: int, state: str) -> None:
        """As `progress` of `estimate`."""
        if what == "fitting Q":
            self.seconds = time.perf_counter() - self._began
        if self._progress:
            self._progress(what, done, total, state)


def in_time_of(config: EstimateConfig, own: Row, other: Row) -> EstimateConfig:
    """The settings with which one family of Q takes as long as the other did.

    Args:
        config: what `own` took its seconds with; the steps of the fit and the budget of the interval are
            scaled, each by its own ratio of seconds.
        own, other: rows of the two families.
    """
    fit = other["fit_seconds"] / own["fit_seconds"]
    rest = (other["seconds"] - other["fit_seconds"]) / (own["seconds"] - own["fit_seconds"])
    effort = config.importance or ImportanceConfig()
    return replace(
        config,
        q_network=replace(config.q_network, steps=max(1, round(config.q_network.steps * fit))),
        importance=replace(effort, images=max(4, round(effort.images * rest))),
    )


if __name__ == "__main__":
    stage.run(main, again="the same command begins again", keys_of="")
