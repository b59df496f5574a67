"""What a row in MLflow stands for: parameters, data and code, and the key that names the three."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from vmivae.params import NO_PART_IN_RESULTS, flatten, parse_yaml
from vmivae.tracking.tree import Tree

PREPARED = "data/prepared"
DATA_CARD = f"{PREPARED}/data_card.json"
CODE = ("src/", "stages")


@dataclass(frozen=True)
class Stage:
    """A stage of dvc.yaml: what it reads and writes, and the groups and keys of params.yaml it depends on."""

    name: str
    deps: tuple[str, ...]
    outs: tuple[str, ...]
    params: tuple[str, ...]


class Configuration:
    """The configuration of a checkout whose data are prepared.

    Args:
        tree: the checkout.

    Raises:
        FileNotFoundError: params.yaml, dvc.yaml or the data card is missing.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.params: dict[str, Any] = parse_yaml(tree.read_text("params.yaml"))
        self.stages = stages_of(yaml.safe_load(tree.read_text("dvc.yaml")))
        self.data_card: dict[str, Any] = json.loads(tree.read_text(DATA_CARD))

    @property
    def data_hash(self) -> str:
        """Content hash of the prepared images and labels."""
        return str(self.data_card["hash"])

    @property
    def experiment(self) -> str:
        """The MLflow experiment that the row belongs to."""
        return str(self.params["tracking"]["experiment"])

    @cached_property
    def key(self) -> str:
        """SHA-256 of the parameters, the data's hash, and the code that stages depend on.

        Parameters that decide nothing about results are left out.
        """
        names = [name for name in flatten(self.params) if not name.startswith(NO_PART_IN_RESULTS)]
        return self._digest(names, self.stages)

    @cached_property
    def training_key(self) -> str:
        """The same over what the trained model depends on: equal for rows that share their model."""
        upstream = self.upstream("train")
        names = {param for name in upstream for param in self.stages[name].params}
        return self._digest(names, upstream)

    def stage_key(self, name: str) -> str:
        """SHA-256 of what decides the results of one stage: its parameters, its inputs and its code."""
        stage = self.stages[name]
        # The card stands for the prepared set, which can be large.
        inputs = [dep for dep in stage.deps if not dep.startswith((*CODE, PREPARED))]
        return self._digest(stage.params, [name], [DATA_CARD, *inputs])

    def upstream(self, name: str) -> list[str]:
        """The stage and every stage whose outputs it needs, first things first."""
        stage = self.stages[name]
        found: list[str] = []
        for other in self.stages.values():
            if other.name != name and _needs(stage, other):
                found += [earlier for earlier in self.upstream(other.name) if earlier not in found]
        return [*found, name]

    def results(self, name: str) -> list[str]:
        """The files that a stage has written, as far as a row shows them. Of the prepared data, the card."""
        files = [file for out in self.stages[name].outs for file in self.tree.files(out)]
        return [file for file in files if not file.startswith("data/") or file == DATA_CARD]

    def title(self) -> str:
        """A readable name for a row that no DVC experiment has named."""
        latents = self.params["latents"]
        units = [f"z{latents['continuous']}"] if latents["continuous"] else []
        units += [f"c{classes}" for classes in latents["discrete"]]
        words = [self.params["data"]["source"], self.params["objective"]["regularizer"], *units, self.key[:6]]
        return "-".join(words)

    def flat_params(self) -> dict[str, str]:
        """Every value of params.yaml as text under its dotted key."""
        return {name: _text(value) for name, value in flatten(self.params).items()}

    def _digest(self, params: Iterable[str], stages: Iterable[str], inputs: Iterable[str] = ()) -> str:
        deps = {dep for name in stages for dep in self.stages[name].deps if dep.startswith(CODE)}
        files = {file for dep in (*deps, *inputs) for file in self.tree.files(dep)}
        content = {
            "params": {name: self._param(name) for name in params},
            "data": self.data_hash,
            "code": {file: hashlib.sha256(self.tree.read_bytes(file)).hexdigest() for file in files},
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def _param(self, name: str) -> Any:
        """A value of params.yaml, or a group of them, by its dotted name; None if it is not there."""
        value: Any = self.params
        for key in name.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        return value


def configuration_key(root: str | Path = ".") -> str:
    """Key of the configuration in a checkout whose data are prepared.

    Raises:
        FileNotFoundError: params.yaml, dvc.yaml or the data card is missing.
    """
    return Configuration(Tree.folder(root)).key


def stages_of(content: dict[str, Any]) -> dict[str, Stage]:
    """The stages of a dvc.yaml by name."""

    def names(entries: list[Any]) -> tuple[str, ...]:
        # An entry is a path, or a mapping of one path to its options.
        return tuple(entry if isinstance(entry, str) else next(iter(entry)) for entry in entries)

    return {
        name: Stage(
            name,
            deps=names(stage.get("deps", [])),
            outs=names([*stage.get("outs", []), *stage.get("metrics", [])]),
            params=names(stage.get("params", [])),
        )
        for name, stage in content["stages"].items()
    }


def _needs(stage: Stage, other: Stage) -> bool:
    return any(dep == out or dep.startswith(f"{out}/") for dep in stage.deps for out in other.outs)


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
