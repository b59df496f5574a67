import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import mutual_information
import pytest
import torch
import typer
from information_cases import Case, SkippedCase, TrainedModels, all_cases, linear_gaussian, mixture
from information_tables import BEGIN, END, covers, fill
from mutual_information import Benchmark, Stopwatch, in_time_of
from typer.testing import CliRunner

from vmivae.errors import DataError, ParameterError
from vmivae.mutual_information import EstimateConfig, ImportanceConfig, QNetworkConfig

TINY = EstimateConfig(
    codes="prior",
    q_network=QNetworkConfig(steps=30, batch_size=64),
    samples=500,
    importance=ImportanceConfig(images=16, samples=64),
)
CASES = {
    "linear-2-orthogonal": lambda: linear_gaussian(2, 0.0),
    "fashion-prior": lambda: linear_gaussian(1, 0.0),
}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Benchmark:
    monkeypatch.setattr(mutual_information, "RIVAL_IMAGES", 32)
    return Benchmark(CASES, tmp_path, config=TINY)


def again(bench: Benchmark) -> Benchmark:
    return Benchmark(CASES, bench.out, config=TINY)


def rows(bench: Benchmark) -> dict:
    return json.loads((bench.out / "benchmark_information.json").read_text())["rows"]


class TestRows:
    def test_json_and_tables_say_what_was_measured(self, bench: Benchmark) -> None:
        bench.run(["*"])
        row = rows(bench)["linear-2-orthogonal/gaussian"]
        assert row["truth"] == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(10))
        assert row["width"] == pytest.approx(
            row["upper"] + 2 * row["upper_se"] - row["lower"] + 2 * row["lower_se"]
        )
        assert 0 < row["fit_seconds"] < row["seconds"]
        assert row["config"]["q_network"] == {"family": "gaussian", "steps": 30, "batch_size": 64}
        assert rows(bench)["linear-2-orthogonal/flow"]["config"]["q_network"]["family"] == "flow"
        assert list(rows(bench)) == [
            *(f"linear-2-orthogonal/{method}" for method in ("gaussian", "flow", "info-nce")),
            *(f"fashion-prior/{method}" for method in mutual_information.NEEDS),
        ]
        page = (bench.out / "benchmark_information.md").read_text()
        cells = next(
            line for line in page.splitlines() if line.startswith("| linear-2-orthogonal | gaussian")
        )
        shown = [cell.strip() for cell in cells.strip("|").split("|")]
        assert shown[2:5] == [
            "1.498",
            f"{row['barber_agakov']:.3f} ± {row['barber_agakov_se']:.3f}",
            f"{row['lower']:.3f} ± {row['lower_se']:.3f}",
        ]
        assert shown[7] == f"{row['width']:.3f}"
        assert page.count("| fashion-prior | default") == 4

    def test_the_rival_has_the_seconds_of_the_gaussian_q(self, bench: Benchmark) -> None:
        bench.run(["linear-2-orthogonal/info-nce"])
        found = rows(bench)
        assert set(found) == {"linear-2-orthogonal/gaussian", "linear-2-orthogonal/info-nce"}
        seconds = found["linear-2-orthogonal/gaussian"]["seconds"]
        rival = found["linear-2-orthogonal/info-nce"]
        assert rival["config"] == {"images": 32, "seconds": seconds}
        assert rival["seconds"] == pytest.approx(seconds, rel=0.5, abs=0.5)
        assert rival["lower"] <= math.log(rival["batch"])


class TestResuming:
    def test_what_is_done_is_kept_and_the_rest_is_run(self, bench: Benchmark) -> None:
        bench.run(["linear-2-orthogonal/gaussian"])
        first = rows(bench)["linear-2-orthogonal/gaussian"]
        again(bench).run(["linear-2-*/gaussian", "linear-2-*/flow"])
        assert rows(bench)["linear-2-orthogonal/gaussian"] == first
        assert "linear-2-orthogonal/flow" in rows(bench)

    def test_force_repeats_what_is_named_and_nothing_else(self, bench: Benchmark) -> None:
        bench.run(["linear-2-*/gaussian", "linear-2-*/flow"])
        before = rows(bench)
        again(bench).run(["linear-2-*/flow"], force=True)
        after = rows(bench)
        assert after["linear-2-orthogonal/gaussian"] == before["linear-2-orthogonal/gaussian"]
        repeated, once = after["linear-2-orthogonal/flow"], before["linear-2-orthogonal/flow"]
        assert repeated["seconds"] != once["seconds"]
        assert repeated["lower"] == once["lower"]

    @pytest.mark.parametrize("changed", [{"seed": 1}, {"config": replace(TINY, samples=600)}])
    def test_another_seed_or_other_settings_are_run_anew(self, bench: Benchmark, changed: dict) -> None:
        bench.run(["linear-2-*/gaussian"])
        before = rows(bench)["linear-2-orthogonal/gaussian"]
        replace(again(bench), **changed).run(["linear-2-*/gaussian"])
        assert rows(bench)["linear-2-orthogonal/gaussian"]["barber_agakov"] != before["barber_agakov"]

    def test_an_interruption_keeps_the_rows_before_it(self, bench: Benchmark) -> None:
        def stop() -> Case:
            raise KeyboardInterrupt

        interrupted = replace(bench, cases={**CASES, "fashion-prior": stop})
        with pytest.raises(KeyboardInterrupt):
            interrupted.run(["*/gaussian"])
        assert set(rows(bench)) == {"linear-2-orthogonal/gaussian"}

    def test_a_file_that_holds_something_else_is_named(self, bench: Benchmark) -> None:
        (bench.out / "benchmark_information.json").write_text("{}")
        with pytest.raises(DataError, match=r"benchmark_information\.json: holds no rows .*; move it away"):
            again(bench)


class TestSameTime:
    def test_steps_and_budget_scale_each_by_its_own_seconds(self) -> None:
        slow = {"fit_seconds": 30.0, "seconds": 50.0}
        quick = {"fit_seconds": 10.0, "seconds": 15.0}
        config = in_time_of(TINY, own=slow, other=quick)
        assert config.q_network.steps == 10
        assert config.importance == ImportanceConfig(images=4, samples=64)
        assert in_time_of(TINY, quick, slow).importance == ImportanceConfig(images=64, samples=64)

    def test_the_stopwatch_stops_with_the_fit_and_passes_progress_on(self) -> None:
        seen = []
        watch = Stopwatch(lambda *args: seen.append(args))
        watch("fitting Q", 1, 1, "")
        seconds = watch.seconds
        watch("weighing proposals", 1, 2, "state")
        assert watch.seconds == seconds > 0
        assert seen[-1] == ("weighing proposals", 1, 2, "state")


class TestCommand:
    def test_what_names_nothing_is_refused_with_what_there_is(self, bench: Benchmark) -> None:
        with pytest.raises(
            ParameterError, match=r"linear-3: names nothing; cases are linear-2-orthogonal, .*/flow"
        ):
            bench.run(["linear-3"])

    def test_absent_files_are_one_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cases = all_cases(TrainedModels(tmp_path / "kept", tmp_path / "none"))
        assert len(cases) == 13
        Benchmark(cases, tmp_path, config=TINY).run(["fashion-posterior"])
        line = f"fashion-posterior: skipped, no Fashion-MNIST in {tmp_path / 'none'}; --fashion-mnist names "
        assert capsys.readouterr().out.startswith(line)

    def test_params_about_another_set_skip_the_default_model(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        text = (Path(__file__).parents[2] / "params.yaml").read_text()
        (tmp_path / "params.yaml").write_text(text.replace("source: mnist5k", "source: digits"))
        monkeypatch.chdir(tmp_path)
        with pytest.raises(SkippedCase, match=r"params\.yaml is about digits"):
            TrainedModels(tmp_path, tmp_path).mnist5k("prior")

    def test_the_default_model_is_trained_where_the_pipeline_has_made_none(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        text = (Path(__file__).parents[2] / "params.yaml").read_text()
        for before, after in {"architecture: conv": "architecture: mlp", "epochs: 60": "epochs: 1"}.items():
            assert before in text
            text = text.replace(before, after)
        (tmp_path / "params.yaml").write_text(text)
        monkeypatch.chdir(tmp_path)
        case = TrainedModels(tmp_path, tmp_path).mnist5k("posterior")
        assert case.model.latents.units == (*(f"z{index}" for index in range(10)), "c0")
        assert case.images is not None
        assert len(case.images) == 4500

    def test_the_command_runs_what_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(mutual_information, "all_cases", lambda models: CASES)
        monkeypatch.setattr(mutual_information, "Benchmark", partial(Benchmark, config=TINY))
        app = typer.Typer()
        app.command()(mutual_information.main)
        result = CliRunner().invoke(app, ["linear-2-*/gaussian", "--seed", "3", "--out", str(tmp_path)])
        assert result.exit_code == 0, result.output
        assert "linear-2-orthogonal/gaussian: " in result.output

    def test_an_interruption_says_how_to_go_on(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(Benchmark, "run", interrupted)
        app = typer.Typer()
        app.command()(mutual_information.main)
        result = CliRunner().invoke(app, ["--out", str(tmp_path)])
        assert result.exit_code == 130
        assert result.output == "interrupted: the same command goes on, without --force\n"


class TestTables:
    def test_prose_stays_and_the_tables_are_replaced(self, tmp_path: Path) -> None:
        page = tmp_path / "page.md"
        page.write_text(f"# Title\n\nProse.\n\n{BEGIN}\n\nold\n\n{END}\n\nMore.\n")
        fill(page, "new")
        assert page.read_text() == f"# Title\n\nProse.\n\n{BEGIN}\n\nnew\n{END}\n\nMore.\n"
        fill(page, "newer")
        assert page.read_text() == f"# Title\n\nProse.\n\n{BEGIN}\n\nnewer\n{END}\n\nMore.\n"

    @pytest.mark.parametrize(
        ("truth", "inside"), [(1.39, False), (1.41, True), (2.35, True), (2.45, False), (None, None)]
    )
    def test_the_interval_reaches_two_standard_errors_out(self, truth, inside) -> None:
        row = {"truth": truth, "truth_se": 0.0, "lower": 1.5, "lower_se": 0.05, "upper": 2.2, "upper_se": 0.1}
        assert covers(row) is inside


class TestCases:
    @pytest.mark.parametrize("correlation", [0.0, 0.5])
    def test_columns_have_their_lengths_and_their_correlation(self, correlation: float) -> None:
        weight = linear_gaussian(3, correlation).model.weight
        lengths = torch.tensor([1.0, 2.0, 3.0])
        cosines = torch.full((3, 3), correlation).fill_diagonal_(1.0)
        torch.testing.assert_close(weight.T @ weight, cosines * lengths * lengths[:, None])

    def test_orthogonal_units_add_up(self) -> None:
        assert linear_gaussian(2, 0.0).truth == pytest.approx(0.5 * (math.log(2) + math.log(10)), abs=1e-6)

    def test_the_mixture_carries_less_than_its_entropy(self) -> None:
        case = mixture()
        assert 1.0 < case.truth < float(case.model.prior.entropy()) - 0.1
        assert case.truth_se < 0.003
