"""The schema of params.yaml: every key, its type and range, and which keys go together.

This is the only module that knows the file. Stages read it and hand plain values down.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

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
    "sprites",
    "dsprites",
    "folder",
    "npz",
)
UNSPLIT_SOURCES = ("mnist5k", "digits", "sprites", "dsprites", "folder", "npz")
"""Sets that come, or may come, without a test split of their own."""
NO_PART_IN_RESULTS = ("tracking.", "train.checkpoint_seconds")
"""What the dotted keys begin with that decide nothing about results."""
SOURCES_WITH_FACTORS = ("sprites", "dsprites", "celeba", "npz")
"""Sets whose generative factors are, or may be, known."""
MAX_STEPS = 10**9
MAX_FILE_BYTES = 100_000
MOST_IMAGES = 10**7


class Group(BaseModel):
    """One block of params.yaml: unknown keys are refused, values are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def _listed(values: Any) -> Any:
    return tuple(values) if isinstance(values, list) else values


def _plain(text: str) -> str:
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in text):
        raise PydanticCustomError("text", "text without control characters")
    return text


Plain = AfterValidator(_plain)
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Steps = Annotated[int, Field(ge=1, le=MAX_STEPS)]
Classes = Annotated[int, Field(ge=2, le=1000)]
GridSize = Annotated[int, Field(ge=1, le=1000)]


class Sprites(Group):
    """How many values each factor takes, and how many images of all combinations there are."""

    shape: Annotated[int, Field(ge=1, le=3)] = 3
    scale: GridSize = 6
    orientation: GridSize = 40
    position_x: GridSize = 32
    position_y: GridSize = 32
    count: Annotated[int, Field(ge=2, le=MOST_IMAGES)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0

    @property
    def combinations(self) -> int:
        return self.shape * self.scale * self.orientation * self.position_x * self.position_y


class Data(Group):
    source: Literal[SOURCES]  # type: ignore[valid-type]
    root: Annotated[str, Field(min_length=1, max_length=4096), Plain]
    image_size: Annotated[int, Field(ge=4, le=512)]
    channels: Literal["auto", "grey", "rgb"]
    binarize: Literal["none", "threshold", "dynamic"]
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.1
    split_seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    split: Literal["balanced", "byclass", "bymerge", "letters", "digits", "mnist"] | None = None
    sprites: Sprites = Sprites()


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
    continuous: Ramp = Ramp(start=0.0, end=5.0, steps=3800)
    discrete: DiscreteRamp = DiscreteRamp(start=0.0, end=None, steps=3300)


class PerType(Group):
    continuous: NonNegative
    discrete: NonNegative


class TemperatureRamp(Group):
    start: Positive
    end: Positive
    steps: Steps


class Information(Group):
    continuous: NonNegative = 0.0
    discrete: NonNegative = 0.0
    units: (
        Literal["all"]
        | Annotated[tuple[str, ...], BeforeValidator(_listed), Field(min_length=1, max_length=1100)]
    ) = "all"
    codes: Literal["prior", "posterior"] = "prior"


class Objective(Group):
    regularizer: Literal["beta", "capacity"]
    beta: NonNegative = 1.0
    gamma: NonNegative | PerType = PerType(continuous=30.0, discrete=10.0)
    capacity: Capacity = Capacity()
    information: Information = Information()


class Train(Group):
    epochs: Annotated[int, Field(ge=1, le=10**6)]
    batch_size: Annotated[int, Field(ge=1, le=10**6)]
    learning_rate: Positive
    clip_norm: Positive | None
    temperature: Positive | TemperatureRamp = 0.67
    device: Literal["auto", "cpu", "cuda", "mps"]
    precision: Literal["auto", "fp32", "bf16"]
    compile: Literal["auto"] | bool
    checkpoint_seconds: Positive = 60.0


class Evaluation(Group):
    importance_samples: Annotated[int, Field(ge=1, le=10**6)]
    repeats: Annotated[int, Field(ge=2, le=100)] = 5


class QNetwork(Group):
    family: Literal["gaussian", "flow"]
    steps: Steps
    batch_size: Annotated[int, Field(ge=1, le=10**6)]


class Importance(Group):
    images: Annotated[int, Field(ge=4, le=10**7)]
    samples: Annotated[int, Field(ge=1, le=10**7)]
    width: Positive | None = None
    units: Literal["categorical", "all"] = "categorical"


class MutualInformation(Group):
    codes: Literal["posterior", "prior"]
    split: Literal["train", "test"] = "train"
    q_network: QNetwork
    samples: Annotated[int, Field(ge=2, le=10**9)]
    importance: Importance | None


class Tracking(Group):
    experiment: Annotated[str, Field(min_length=1, max_length=250), Plain]


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
        return flatten(self.model_dump(mode="json"))


def load_params(path: str | Path = "params.yaml") -> Params:
    """Read and check a params.yaml.

    Raises:
        ParameterError: the file is missing or not YAML, or a key is unknown, missing, of the wrong type, out
            of range, or without effect beside the others. One line: the key, the value, what is accepted.
    """
    return check_params(read_yaml(Path(path)), str(path))


def read_yaml(path: Path) -> Any:
    """The content of a YAML file, see `parse_yaml`.

    Raises:
        ParameterError: the file is missing, too large or not YAML.
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ParameterError(f"{path}: is larger than the {MAX_FILE_BYTES} bytes that are accepted")
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise ParameterError(
            f"{path}: there is no such file; stages run from the root of the repository"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ParameterError(f"{path}: cannot be read ({_reason(error)})") from None
    try:
        return parse_yaml(text)
    except Exception as error:  # a malformed scalar or key makes PyYAML raise whatever Python does
        raise ParameterError(f"{path}: is not YAML ({' '.join(str(error).split())})") from None


def parse_yaml(text: str) -> Any:
    """YAML as people write it: `5e-4` is a number (YAML 1.2), and a key given twice is an error.

    Raises:
        Exception: whatever PyYAML or a malformed scalar raises.
    """
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader


def check_params(content: Any, place: str) -> Params:
    """The content of a params.yaml, checked.

    Args:
        content: as YAML gives it.
        place: what an error names.

    Raises:
        ParameterError: as `load_params`.
    """
    try:
        params = Params.model_validate(content)
    except ValidationError as error:
        raise ParameterError(_explain(error, content, place)) from None
    for complaint in _inconsistencies(params):
        raise ParameterError(f"{complaint} ({place})")
    return params


def flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Leaves of nested mappings under dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _inconsistencies(params: Params) -> list[str]:
    """What is wrong between keys. A key that has no effect may be left at its default, never set."""
    latents, objective, model, data = params.latents, params.objective, params.model, params.data
    found = []
    if not latents.continuous and not latents.discrete:
        found.append("latents: needs at least one unit, got continuous: 0 and discrete: []")
    if model.architecture == "conv" and data.image_size not in (32, 64):
        found.append(
            "data.image_size: must be 32 or 64 with model.architecture: conv (any size with mlp), "
            f"got {data.image_size}"
        )
    if model.likelihood != "gaussian":
        found += _unused(params, "model.scale", f"model.likelihood: {model.likelihood}", "gaussian")
    if data.source == "emnist" and data.split is None:
        found.append(
            "data.split: must be one of balanced, byclass, bymerge, letters, digits, mnist "
            "with data.source: emnist, got null"
        )
    if data.source != "emnist":
        found += _unused(params, "data.split", f"data.source: {data.source}", "emnist")
    found += _sprites(params)
    if data.source not in SOURCES_WITH_FACTORS:
        needed = f"one of {', '.join(SOURCES_WITH_FACTORS)}"
        found += _unused(params, "evaluation.repeats", f"data.source: {data.source}", needed)
    if data.source not in UNSPLIT_SOURCES:
        for key in ("data.test_fraction", "data.split_seed"):
            found += _unused(
                params, key, f"data.source: {data.source}", f"one of {', '.join(UNSPLIT_SOURCES)}"
            )
    chosen = f"objective.regularizer: {objective.regularizer}"
    if objective.regularizer == "capacity":
        found += _unused(params, "objective.beta", chosen, "beta")
    else:
        for key in ("objective.gamma", "objective.capacity.continuous", "objective.capacity.discrete"):
            found += _unused(params, key, chosen, "capacity")
    for part, absent, needed in (
        ("continuous", not latents.continuous, "at least 1"),
        ("discrete", not latents.discrete, "a list of at least one unit"),
    ):
        if not absent:
            continue
        because = f"latents.{part}: {_shown(getattr(latents, part))}"
        found += _unused(params, f"objective.capacity.{part}", because, needed)
        found += _unused(params, f"objective.information.{part}", because, needed)
        if isinstance(objective.gamma, PerType):
            found += _unused(params, f"objective.gamma.{part}", because, needed)
        if part == "discrete":
            found += _unused(params, "train.temperature", because, needed)
    if params.mutual_information.codes == "prior":
        found += _unused(params, "mutual_information.split", "mutual_information.codes: prior", "posterior")
    found += _information(params)
    most = sum(math.log(classes) for classes in latents.discrete)
    if objective.regularizer == "capacity" and latents.discrete:
        ramp = objective.capacity.discrete
        for name, value in (("start", ramp.start), ("end", ramp.end)):
            if value is not None and value > most + 1e-9:
                found.append(
                    f"objective.capacity.discrete.{name}: must be ≤ {most:.4f} = Σ log K_j nats, the most "
                    f"that latents.discrete: {_shown(latents.discrete)} can carry, got {_shown(value)} "
                    "(end: null means that most)"
                )
    return found


def _sprites(params: Params) -> list[str]:
    data, grid = params.data, params.data.sprites
    if data.source != "sprites":
        return _unused(params, "data.sprites", f"data.source: {data.source}", "sprites")
    if grid.count is None:
        found = _unused(params, "data.sprites.seed", "data.sprites.count: null", "a number of images")
        if grid.combinations > MOST_IMAGES:
            found.append(
                f"data.sprites: {grid.combinations} combinations, more than the {MOST_IMAGES} accepted; "
                "choose smaller grids or set data.sprites.count"
            )
        return found
    if grid.count > grid.combinations:
        return [
            f"data.sprites.count: must be ≤ {grid.combinations}, all combinations of the factors’ values, "
            f"got {grid.count}"
        ]
    return []


def _information(params: Params) -> list[str]:
    """What is wrong among λ_c, λ_d and the chosen units, where the code has both kinds of unit."""
    information, latents = params.objective.information, params.latents
    weights = {"continuous": information.continuous, "discrete": information.discrete}
    group = "objective.information"
    found = []
    if not any(weights.values()):
        because = f"{group}.continuous: 0 and {group}.discrete: 0"
        return [
            complaint
            for key in ("units", "codes")
            for complaint in _unused(params, f"{group}.{key}", because, "a number > 0")
        ]
    if information.units == "all":
        return []
    names = {
        "continuous": [f"z{i}" for i in range(latents.continuous)],
        "discrete": [f"c{j}" for j in range(len(latents.discrete))],
    }
    known = names["continuous"] + names["discrete"]
    for unit in information.units:
        if unit not in known:
            shown = ", ".join(known if len(known) <= 12 else [*known[:3], "…", known[-1]])
            found.append(f"{group}.units: must be all or a list of {shown}, got {_shown(unit)}")
    for kind, word in (("continuous", "real"), ("discrete", "categorical")):
        chosen = [unit for unit in information.units if unit in names[kind]]
        if not chosen:
            because = f"{group}.units: {_shown(list(information.units))}"
            needed = f"all or a list with a {word} unit"
            found += _unused(params, f"{group}.{kind}", because, needed)
        elif not weights[kind]:
            found.append(
                f"{group}.units: {chosen[0]} has no effect with {group}.{kind}: 0; leave it out or set "
                f"{group}.{kind} to a number > 0, got {_shown(list(information.units))}"
            )
    return found


def _unused(params: Params, key: str, because: str, needed: str) -> list[str]:
    """A complaint if `key`, or a key of the block that it is, was set to other than its default."""
    group, *below = key.split(".")
    value: Any = getattr(params, group)
    default: Any = value.model_construct()
    for name in below:
        value, default = getattr(value, name), getattr(default, name)
    if value == default:
        return []
    if isinstance(value, Group) and isinstance(default, Group):
        values, defaults = value.model_dump(), default.model_dump()
        key, value, default = next(
            (f"{key}.{part}", values[part], defaults[part])
            for part in values
            if values[part] != defaults[part]
        )
    setting = because.split(":")[0]
    return [
        f"{key}: has no effect with {because}; leave it at {_shown(default)} or set {setting} to {needed}, "
        f"got {_shown(value)}"
    ]


def _explain(error: ValidationError, content: Any, place: str) -> str:
    """One line for the first fault, and how many more there are."""
    lines = _complaints(error.errors(include_url=False), content)
    more = f"; and {len(lines) - 1} more" if len(lines) > 1 else ""
    return f"{lines[0]} ({place}{more})"


Location = tuple[str | int, ...]


def _complaints(errors: list[ErrorDetails], content: Any) -> list[str]:
    """One line for each key at fault, unknown keys first: they are often why another one is missing.

    Where several kinds of value are accepted, each kind complains. Of a mapping or list only its own entries
    are told of, and of a number of the right kind only its range.
    """
    by_key: dict[Location, list[ErrorDetails]] = {}
    for fault in errors:
        by_key.setdefault(_location(fault, content), []).append(fault)
    unknown, others = [], []
    for location, faults in by_key.items():
        name = _dotted(location)
        kind, value = faults[0]["type"], faults[0]["input"]
        if kind in ("extra_forbidden", "invalid_key"):
            keys = ", ".join(_group(location[:-1]).model_fields)
            unknown.append(f"{name}: unknown key; {_dotted(location[:-1])} has {keys}")
        elif kind == "missing":
            others.append(f"{name}: missing")
        elif not (isinstance(value, dict | list) and any(_below(other, location) for other in by_key)):
            shown = repr(value) if isinstance(value, float) else _shown(value)
            ranges = [fault for fault in faults if fault["type"] in RANGES]
            others.append(f"{name}: must be {_accepted(ranges or faults)}, got {shown}")
    return unknown + others


def _location(fault: ErrorDetails, content: Any) -> Location:
    """The keys that lead to a fault, without the names of the kinds tried that pydantic puts among them."""
    keys: list[str | int] = []
    for part in fault["loc"]:
        entries = dict(enumerate(content)) if isinstance(content, list) else content
        if isinstance(entries, dict) and part in entries:
            content = entries[part]
            keys.append(part)
    if fault["type"] == "missing":
        keys.append(fault["loc"][-1])
    return tuple(keys)


def _dotted(location: Location) -> str:
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in location)
    line = "".join(letter if letter.isprintable() else " " for letter in text.lstrip("."))
    return " ".join(line.split()) or "the file"


def _below(location: Location, above: Location) -> bool:
    return len(location) > len(above) and location[: len(above)] == above


def _group(location: Location) -> type[Group]:
    """The schema of the block at a location."""
    group: type[Group] = Params
    for key in location:
        annotation = group.model_fields[str(key)].annotation
        kinds = (annotation, *get_args(annotation))
        group = next(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Group))
    return group


def _accepted(faults: list[ErrorDetails]) -> str:
    """What would have been accepted, all kinds of value together: `auto, true or false`."""
    choices = list(dict.fromkeys(choice for fault in faults for choice in _choices(fault)))
    if all(fault["type"] == "literal_error" for fault in faults) and len(choices) > 1:
        return f"one of {', '.join(choices)}"
    return " or ".join(filter(None, (", ".join(choices[:-1]), choices[-1])))


def _choices(fault: ErrorDetails) -> list[str]:
    context = fault.get("ctx", {})
    match fault["type"]:
        case "literal_error":
            return re.findall(r"'(\w+)'", context["expected"])
        case "bool_type":
            return ["true", "false"]
        case "model_type" | "model_attributes_type":
            group = next(kind for kind in Group.__subclasses__() if kind.__name__ == context["class_name"])
            return ["{" + ", ".join(f"{key}: …" for key in group.model_fields) + "}"]
        case kind if kind in RANGES:
            sign, bound = RANGES[kind]
            return [f"{sign} {_shown(context[bound])}"]
        case kind if kind in KINDS:
            return [KINDS[kind].format_map(context)]
        case _:
            return [" ".join(fault["msg"].split())]


RANGES = {
    "greater_than": (">", "gt"),
    "greater_than_equal": ("≥", "ge"),
    "less_than": ("<", "lt"),
    "less_than_equal": ("≤", "le"),
}
KINDS = {
    "float_type": "a finite number",
    "finite_number": "a finite number",
    "int_type": "a whole number",
    "string_type": "text",
    "string_too_short": "text that is not empty",
    "string_too_long": "text of at most {max_length} characters",
    "tuple_type": "a list",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
    "none_required": "null",
}


def _shown(value: Any) -> str:
    """A value as one would write it in the file, cut short if it is long."""
    if isinstance(value, BaseModel):
        value = value.model_dump()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    try:
        # Piece by piece, as YAML's aliases make values of any size out of a few lines.
        pieces = json.JSONEncoder(ensure_ascii=False, default=str).iterencode(value)
        text = "".join(islice(pieces, 200))
    except (TypeError, ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    if not isinstance(value, str) or _is_plain(value):
        text = text.replace('"', "")
    return text if len(text) <= 60 else text[:57] + "…"


def _is_plain(text: str) -> bool:
    """Whether a word needs no quotes to be read as text."""
    return re.fullmatch(r"[A-Za-z_][\w./-]*", text) is not None and text.lower() not in _NOT_TEXT


_NOT_TEXT = {"null", "true", "false", "yes", "no", "on", "off"}


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not UTF-8 text"


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        mapping: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=deep)
            if key in mapping:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} twice", key_node.start_mark)
            mapping[key] = self.construct_object(value_node, deep=deep)
        return mapping


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)
