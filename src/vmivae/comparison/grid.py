"""The grid file: which methods, variants and seeds are compared, as runs that override params.yaml."""

from __future__ import annotations

import copy
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vmivae.errors import ParameterError
from vmivae.params import NO_PART_IN_RESULTS, check_params, flatten, read_yaml
from vmivae.tracking.configuration import CODE, stages_of
from vmivae.tracking.tree import Tree

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$", max_length=40)]
Overrides = dict[str, Any]


class Grid(BaseModel):
    """The content of a grid file: every method, with every variant, for every seed."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    title: Annotated[str, Field(min_length=1, max_length=200)]
    params: Overrides = {}
    seeds: Annotated[list[Annotated[int, Field(ge=0, lt=2**32)]], Field(min_length=1)]
    methods: Annotated[dict[Name, Overrides], Field(min_length=1)]
    variants: Annotated[dict[Name, Overrides], Field(min_length=1)] = {"plain": {}}


@dataclass(frozen=True)
class GridRun:
    """One run: its place in the grid, what it changes in params.yaml, and the name of its DVC experiment."""

    method: str
    variant: str
    seed: int
    overrides: Overrides
    experiment: str


def load_grid(path: str | Path, root: str | Path = ".") -> tuple[str, list[GridRun]]:
    """The title of a grid file and its runs, each checked as a params.yaml.

    A run's experiment is named after the grid, the method, the variant, the seed, and a digest of all
    parameters and of the code that makes the results: what has changed gets another name and runs anew.

    Args:
        path: the grid file.
        root: the checkout whose params.yaml the overrides are for.

    Raises:
        ParameterError: the file cannot be read, has unknown or missing keys, or a run's parameters are not
            accepted. One line that names the file and the method.
    """
    path, tree = Path(path), Tree.folder(root)
    try:
        grid = Grid.model_validate(read_yaml(path))
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in fault["loc"]) or "the file"
        raise ParameterError(f"{key}: {fault['msg']} ({path})") from None
    base, code = read_yaml(Path(root) / "params.yaml"), _code(tree)
    runs = []
    for method, of_method in grid.methods.items():
        for variant, of_variant in grid.variants.items():
            for seed in sorted(set(grid.seeds)):
                overrides = {**grid.params, **of_method, **of_variant, "seed": seed}
                place = f"{path}: {method}, {variant}"
                content = _overridden(base, overrides, place)
                check_params(content, place)
                digest = _digest(content, code)
                name = "-".join((path.stem, method, variant, f"s{seed}", digest))
                runs.append(GridRun(method, variant, seed, overrides, name))
    return grid.title, runs


def _overridden(base: dict[str, Any], overrides: Overrides, place: str) -> dict[str, Any]:
    """`base` with the values of dotted keys replaced."""
    content: dict[str, Any] = copy.deepcopy(base)
    for dotted, value in overrides.items():
        *groups, last = dotted.split(".")
        group: Any = content
        for key in groups:
            group = group.get(key) if isinstance(group, dict) else None
        if not isinstance(group, dict) or last not in group:
            raise ParameterError(f"{dotted}: unknown key of params.yaml ({place})")
        group[last] = value
    return content


def _code(tree: Tree) -> dict[str, str]:
    """Digests of the code that results depend on; the report is no result."""
    stages = stages_of(yaml.safe_load(tree.read_text("dvc.yaml")))
    deps = {dep for name, stage in stages.items() if name != "report" for dep in stage.deps}
    files = {file for dep in deps if dep.startswith(CODE) for file in tree.files(dep)}
    return {file: hashlib.sha256(tree.read_bytes(file)).hexdigest() for file in sorted(files)}


def _digest(content: dict[str, Any], code: dict[str, str]) -> str:
    values = flatten(content)
    params = {name: values[name] for name in values if not name.startswith(NO_PART_IN_RESULTS)}
    return hashlib.sha256(json.dumps([params, code], sort_keys=True).encode()).hexdigest()[:8]
