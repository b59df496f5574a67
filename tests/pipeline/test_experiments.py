"""DVC experiments: in the workspace, in throw-away copies and from the queue; one store for all of them."""

import pytest
from repository import stages_run

from vmivae.tracking import configuration_key

pytestmark = pytest.mark.slow

METRICS = ("train.loss", "evaluation.mse", "mi.lower")


@pytest.fixture(scope="module")
def experiments(reproduced):
    """An experiment in a copy and two from the queue, run side by side; what the first has printed."""
    # A copy must run its own code, though `vmivae` may be installed from elsewhere.
    room = reproduced.root / "src/vmivae/mutual_information/__init__.py"
    before = room.read_text()
    room.write_text(before + '\nprint("code of", __file__)\n')
    temporary = reproduced.run(
        "dvc", "exp", "run", "--temp", "--name", "in-a-copy", "-S", "mutual_information.importance=null"
    )
    room.write_text(before)
    queue = ["dvc", "exp", "run", "--queue"]
    reproduced.run(*queue, "--name", "prior-codes", "-S", "mutual_information.codes=prior")
    beta = ["-S", "objective.regularizer=beta", "-S", "objective.beta=4"]
    defaults = [
        "-S",
        "objective.capacity.continuous={start: 0.0, end: 5.0, steps: 3800}",
        "-S",
        "objective.capacity.discrete={start: 0.0, end: null, steps: 3300}",
    ]
    reproduced.run(*queue, "--name", "beta-4", *beta, *defaults)
    reproduced.run("dvc", "queue", "start", "--jobs", "2")
    status = reproduced.finish_queue(600)
    assert "Failed" not in status, status + reproduced.run("dvc", "queue", "logs", "beta-4")
    return temporary


def test_a_copy_runs_its_own_code_and_only_what_changed(reproduced, experiments):
    assert stages_run(experiments) == ["estimate_mi", "report"]
    (line,) = {line for line in experiments.splitlines() if line.startswith("code of")}
    assert f"code of {reproduced.root}/.dvc/tmp/exps/" in line


def test_every_experiment_is_a_complete_row_of_the_same_store(reproduced, experiments):
    rows = reproduced.rows()
    assert {"in-a-copy", "prior-codes", "beta-4"} < set(rows)
    for row in rows.values():
        assert row.info.status == "FINISHED"
        assert set(METRICS) <= set(row.data.metrics)
        assert row.outputs.model_outputs
        assert row.info.artifact_uri.startswith(str(reproduced.root / "mlartifacts"))
    assert rows["beta-4"].data.params["objective.beta"] in ("4", "4.0")
    assert rows["prior-codes"].data.tags["vmivae.dvc_experiment"] == "prior-codes"
    client = reproduced.store().client
    for row in rows.values():
        assert client.list_artifacts(row.info.run_id, "reports")
        assert len(client.get_metric_history(row.info.run_id, "training/loss")) == 2


def test_without_an_interval_there_is_a_lower_bound_alone(reproduced, experiments):
    row = reproduced.rows()["in-a-copy"]
    assert row.data.params["mutual_information.importance"] == "null"
    assert row.data.metrics["mi.lower"] == row.data.metrics["mi.barber_agakov"]
    assert "mi.upper" not in row.data.metrics


def test_rows_that_share_their_training_name_the_run_that_trained(reproduced, experiments):
    rows = reproduced.rows()
    first = reproduced.store().find(configuration_key(reproduced.root)).info.run_name
    trained_by = {name: row.data.tags["vmivae.trained_by"] for name, row in rows.items()}
    assert trained_by["prior-codes"] == trained_by["in-a-copy"] == rows[first].info.run_id
    assert trained_by["beta-4"] == rows["beta-4"].info.run_id
    assert rows["prior-codes"].data.metrics["train.loss"] == rows[first].data.metrics["train.loss"]
    assert rows["prior-codes"].data.metrics["mi.lower"] != rows[first].data.metrics["mi.lower"]


def test_sync_rebuilds_a_lost_store(reproduced, experiments):
    def shown(rows):
        """What a row says but for the throughput of each epoch, which is in no file."""
        return {
            name: (
                row.data.params,
                {key: v for key, v in row.data.metrics.items() if key != "training/images_per_second"},
                {key: v for key, v in row.data.tags.items() if key != "vmivae.trained_by"},
            )
            for name, row in rows.items()
        }

    before = reproduced.rows()
    reproduced.run("rm", "-r", "mlflow.db", "mlartifacts")
    output = reproduced.run("python", "-m", "vmivae.tracking", "sync", PYTHONPATH="src")
    assert output.count("mirrored") == 4, output
    after = reproduced.rows()
    assert shown(after) == shown(before)
    names = {row.info.run_id: name for name, row in before.items()}
    new_names = {row.info.run_id: name for name, row in after.items()}
    assert not names.keys() & new_names.keys()
    for name, row in after.items():
        trained_by = names[before[name].data.tags["vmivae.trained_by"]]
        assert new_names[row.data.tags["vmivae.trained_by"]] == trained_by
    assert all(row.outputs.model_outputs and row.info.status == "FINISHED" for row in after.values())
    again = reproduced.run("python", "-m", "vmivae.tracking", "sync", PYTHONPATH="src")
    assert again.count("mirrored") == 4
    assert {row.info.run_id for row in reproduced.rows().values()} == {
        row.info.run_id for row in after.values()
    }


def test_sync_leaves_out_what_is_not_up_to_date(reproduced, experiments):
    before = set(reproduced.rows())
    with reproduced.changed({"mutual_information": {"samples": 444}}):
        output = reproduced.run("python", "-m", "vmivae.tracking", "sync", PYTHONPATH="src")
        assert "workspace: mirrored, without estimate_mi, report" in output
        rows = reproduced.rows()
        (partial,) = (row for row in rows.values() if row.data.params["mutual_information.samples"] == "444")
        client, run_id = reproduced.store().client, partial.info.run_id
        client.set_tag(run_id, "vmivae.failure", "estimate_mi: no memory left")
        client.set_terminated(run_id, "FAILED")
        reproduced.run("python", "-m", "vmivae.tracking", "sync", PYTHONPATH="src")
    failed = client.get_run(run_id)
    assert (failed.info.status, failed.data.tags["vmivae.failure"][:11]) == ("FAILED", "estimate_mi")
    assert set(rows) - before == {partial.info.run_name}
    assert not [name for name in partial.data.metrics if name.startswith("mi.")]
    assert partial.data.metrics["train.loss"] > 0
    assert partial.info.status == "FINISHED"
    client.delete_run(run_id)
