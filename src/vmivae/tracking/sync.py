"""Rows rebuilt from the files of the workspace and of every DVC experiment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from vmivae.tracking.configuration import CODE, Configuration
from vmivae.tracking.facts import read_facts
from vmivae.tracking.mirror import finish_row, mirror
from vmivae.tracking.store import one_line, open_store
from vmivae.tracking.tree import Tree


def sync(root: Path) -> Iterator[str]:
    """Mirror the workspace at `root` and every DVC experiment; yields one line on each.

    Only stages whose results belong to the revision's own parameters and code are mirrored.
    """
    from dvc.repo import Repo

    with Repo(str(root)) as repo:
        yield _sync_revision("workspace", repo, Tree.folder(root), root, name="")
        experiments = repo.experiments.ls(all_commits=True)
    for name, revision in sorted(pair for pairs in experiments.values() for pair in pairs):
        with Repo(str(root), rev=revision) as repo:
            yield _sync_revision(f"experiment {name}", repo, Tree(repo.dvcfs, ""), root, name)


def _sync_revision(what: str, repo: Any, tree: Tree, root: Path, name: str) -> str:
    try:
        configuration = Configuration(tree)
        experiment = configuration.experiment
    except (FileNotFoundError, KeyError, TypeError, yaml.YAMLError) as error:
        return f"{what}: nothing to mirror (not prepared, or not of this pipeline: {one_line(error)})"
    try:
        stages = current_stages(repo, in_workspace=not name)
        if not stages:
            return f"{what}: nothing to mirror (no stage is up to date; `dvc repro` makes it so)"
        store = open_store(root, experiment)
        facts = read_facts(root, configuration.key)
        before = store.find(configuration.key)
        run_id = mirror(store, configuration, stages, facts, name)
    except FileNotFoundError as error:
        return f"{what}: nothing to mirror (its results are no longer in DVC's cache: {one_line(error)})"
    missing = [stage for stage in configuration.stages if stage not in stages]
    # An incomplete row may be at work just now, or show why it is incomplete.
    if before is None or not missing:
        ends = [fact["started"] + fact["seconds"] for fact in facts.values()]
        finish_row(store, run_id, max(ends, default=None))
    left = f", without {', '.join(missing)} (not up to date)" if missing else ""
    return f"{what}: mirrored{left}"


def current_stages(repo: Any, in_workspace: bool) -> list[str]:
    """Stages of a DVC repository whose outputs its present parameters and code have made, first things first.

    The raw data are not asked for: a revision may have none, and the prepared set's hash is part of the key.

    Args:
        repo: a `dvc.repo.Repo`, of the workspace or of a revision.
        in_workspace: whether the outputs on disk must be those that dvc.lock names too.
    """
    waiting = {stage.name: stage for stage in repo.index.stages if getattr(stage, "name", None)}
    made_by = {out.def_path: stage for stage in waiting.values() for out in stage.outs}
    current: list[str] = []

    def holds(dep: Any) -> bool:
        path = getattr(dep, "def_path", "params.yaml")
        for out_path, producer in made_by.items():
            if path == out_path or path.startswith(f"{out_path}/"):
                out = next(out for out in producer.outs if out.def_path == out_path)
                return producer.name in current and dep.hash_info == out.hash_info
        is_code = path.startswith(CODE) or path == "params.yaml"
        return not is_code or not dep.status()

    progressing = True
    while progressing:
        progressing = False
        for name, stage in list(waiting.items()):
            if all(holds(dep) for dep in stage.deps) and not (
                in_workspace and any(out.status() for out in stage.outs)
            ):
                current.append(name)
                del waiting[name]
                progressing = True
    return current
