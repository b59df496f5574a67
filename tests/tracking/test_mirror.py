"""Files projected onto rows, in whatever order and however often."""

from vmivae.tracking.configuration import Configuration
from vmivae.tracking.facts import present_facts, read_facts, save_facts
from vmivae.tracking.mirror import mirror
from vmivae.tracking.tree import Tree

ALL = ["prepare", "train", "evaluate", "estimate_mi", "report"]


def _facts(started):
    return present_facts() | {"started": started, "seconds": 12.5}


def test_trainer_is_named_though_its_row_comes_last(checkout):
    checkout.all()
    store = checkout.store()
    checkout.set("mutual_information.samples", 17)
    later = Configuration(Tree.folder(checkout.root))
    later_id = mirror(store, later, ALL, {"estimate_mi": _facts(2000.0)}, "later")
    checkout.set("mutual_information.samples", 18)
    first = Configuration(Tree.folder(checkout.root))
    first_id = mirror(store, first, ALL, {"train": _facts(1000.0)}, "first")
    for run_id in (first_id, later_id):
        assert store.client.get_run(run_id).data.tags["vmivae.trained_by"] == first_id
    assert store.client.get_run(first_id).info.start_time == 1_000_000


def test_mirroring_again_changes_nothing(checkout):
    checkout.all()
    store = checkout.store()
    configuration = Configuration(Tree.folder(checkout.root))
    facts = {"train": _facts(1000.0)}
    run_id = mirror(store, configuration, ALL, facts)
    before = store.client.get_run(run_id)
    assert mirror(store, configuration, ALL, facts) == run_id
    after = store.client.get_run(run_id)
    assert after.data.to_dictionary() == before.data.to_dictionary()
    assert [model.model_id for model in after.outputs.model_outputs] == [
        model.model_id for model in before.outputs.model_outputs
    ]
    assert len(store.client.get_metric_history(run_id, "training/loss")) == 2


def test_long_curves_are_thinned_and_keep_both_ends(checkout):
    checkout.all()
    rows = [{"epoch": i, "step": 10 * i, "loss": float(i)} for i in range(1, 5001)]
    checkout.write("plots/training.csv", rows)
    store = checkout.store()
    run_id = mirror(store, Configuration(Tree.folder(checkout.root)), ["prepare", "train"], {})
    steps = [point.step for point in store.client.get_metric_history(run_id, "training/loss")]
    assert (min(steps), max(steps)) == (10, 50_000)
    assert len(steps) == len(set(steps)) == 1001


def test_default_name_gives_way_to_an_experiments_and_no_further(checkout):
    checkout.all()
    store = checkout.store()
    configuration = Configuration(Tree.folder(checkout.root))
    for name, shown in (("", configuration.title()), ("busby-lilt", "busby-lilt"), ("other", "busby-lilt")):
        run_id = mirror(store, configuration, ALL, {}, name)
        assert store.client.get_run(run_id).info.run_name == shown


def test_facts_are_kept_by_stage_and_damage_is_no_error(checkout):
    save_facts(checkout.root, "k", "train", {"seconds": 1.0})
    save_facts(checkout.root, "k", "report", {"seconds": 2.0})
    assert read_facts(checkout.root, "k") == {"train": {"seconds": 1.0}, "report": {"seconds": 2.0}}
    (checkout.root / ".vmivae/runs/k.json").write_text("{")
    assert read_facts(checkout.root, "k") == {}
