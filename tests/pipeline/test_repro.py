"""`dvc repro`: what runs when, the same bytes twice, one complete row."""

import time

import pytest
from repository import ALL, stages_run

from vmivae.tracking import configuration_key

pytestmark = pytest.mark.slow


def test_first_run_makes_one_complete_row(reproduced):
    row = reproduced.store().find(configuration_key(reproduced.root))
    metrics, evaluation, mi = row.data.metrics, reproduced.metrics("evaluation"), reproduced.metrics("mi")
    assert row.info.status == "FINISHED"
    assert metrics["train.rate"] == reproduced.metrics("train")["rate"]
    assert metrics["evaluation.mse"] == evaluation["mse"]
    assert metrics["mi.lower"] == mi["lower"]
    assert metrics["mi.per_unit.c0.lower"] == mi["per_unit"]["c0"]["lower"]
    assert row.data.params["train.epochs"] == "2"
    assert {f"seconds.{stage}" for stage in ALL} <= set(metrics)
    client = reproduced.store().client
    losses = client.get_metric_history(row.info.run_id, "training/loss")
    rows = (reproduced.root / "plots/training.csv").read_text().splitlines()[1:]
    assert len({point.step for point in losses}) == len(losses) == len(rows) == 2
    artifacts = {file.path for file in client.list_artifacts(row.info.run_id, "reports")}
    assert "reports/report.html" in artifacts
    commit = reproduced.run("git", "rev-parse", "HEAD~1").strip()
    assert row.data.tags["mlflow.source.git.commit"] == commit
    assert row.data.tags["vmivae.dirty"] == "false"


def test_nothing_is_left_for_git_or_dvc(reproduced):
    assert reproduced.run("git", "status", "--porcelain") == ""
    assert "up to date" in reproduced.run("dvc", "status")


def test_second_run_runs_nothing_and_takes_seconds(reproduced):
    started = time.monotonic()
    output = reproduced.run("dvc", "repro")
    assert stages_run(output) == []
    assert time.monotonic() - started < 30


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"mutual_information": {"samples": 201}}, ["estimate_mi", "report"]),
        ({"evaluation": {"importance_samples": 3}}, ["evaluate", "report"]),
        ({"objective": {"gamma": 31.0}}, ALL[1:]),
        ({"latents": {"continuous": 3}}, ALL[1:]),
        ({"train": {"epochs": 3}}, ALL[1:]),
        ({"data": {"split_seed": 1}}, ALL),
        ({"tracking": {"experiment": "other"}}, []),
    ],
)
def test_a_change_runs_what_it_affects(reproduced, change, expected):
    with reproduced.changed(change):
        output = reproduced.run("dvc", "repro", "--dry", "--force-downstream")
    assert sorted(stages_run(output)) == sorted(expected)


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        ("mutual_information/estimate.py", ["estimate_mi", "report"]),
        ("evaluation/elbo.py", ["evaluate", "report"]),
        ("training/loop.py", ALL[1:]),
        ("reporting/page.py", ["report"]),
        ("tracking/mirror.py", []),
    ],
)
def test_editing_a_room_runs_the_stages_that_live_off_it(reproduced, room, expected):
    file = reproduced.root / "src/vmivae" / room
    before = file.read_text()
    file.write_text(before + "\n# a remark\n")
    try:
        output = reproduced.run("dvc", "repro", "--dry", "--force-downstream")
    finally:
        file.write_text(before)
    assert sorted(stages_run(output)) == sorted(expected)


def test_forced_repeat_gives_the_same_bytes_and_no_second_row(reproduced):
    before, rows = reproduced.results(), set(reproduced.rows())
    output = reproduced.run("dvc", "repro", "--force")
    assert stages_run(output) == ALL
    after = reproduced.results()
    assert sorted(before) == sorted(after)
    assert [name for name in before if before[name] != after[name]] == []
    assert set(reproduced.rows()) == rows
    assert reproduced.run("git", "status", "--porcelain") == ""


def test_plots_show_and_compare(reproduced, tmp_path):
    reproduced.run("dvc", "plots", "show", "--out", str(tmp_path / "show"))
    page = (tmp_path / "show/index.html").read_text()
    assert "training loss" in page
    assert "nats per image" in page
    with reproduced.changed({"train": {"epochs": 3}}):
        reproduced.run("dvc", "repro", "train")
        try:
            reproduced.run("dvc", "plots", "diff", "HEAD", "--out", str(tmp_path / "diff"))
            assert "workspace" in (tmp_path / "diff/index.html").read_text()
            assert "train.json" in reproduced.run("dvc", "metrics", "diff", "HEAD")
        finally:
            reproduced.run("git", "checkout", "-q", ".")
            reproduced.run("dvc", "checkout", "--force", "--quiet")
