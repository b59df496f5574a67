"""What was found, in sentences, and what a reader must know before trusting a number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from vmivae.reporting.results import Results, Unit

LOG_2 = math.log(2)
NAMED_UNITS = 3
CAPACITY_TOLERANCE = 0.5  # nats between KL and the end of C(t)


def number(value: float, decimals: int = 2) -> str:
    """A number with a real minus sign, digits in groups of three; zero has no sign."""
    text = f"{value:,.{decimals}f}"
    if not any(digit in "123456789" for digit in text):
        text = text.lstrip("-")
    return text.replace("-", "−").replace(",", "\u202f")


def decimals(error: float | None) -> int:
    """So many decimals that a standard error shows one significant digit: 1 to 3."""
    if not error or error <= 0:
        return 2
    return min(3, max(1, -math.floor(math.log10(error))))


def measured(value: float, error: float | None) -> str:
    """`value ± standard error`, as precise as the error is."""
    places = decimals(error)
    return number(value, places) if error is None else f"{number(value, places)} ± {number(error, places)}"


def listing(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def alternatives(nats: float) -> str:
    """`e^nats` equally likely alternatives, as people say such a number."""
    count = math.exp(nats)
    if count < 100:
        return number(count, 1 if count < 10 else 0)
    for size, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if count >= size:
            return f"{number(float(f'{count / size:.2g}'), 0 if count >= 10 * size else 1)} {word}"
    return number(float(f"{count:.2g}"), 0)


def summary(results: Results) -> list[Markup]:
    """The findings, most important first; one paragraph each."""
    paragraphs = [_information(results), _units(results)]
    paragraphs += [_category(results, unit) for unit in results.categorical_units[:NAMED_UNITS]]
    paragraphs.append(_quality(results))
    return [paragraph for paragraph in paragraphs if paragraph]


def cautions(results: Results, parameters: Mapping[str, Any]) -> list[Markup]:
    """Warnings in plain words, where they apply."""
    found: list[Markup] = []
    information, card = results.information, results.card
    if information["lower"] + 2 * information["lower_se"] < 0:
        found.append(
            Markup(
                "<strong>The bound is below zero.</strong> Information never is: this says only that the "
                "Q-network has not learned to tell codes from images. Raise "
                "<code>mutual_information.q_network.steps</code>."
            )
        )
    if information["upper"] is None:
        found.append(
            Markup(
                "<strong>Lower bounds only.</strong> The information numbers say “at least”. The truth can "
                "lie above, by more than the standard error: that covers sampling noise, not what the "
                "Q-network failed to learn."
            )
        )
    if not results.evaluation["likelihood_in_support"]:
        found.append(
            Markup(
                "<strong>Grey pixels under a Bernoulli.</strong> {}&thinsp;% of the pixels are neither "
                "black nor white, and the Bernoulli likelihood gives those values no probability. Training "
                "on them works, but the distortion is a <em>cross-entropy</em>, not minus a "
                "log-likelihood, so there is no ELBO and no log-likelihood here. The information is not "
                "affected: its images are drawn from the model, black and white. For a log-likelihood set "
                "<code>data.binarize</code>, or another <code>model.likelihood</code>."
            ).format(number(100 * card.grey_pixels, 0))
        )
    for warning in information.get("warnings") or []:
        found.append(Markup("<strong>From the estimate.</strong> {}").format(warning))
    if parameters.get("objective.regularizer") == "capacity":
        found += _missed_capacity(results)
    return found


def _missed_capacity(results: Results) -> list[Markup]:
    found = []
    for group, kind in (("continuous", "real"), ("discrete", "categorical")):
        target, reached = results.train.get(f"capacity_{group}"), results.train.get(f"kl_{group}")
        units = results.latents.continuous_units if group == "continuous" else results.latents.discrete_units
        if not units or target is None or reached is None or abs(target - reached) <= CAPACITY_TOLERANCE:
            continue
        found.append(
            Markup(
                "<strong>The target was missed.</strong> The KL of the {} units ended at {} nats, its "
                "target C at {}. Longer training, a larger <code>objective.gamma</code> or a lower C would "
                "bring them together."
            ).format(kind, number(reached), number(target))
        )
    return found


def recipe(results: Results) -> str:
    """What the comparison with the published recipe comes to, in one sentence; empty without an interval."""
    if results.claimed is None:
        return ""
    low, high = results.claimed
    bound, value = results.information["barber_agakov"], results.recipe
    if value is None:
        short = number(max(0.0, results.information["lower"] - bound))
        return f"The Barber–Agakov bound alone would fall {short} nats short of the lower bound."
    if value > high:
        return (
            "With the prior’s entropy, as the recipe was published, the answer would be "
            f"{number(value - high)} nats above all that the interval allows."
        )
    if value < low:
        return (
            "With the prior’s entropy, as the recipe was published, the answer would be "
            f"{number(low - value)} nats below the interval: the Q-network misses more than the wrong "
            "entropy adds."
        )
    return (
        "With the prior’s entropy, as the recipe was published, the answer happens to fall inside the "
        "interval: it is still no bound."
    )


def _information(results: Results) -> Markup:
    found = results.information
    lower, error, upper = found["lower"], found["lower_se"], found["upper"]
    if upper is not None:
        low, high = lower - 2 * error, upper + 2 * (found["upper_se"] or 0.0)
        places = min(3, max(1, 1 - math.floor(math.log10(max(high - low, 1e-3)))))
        return Markup(
            "A code of this model carries <strong>between {} and {} nats</strong> ({} and {} bits) about "
            "the image that is drawn from it. The interval includes two standard errors on each side."
        ).format(
            number(low, places),
            number(high, places),
            number(low / LOG_2, places),
            number(high / LOG_2, places),
        )
    if lower <= 2 * error:
        return Markup(
            "<strong>No information between codes and images could be shown</strong>: the lower bound is "
            "{} nats."
        ).format(measured(lower, error))
    return Markup(
        "A code of this model carries <strong>at least {} nats</strong> ({} bits) about the image that is "
        "drawn from it: as much as it takes to single out one of {} equally likely images."
    ).format(measured(lower, error), number(lower / LOG_2, decimals(error)), alternatives(lower))


def _units(results: Results) -> Markup:
    real = results.real_units
    if not real:
        return Markup("")
    active = [unit for unit in real if unit.active]
    if len(real) == 1:
        start = f"The real unit {real[0].name} is {'active' if active else 'inactive'}"
    elif len(active) == len(real):
        start = f"All {len(real)} real units are active"
    elif not active:
        start = f"None of the {len(real)} real units is active"
    else:
        start = f"{len(active)} of the {len(real)} real units {'is' if len(active) == 1 else 'are'} active"
    meaning = (
        " (their posterior moves with the image)"
        if len(real) > 1
        else " (its posterior moves with the image)"
    )
    informative = [unit for unit in real if unit.lower > 2 * unit.lower_se and unit.lower >= 0.005][
        :NAMED_UNITS
    ]
    if not informative:
        return Markup("{}{}.").format(start, meaning)
    values = listing([number(unit.lower) for unit in informative])
    if len(real) == 1:
        return Markup("{}{}; it carries at least {} nats.").format(start, meaning, values)
    verb = "carries most" if len(informative) == 1 else "carry most"
    return Markup("{}{}. {} {}: at least {} nats{}.").format(
        start,
        meaning,
        listing([unit.name for unit in informative]),
        verb,
        values,
        "" if len(informative) == 1 else ", each taken alone",
    )


def _category(results: Results, unit: Unit) -> Markup:
    assert unit.most is not None
    if unit.lower > 2 * unit.lower_se:
        first = Markup(
            "The categorical unit <strong>{}</strong> carries at least {} of the {} nats that {} "
            "categories can hold."
        ).format(unit.name, number(unit.lower), number(unit.most), unit.classes)
    else:
        first = Markup(
            "The categorical unit <strong>{}</strong> ({} categories) was not shown to carry information "
            "(bound {})."
        ).format(unit.name, unit.classes, measured(unit.lower, unit.lower_se))
    if unit.accuracy is None or unit.nmi is None:
        return first
    agreement = Markup(
        " Training never saw the labels; naming each category after its commonest class among the training "
        "images names <strong>{} ± {}&thinsp;%</strong> of {} held-out images correctly (normalised mutual "
        "information {})."
    ).format(
        number(100 * unit.accuracy, 1),
        number(100 * (unit.accuracy_se or 0.0), 1),
        number(len(results.images), 0),
        number(unit.nmi),
    )
    found = len({unit.majority[category] for category in np.flatnonzero(results.usage(unit.name))})
    if results.classes and found < min(len(results.classes), unit.classes or 0):
        agreement += Markup(" Its categories name {} of the {} classes.").format(found, len(results.classes))
    return first + agreement


def _quality(results: Results) -> Markup:
    scores = results.evaluation
    cost = "cross-entropy" if not scores["likelihood_in_support"] else "distortion"
    found = results.information
    source = (
        f"the posteriors of {number(found['images'], 0)} images"
        if found["codes"] == "posterior"
        else "the prior"
    )
    return Markup(
        "On {} held-out images the pixels cost {} nats given the code ({}), and the code costs {} nats "
        "(rate). Information was measured for codes drawn from {}, with images drawn from the model’s "
        "likelihood."
    ).format(
        number(scores["images"], 0),
        measured(scores["distortion"], scores["distortion_se"]),
        cost,
        measured(scores["rate"], scores["rate_se"]),
        source,
    )
