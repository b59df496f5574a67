"""What stands in the tables of the page: rounded numbers that hold the whole ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from vmivae.reporting.results import Results
from vmivae.reporting.words import LOG_2, decimals, listing, number


def tiles(results: Results) -> list[tuple[str, Markup, str]]:
    """The numbers to see first: name, value, and what it is measured in or against."""
    found, scores = results.information, results.evaluation
    places = decimals(found["lower_se"])
    lower, bits = _number(found["lower"], places), number(found["lower"] / LOG_2)
    if results.claimed is None:
        value = Markup("≥ {}").format(lower)
        note = f"± {number(found['lower_se'], places)} nats · {bits} bits"
    else:
        low, high = results.claimed
        value = Markup("{} – {}").format(_number(low, 2), _number(high, 2))
        note = f"nats · {number(low / LOG_2)} to {number(high / LOG_2)} bits"
    tiles = [("information", value, note)]
    tiles.append(("rate", _number(scores["rate"], 2), f"± {number(scores['rate_se'])} nats, held out"))
    active = sum(unit.active for unit in results.units)
    tiles.append(
        (
            "active units",
            Markup("{} <small>of {}</small>").format(active, len(results.units)),
            "real and categorical",
        )
    )
    best = max(
        (unit for unit in results.units if unit.accuracy is not None),
        key=lambda unit: unit.accuracy or 0.0,
        default=None,
    )
    if best is not None and best.accuracy is not None:
        tiles.append(
            (
                f"{best.name} names the class",
                Markup("{}&thinsp;<small>%</small>").format(_number(100 * best.accuracy, 1)),
                f"± {number(100 * (best.accuracy_se or 0), 1)} %, held out",
            )
        )
    return tiles


def configuration(results: Results, parameters: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The parameters that matter to a reader, in words."""
    card, get = results.card, parameters.get
    channels, height, width = card.image_shape
    latents = results.latents
    units = []
    if latents.continuous:
        units.append(f"{latents.continuous} real unit{'s' if latents.continuous > 1 else ''}")
    if latents.discrete:
        sizes = listing([str(size) for size in latents.discrete])
        count = len(latents.discrete)
        units.append(f"{count} categorical unit{'s' if count > 1 else ''} ({sizes} categories)")
    pixels = {
        "none": "as they are",
        "threshold": "black or white, by threshold",
        "dynamic": "drawn black or white afresh each epoch",
    }
    if get("objective.regularizer") == "beta":
        objective = f"β-VAE, β = {get('objective.beta')}" + (
            " (the ELBO)" if get("objective.beta") == 1 else ""
        )
    else:
        ends = []
        if latents.continuous:
            ends.append(f"{get('objective.capacity.continuous.end')} for the real units")
        if latents.discrete:
            end = get("objective.capacity.discrete.end")
            end = number(latents.max_discrete_entropy) if end is None else end
            ends.append(f"{end} for the categorical units")
        objective = (
            f"capacity, γ |KL − C(t)|: γ = {_gamma(parameters)}, C rising to {' and '.join(ends)} (nats)"
        )
    objective += _information(parameters)
    likelihood = str(get("model.likelihood")).replace("_", " ").title()
    family = str(get("mutual_information.q_network.family")).title()
    network = f"{family} Q-network, {number(get('mutual_information.q_network.steps', 0), 0)} steps"
    source = (
        "posterior codes of the {} images".format(
            "training" if get("mutual_information.split") == "train" else "held-out"
        )
        if results.information["codes"] == "posterior"
        else "prior codes"
    )
    return [
        (
            "Images",
            f"{card.source}: {number(card.train.count, 0)} for training, "
            f"{number(card.test.count, 0)} held out; {height} × {width} pixels, "
            f"{'grey' if channels == 1 else 'RGB'}, {pixels[card.binarize]}",
        ),
        ("Code", " and ".join(units)),
        (
            "Model",
            f"{'convolutional' if get('model.architecture') == 'conv' else 'fully connected'} encoder and "
            f"decoder, {likelihood} likelihood",
        ),
        ("Objective", objective),
        (
            "Training",
            f"{number(get('train.epochs', 0), 0)} epochs, batches of {get('train.batch_size')}, "
            f"learning rate {get('train.learning_rate')}",
        ),
        (
            "Information",
            f"{source}; {network}; bound on {number(results.information['samples'], 0)} fresh pairs "
            f"of code and image{_importance(parameters)}",
        ),
    ]


def _importance(parameters: Mapping[str, Any]) -> str:
    """What was spent on the two-sided interval, if there is one."""
    block = "mutual_information.importance"
    if parameters.get(f"{block}.images") is None:
        return ""
    images, samples = (number(parameters[f"{block}.{key}"], 0) for key in ("images", "samples"))
    width = parameters.get(f"{block}.width")
    aim = "" if width is None else f", for a width of {width} nats"
    sides = "every unit" if parameters[f"{block}.units"] == "all" else "categorical units"
    return f"; interval by a budget of {images} × {samples} decodes{aim}, with two sides for {sides}"


def _information(parameters: Mapping[str, Any]) -> str:
    """What the objective adds for information, if anything."""
    names = (("continuous", "λ_c", "real"), ("discrete", "λ_d", "categorical"))
    values = ((parameters.get(f"objective.information.{key}"), sign, word) for key, sign, word in names)
    weights = [f"{sign} = {value} ({word} units)" for value, sign, word in values if value]
    if not weights:
        return ""
    units = parameters["objective.information.units"]
    chosen = "all of them" if units == "all" else f"of these {listing(list(units))}"
    codes = parameters["objective.information.codes"]
    return f"; information of {codes} codes raised with {' and '.join(weights)}, {chosen}"


def _gamma(parameters: Mapping[str, Any]) -> str:
    both = [parameters.get(f"objective.gamma.{group}") for group in ("continuous", "discrete")]
    return f"{both[0]} and {both[1]}" if None not in both else str(parameters.get("objective.gamma"))


def information_rows(results: Results) -> list[tuple[str, list[Markup]]]:
    """Whole code and groups: lower bound, its standard error, (upper bound and its own,) bits."""
    found = results.information
    rows = [("whole code", found)]
    if len(found["groups"]) > 1:
        rows += [
            ("real units", found["groups"]["continuous"]),
            ("categorical units", found["groups"]["discrete"]),
        ]
    table = []
    places = 3 if found["upper"] is None else 2
    for name, part in rows:
        cells = [_number(part["lower"], places), _error(part.get("lower_se", part.get("se")), places)]
        if found["upper"] is not None:
            cells += [_number(part.get("upper"), places), _error(part.get("upper_se"), places)]
        cells.append(_number(part["lower"] / LOG_2, places))
        if found["upper"] is not None:
            cells.append(_number(_bits(part.get("upper")), places))
        table.append((name, cells))
    return table


def recipe_rows(results: Results) -> list[tuple[str, Markup, list[Markup]]]:
    """The interval beside what the published recipe says: name, what it is, value, standard error, place."""
    found, claimed = results.information, results.claimed
    if claimed is None:
        return []
    low, high = claimed
    rows = [
        (
            "interval",
            Markup("lower and upper bound, each with two standard errors"),
            [Markup("{} – {}").format(_number(low, 2), _number(high, 2)), Markup(""), Markup("")],
        )
    ]
    compared: list[tuple[str, Markup, float, float | None]] = [
        (
            "Barber–Agakov",
            Markup("<i>H</i>(r) + E log <i>Q</i>, with the entropy that the codes have: a lower bound"),
            found["barber_agakov"],
            found.get("barber_agakov_se"),
        )
    ]
    if results.recipe is not None:
        compared.append(
            (
                "published recipe",
                Markup(
                    "<i>H</i>(p) + E log <i>Q</i>, with the prior’s entropy: no bound for posterior codes"
                ),
                results.recipe,
                found.get("barber_agakov_se"),
            )
        )
    for name, meaning, value, error in compared:
        place = "below" if value < low else "above" if value > high else "inside"
        rows.append((name, meaning, [_number(value, 2), _error(error, 2), Markup(place)]))
    if found["encoder_information"] is not None:
        rows.append(
            (
                "encoder",
                Markup("its information about its own images, at most log <i>N</i> = {}").format(
                    number(found["encoder_limit"])
                ),
                [
                    _number(found["encoder_information"], 2),
                    _error(found.get("encoder_information_se"), 2),
                    Markup("another quantity"),
                ],
            )
        )
    return rows


def beside_rows(results: Results) -> list[tuple[str, Markup, list[Markup]]]:
    """Numbers to compare the bound with: name, what it is, value, standard error, bits."""
    found = results.information
    rows = [
        (
            "encoder information",
            Markup("<i>I</i><sub>q</sub>(x; z), what the encoder’s code tells about its own image"),
            "encoder_information",
        ),
        (
            "its limit",
            Markup("log <i>N</i>, <i>N</i> = {} images").format(number(found["images"] or 0, 0)),
            "encoder_limit",
        ),
        ("rate", Markup("mean KL of the posterior from the prior, same images"), "rate"),
        ("marginal KL", Markup("KL of the codes’ own distribution from the prior"), "marginal_kl"),
        (
            "code entropy",
            Markup("<i>H</i>(z) of the distribution that codes are drawn from (differential for real units)"),
            "entropy",
        ),
    ]
    return [
        (
            name,
            meaning,
            [_number(found[field], 3), _error(found.get(f"{field}_se"), 3), _number(_bits(found[field]), 3)],
        )
        for name, meaning, field in rows
        if found.get(field) is not None
    ]


def unit_table(results: Results) -> tuple[list[str], list[tuple[str, list[Markup]]]]:
    """Column heads and rows of the table of units; columns that hold nothing are left out."""
    two_sided = any(unit.upper is not None for unit in results.units)
    labelled = any(unit.label_information is not None for unit in results.units)
    named = any(unit.accuracy is not None for unit in results.units)
    heads = ["lower bound", "± s.e."]
    heads += ["upper bound", "± s.e."] if two_sided else []
    heads += ["lower, bits" if two_sided else "bits", "rate", "active"]
    heads += ["knows of labels", "by chance"] if labelled else []
    heads += ["names class, %", "NMI"] if named else []
    rows = []
    for unit in results.units:
        cells = [_number(unit.lower, 3), _error(unit.lower_se, 3)]
        if two_sided:
            cells += [_number(unit.upper, 3), _error(unit.upper_se, 3)]
        cells += [
            _number(unit.lower / LOG_2, 3),
            _number(unit.rate, 3),
            Markup("yes" if unit.active else "no"),
        ]
        if labelled:
            cells += [_number(unit.label_information, 3), _number(unit.label_information_shuffled, 3)]
        if named:
            cells += [
                _number(None if unit.accuracy is None else 100 * unit.accuracy, 1),
                _number(unit.nmi, 2),
            ]
        rows.append((unit.name, cells))
    return heads, rows


def score_rows(results: Results) -> list[tuple[str, str, list[Markup]]]:
    """Held-out scores with the training split's beside them: name, what it is, value, error, value, error."""
    scores = results.evaluation
    supported = scores["likelihood_in_support"]
    rows = [
        (
            "distortion" if supported else "cross-entropy",
            "cost of the pixels given the code",
            "distortion",
            2,
        ),
        ("rate", "cost of the code: KL of the posterior from the prior", "rate", 2),
    ]
    if results.latents.continuous and results.latents.discrete:
        rows += [
            ("… real units", "their part of the rate", "rate_continuous", 2),
            ("… categorical units", "their part of the rate", "rate_discrete", 2),
        ]
    if supported:
        rows += [
            ("ELBO", "minus distortion minus rate: at most the log-likelihood", "elbo", 2),
            (
                "log-likelihood",
                f"importance-weighted estimate with {number(scores['importance_samples'], 0)} codes "
                "per image",
                "log_likelihood_iwae",
                2,
            ),
        ]
    else:
        rows.append(
            (
                "− cross-entropy − rate",
                "the training objective’s value at β = 1; not an ELBO",
                "negative_cross_entropy_minus_rate",
                2,
            )
        )
    rows.append(("mean squared error", "per pixel, pixels in [0, 1]", "mse", 4))
    table = []
    for name, meaning, field, places in rows:
        cells = []
        for split in (scores, scores["train"]):
            cells += [_number(split.get(field), places), _error(split.get(f"{field}_se"), places)]
        table.append((name, meaning, cells))
    return table


DISENTANGLEMENT = {
    "mig": ("MIG", "how far, of each factor, the unit that knows most is ahead of the next"),
    "dci_disentanglement": ("DCI disentanglement", "whether each unit helps to predict one factor only"),
    "dci_completeness": ("DCI completeness", "whether each factor is predicted from one unit only"),
    "dci_informativeness": ("DCI informativeness", "share of the factors’ variance that the code predicts"),
    "sap": ("SAP", "how far the unit that predicts a factor best is ahead of the next"),
    "factorvae": (
        "FactorVAE score",
        "how often the unit that varies least tells which factor was held fixed",
    ),
    "betavae": ("β-VAE score", "how often a linear classifier tells which factor pairs of images share"),
    "irs": ("IRS", "how still each unit stays while its factor is fixed and the others change"),
    "modularity": ("modularity", "whether each unit that knows anything knows about one factor only"),
    "explicitness": ("explicitness", "how well a linear classifier ranks images by each value of a factor"),
}


def disentanglement_rows(results: Results) -> list[tuple[str, str, list[Markup]]]:
    """Name, what it asks, mean, spread and what chance gives; empty where factors are not known."""
    found = results.evaluation.get("disentanglement")
    if not found:
        return []
    chance = {
        "factorvae": 1 / len(found["factors"]),
        "betavae": 1 / len(found["factors"]),
        "explicitness": 0.5,
    }
    return [
        (
            *DISENTANGLEMENT[name],
            [_number(score["mean"], 3), _error(score["std"], 3), _number(chance.get(name, 0.0), 2)],
        )
        for name, score in found["scores"].items()
    ]


def grouped(parameters: Mapping[str, Any]) -> dict[str, list[tuple[str, str]]]:
    groups: dict[str, list[tuple[str, str]]] = {}
    for key, value in parameters.items():
        group = key.split(".")[0]
        groups.setdefault(group, []).append((key, _yaml(value)))
    return groups


def _yaml(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_yaml(item) for item in value)}]"
    return str(value)


def _number(value: float | None, places: int) -> Markup:
    """A cell that shows a rounded number and holds the whole one; a dash where there is none."""
    if value is None:
        return Markup("–")
    return Markup('<data value="{}">{}</data>').format(repr(float(value)), number(value, places))


def _error(value: float | None, places: int) -> Markup:
    """A standard error; one that rounds to nothing is said to be smaller than the last digit."""
    if value is None:
        return Markup("")
    if 0 < value < 0.5 * 10**-places:
        return Markup('<data value="{}">&lt; {}</data>').format(
            repr(float(value)), number(10**-places, places)
        )
    return Markup("± {}").format(_number(value, places))


def _bits(nats: float | None) -> float | None:
    return None if nats is None else nats / LOG_2
