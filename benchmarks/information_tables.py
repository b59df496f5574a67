"""The Markdown tables of docs/benchmark_information.md, from the rows of its JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vmivae.files import replace_file

BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
MARK = " †"
HEADING = "# Benchmark of the information estimators\n"

Row = Mapping[str, Any]


def fill(page: Path, tables: str) -> None:
    """Put tables between the marks of a page, which is begun where there is none; its prose stays."""
    text = page.read_text("utf-8") if page.exists() else f"{HEADING}\n{BEGIN}\n{END}\n"
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    with replace_file(page) as temporary:
        temporary.write_text(f"{before}{BEGIN}\n\n{tables}\n{END}{after or chr(10)}", "utf-8")


def tables(rows: Mapping[str, Row], cases: list[str], about: str) -> str:
    """All tables.

    Args:
        rows: of the benchmark, by `case/method`.
        cases: in their order.
        about: of the machine and the seed, one line.
    """
    parts = [about, _estimates(rows, cases), _same_time(rows, cases), _rival(rows, cases)]
    return "\n".join(part for part in parts if part)


def covers(row: Row) -> bool | None:
    """Whether `[L − 2 se, U + 2 se]` contains the truth; None where it is not known."""
    if row["truth"] is None:
        return None
    slack = 2 * row["truth_se"]
    low, high = interval(row)
    return bool(low - slack <= row["truth"] <= high + slack)


def interval(row: Row) -> tuple[float, float]:
    """What is claimed: `[L − 2 se, U + 2 se]`."""
    return row["lower"] - 2 * row["lower_se"], row["upper"] + 2 * row["upper_se"]


def _estimates(rows: Mapping[str, Row], cases: list[str]) -> str:
    shown = [row for case in cases for q in ("gaussian", "flow") if (row := rows.get(f"{case}/{q}"))]
    known = [inside for row in shown if (inside := covers(row)) is not None]
    body = [
        [
            row["case"],
            row["method"],
            _truth(row),
            _value(row, "barber_agakov"),
            _value(row, "lower"),
            _value(row, "upper"),
            f"{row['gap']:.3f}",
            f"{row['width']:.3f}",
            {True: "yes", False: "**no**", None: "–"}[covers(row)],
            f"{row['effective_sample_size']:.0f} of {row['levels'][-1]['fine']}"
            + MARK * bool(row["warnings"]),
            f"{row['seconds']:.0f}",
        ]
        for row in shown
    ]
    header = ["case", "Q", "truth", "BA", "L", "U", "gap", "width", "truth inside", "ESS", "seconds"]
    said = f"The interval contains the truth in {sum(known)} of the {len(known)} rows where it is known."
    if any(row["warnings"] for row in shown):
        said += f" A row with a{MARK} comes with the estimator's warning that its proposals are poor."
    return _section("Intervals", header, body, said)


def _same_time(rows: Mapping[str, Row], cases: list[str]) -> str:
    body = []
    for case in cases:
        for given, other in (("gaussian", "flow"), ("flow", "gaussian")):
            names = (f"{case}/{given}", f"{case}/{other}-in-time-of-{given}")
            pair = [rows[name] for name in names if name in rows]
            if len(pair) < 2:
                continue
            narrowest = min(pair, key=lambda row: float(row["width"]))
            for row in pair:
                config = row["config"]
                width = f"{row['width']:.3f}"
                low, high = interval(row)
                body.append(
                    [
                        case,
                        f"default {given}",
                        config["q_network"]["family"],
                        f"{config['q_network']['steps']:,}",
                        f"{config['importance']['images'] * config['importance']['samples']:,}",
                        _value(row, "barber_agakov"),
                        f"{row['gap']:.3f}",
                        f"{low:.2f} to {high:.2f}",
                        f"**{width}**" if row is narrowest else width,
                        f"{row['seconds']:.0f}",
                    ]
                )
    header = ["case", "in the time of", "Q", "steps", "budget", "BA", "gap", "interval", "width", "seconds"]
    return _section("Gaussian or flow, in the same time", header, body)


def _rival(rows: Mapping[str, Row], cases: list[str]) -> str:
    body = []
    for case in cases:
        row, ours = rows.get(f"{case}/info-nce"), rows.get(f"{case}/gaussian")
        if row is None or ours is None:
            continue
        low, high = interval(ours)
        body.append(
            [
                case,
                _truth(row),
                f"{low:.2f} to {high:.2f}",
                _value(row, "lower"),
                f"{math.log(row['batch']):.2f}",
                _value(row, "upper"),
                f"{row['batch']:,}",
                f"{row['seconds']:.0f}",
            ]
        )
    header = [
        *("case", "truth", "interval, gaussian Q", "InfoNCE", "log batch", "leave-one-out", "batch"),
        "seconds",
    ]
    return _section("InfoNCE with the known likelihood, in the time of the gaussian Q", header, body)


def _truth(row: Row) -> str:
    return "–" if row["truth"] is None else f"{row['truth']:.3f}"


def _value(row: Row, name: str) -> str:
    return f"{row[name]:.3f} ± {row[f'{name}_se']:.3f}"


def _section(title: str, header: list[str], body: list[list[str]], said: str = "") -> str:
    if not body:
        return ""
    text = {"case", "Q", "in the time of", "truth inside"}
    lines = [header, ["---" if name in text else "---:" for name in header], *body]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"\n## {title}\n\n" + (f"{said}\n\n" if said else "") + table + "\n"
