"""The schema of params.yaml: every key, its type and range, and which keys go together.

This is the only module that knows the file. Stages read it and hand plain values down.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from vmivae.errors import ParameterError

SOURCES = (
    "mnist5k",
    "digits",
    "mnist",
    "fashion_mnist",
    "kmnist",
    "emnist",
    "svhn",
    "cifar10",
    "celeba",
    "folder",
    "npz",
)
MAX_STEPS = 10**9


class Group(BaseModel):
    """One block of params.yaml: unknown keys are refused, values are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def _listed(values: Any) -> Any:
    return tuple(values) if isinstance(values, list) else values


Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Steps = Annotated[int, Field(ge=1, le=MAX_STEPS)]
Classes = Annotated[int, Field(ge=2, le=1000)]


class Data(Group):
    source: Literal[SOURCES]  # type: ignore[valid-type]
    root: Annotated[str, Field(min_length=1)]
    image_size: Annotated[int, Field(ge=4, le=512)]
    channels: Literal["auto", "grey", "rgb"]
    binarize: Literal["none", "threshold", "dynamic"]
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.1
    split_seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    split: Literal["balanced", "byclass", "bymerge", "letters", "digits", "mnist"] | None = None


class Latents(Group):
    continuous: Annotated[int, Field(ge=0, le=1000)]
    discrete: Annotated[tuple[Classes, ...], BeforeValidator(_listed), Field(max_length=100)]


class Model(Group):
    architecture: Literal["conv", "mlp"]
    likelihood: Literal["bernoulli", "continuous_bernoulli", "gaussian"]
    scale: Literal["learned"] | Positive = "learned"


class Ramp(Group):
    """A value that goes linearly from `start` to `end` within `steps` training steps, then stays."""

    start: NonNegative
    end: NonNegative
    steps: Steps


class DiscreteRamp(Ramp):
    end: NonNegative | None  # type: ignore[assignment]  # null: Σ log K_j


class Capacity(Group):
    continuous: Ramp = Ramp(start=0.0, end=5.0, steps=3500)
    discrete: DiscreteRamp = DiscreteRamp(start=0.0, end=None, steps=3500)


class PerType(Group):
    continuous: NonNegative
    discrete: NonNegative


class TemperatureRamp(Group):
    start: Positive
    end: Positive
    steps: Steps


class Objective(Group):
    regularizer: Literal["beta", "capacity"]
    beta: NonNegative = 1.0
    gamma: NonNegative | PerType = 30.0
    capacity: Capacity = Capacity()


class Train(Group):
    epochs: Annotated[int, Field(ge=1, le=10**6)]
    batch_size: Annotated[int, Field(ge=1, le=10**6)]
    learning_rate: Positive
    clip_norm: Positive | None
    temperature: Positive | TemperatureRamp
    device: Literal["auto", "cpu", "cuda", "mps"]
    precision: Literal["auto", "fp32", "bf16"]
    compile: Literal["auto"] | bool


class Evaluation(Group):
    importance_samples: Annotated[int, Field(ge=1, le=10**6)]


class QNetwork(Group):
    family: Literal["gaussian"]
    steps: Steps
    batch_size: Annotated[int, Field(ge=1, le=10**6)]


class MutualInformation(Group):
    codes: Literal["posterior", "prior"]
    split: Literal["train", "test"] = "train"
    q_network: QNetwork
    samples: Annotated[int, Field(ge=2, le=10**9)]


class Tracking(Group):
    experiment: Annotated[str, Field(min_length=1, max_length=250)]


class Params(Group):
    """All of params.yaml, checked."""

    seed: Annotated[int, Field(ge=0, lt=2**32)]
    data: Data
    latents: Latents
    model: Model
    objective: Objective
    train: Train
    evaluation: Evaluation
    mutual_information: MutualInformation
    tracking: Tracking

    def flat(self) -> dict[str, Any]:
        """Dotted keys and plain values, as in `objective.capacity.continuous.end`."""
        return _flatten(self.model_dump(mode="json"))


def load_params(path: str | Path = "params.yaml") -> Params:
    """Read and check a params.yaml.

    Raises:
        ParameterError: the file is missing or not YAML, or a key is unknown, missing, of the wrong type, out of
            range, or without effect beside the others. One line, naming the key, the value and what is accepted.
    """
    path = Path(path)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ParameterError(f"{path}: cannot be read ({_reason(error)})") from None
    try:
        content = yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, RecursionError) as error:
        raise ParameterError(f"{path}: is not YAML ({' '.join(str(error).split())})") from None
    try:
        params = Params.model_validate(content)
    except ValidationError as error:
        raise ParameterError(_explain(error, path)) from None
    for complaint in _inconsistencies(params):
        raise ParameterError(f"{complaint} ({path})")
    return params


def _inconsistencies(params: Params) -> list[str]:
    """What is wrong between keys. A key that has no effect may be left at its default, never set."""
    latents, objective, model = params.latents, params.objective, params.model
    found = []
    if not latents.continuous and not latents.discrete:
        found.append("latents: needs at least one unit, got continuous: 0 and discrete: []")
    if model.architecture == "conv" and params.data.image_size not in (32, 64):
        found.append(
            "data.image_size: must be 32 or 64 with model.architecture: conv (any size with mlp), "
            f"got {params.data.image_size}"
        )
    if model.likelihood != "gaussian":
        found += _unused(params, "model.scale", f"model.likelihood: {model.likelihood}", "gaussian")
    if params.data.source == "emnist" and params.data.split is None:
        found.append(
            "data.split: must be one of balanced, byclass, bymerge, letters, digits, mnist with data.source: emnist"
        )
    if params.data.source != "emnist":
        found += _unused(params, "data.split", f"data.source: {params.data.source}", "emnist")
    chosen = f"objective.regularizer: {objective.regularizer}"
    if objective.regularizer == "capacity":
        found += _unused(params, "objective.beta", chosen, "beta")
    else:
        for key in ("objective.gamma", "objective.capacity.continuous", "objective.capacity.discrete"):
            found += _unused(params, key, chosen, "capacity")
    if objective.regularizer == "capacity" and not latents.continuous:
        found += _unused(params, "objective.capacity.continuous", "latents.continuous: 0", "at least 1")
    if objective.regularizer == "capacity" and not latents.discrete:
        found += _unused(params, "objective.capacity.discrete", "latents.discrete: []", "at least one unit")
    most = sum(math.log(classes) for classes in latents.discrete)
    if objective.regularizer == "capacity" and latents.discrete:
        ramp = objective.capacity.discrete
        for name, value in (("start", ramp.start), ("end", ramp.end)):
            if value is not None and value > most + 1e-9:
                found.append(
                    f"objective.capacity.discrete.{name}: must be ≤ {most:.4f} = Σ log K_j nats, the most that "
                    f"latents.discrete: {list(latents.discrete)} can carry, got {value} (null means that most)"
                )
    return found


def _unused(params: Params, key: str, because: str, needed: str) -> list[str]:
    """A complaint for every key at or below `key` that was set to other than its default."""
    holder: Any = params
    *above, name = key.split(".")
    for part in above:
        holder = getattr(holder, part)
    value, default = getattr(holder, name), type(holder).model_fields[name].default
    if value == default:
        return []
    if isinstance(value, Ramp) and isinstance(default, Ramp):
        values, defaults = value.model_dump(), default.model_dump()
        key, value, default = next(
            (f"{key}.{part}", values[part], defaults[part])
            for part in values
            if values[part] != defaults[part]
        )
    shown = "null" if default is None else default
    setting = because.split(":")[0]
    return [
        f"{key}: has no effect with {because}; leave it at {shown} or set {setting} to {needed}, got {value}"
    ]


def _explain(error: ValidationError, path: Path) -> str:
    """One line for the first fault, and how many more there are."""
    faults = _distinct(error.errors(include_url=False))
    more = f"; and {len(faults) - 1} more" if len(faults) > 1 else ""
    return f"{faults[0]} ({path}{more})"


def _distinct(errors: list[ErrorDetails]) -> list[str]:
    """Faults by key. The branches of a union each complain; the one that fits the value's kind is kept."""
    by_key: dict[str, list[ErrorDetails]] = {}
    for fault in errors:
        by_key.setdefault(_key(fault), []).append(fault)
    lines = []
    for key, faults in by_key.items():
        accepted = " or ".join(dict.fromkeys(_accepted(fault) for fault in faults))
        value = faults[0]["input"]
        kind = faults[0]["type"]
        if kind == "extra_forbidden":
            lines.append(f"{key}: unknown key")
        elif kind == "missing":
            lines.append(f"{key}: missing")
        else:
            lines.append(f"{key}: must be {accepted}, got {_shown(value)}")
    return lines


def _key(fault: ErrorDetails) -> str:
    # Union branches appear in the location as type names ('float', 'literal[…]', 'PerType'): not keys.
    parts = [str(part) for part in fault["loc"]]
    keys = [
        p
        for p in parts
        if re.fullmatch(r"[a-z_0-9]+", p) and p not in {"float", "bool", "int", "str", "none"}
    ]
    return ".".join(keys) or "params.yaml"


def _accepted(fault: ErrorDetails) -> str:
    context = fault.get("ctx", {})
    match fault["type"]:
        case "greater_than":
            return f"> {context['gt']}"
        case "greater_than_equal":
            return f"≥ {context['ge']}"
        case "less_than":
            return f"< {context['lt']}"
        case "less_than_equal":
            return f"≤ {context['le']}"
        case "literal_error":
            return f"one of {context['expected']}".replace("'", "").replace(" or ", ", ")
        case "float_type" | "finite_number":
            return "a finite number"
        case "int_type":
            return "a whole number"
        case "bool_type":
            return "true or false"
        case "string_type":
            return "text"
        case "string_too_short":
            return "non-empty text"
        case "tuple_type":
            return "a list"
        case "model_type" | "model_attributes_type":
            return "a block of keys"
        case "none_required":
            return "null"
        case "too_long":
            return f"a list of at most {context['max_length']}"
        case "string_too_long":
            return f"text of at most {context['max_length']} characters"
        case _:
            return fault["msg"]


def _shown(value: Any) -> str:
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "…"


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not UTF-8 text"


def _flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


class _Loader(yaml.SafeLoader):
    """YAML as people write it: `5e-4` is a number (YAML 1.2), and a key given twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        mapping: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=deep)
            if key in mapping:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} twice", key_node.start_mark)
            mapping[key] = self.construct_object(value_node, deep=deep)
        return mapping


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d[\d_]*)(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)
