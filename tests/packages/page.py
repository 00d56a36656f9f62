"""The page docs/packages.md, made of the stored results."""

from __future__ import annotations

import html
import re
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

from tests.packages.results import is_right
from tests.packages.trades import TRADES

PAGE = Path(__file__).parents[2] / "docs" / "packages.md"

HEAD = """# Installed packages

Code that calls installed packages is differentiated unchanged. This page measures how far that goes, with {calls} calls, as in their
documentation, of {packages} packages, which were chosen because they are widely used, not because they pass.

Each call is differentiated compiled (`gt.value_and_grad`) and on a `gt.GradientTape`. Its value is compared with that of the plain call,
its derivatives with extrapolated central differences and the estimate of their error. `python -m tests.packages` installs the packages
at these versions in environments of their own, runs the calls and writes this page; `--only PACKAGE` runs one package. The results are
those of the last runs, with {environment}.

| | calls | |
|---|---:|---:|
{totals}

*Refused* calls raise an error of gradtape, or one of the package to which gradtape has added why and what to do; *other errors* come from
Python or the package. *Wrong with a warning*: part of the derivative is missing, and a warning says so. The worse of the two ways counts.
*Cost* is the median time of the compiled value and gradient in units of the time of the plain call, and *first* the median of the first
calls in seconds, which trace and compile.
{not_counted}

"""

TABLE = """| package | version | calls | right both ways | compiled | on a tape | cost | first |
|---|---|---:|---:|---:|---:|---:|---:|
"""

WORDS = {
    "refused": "refused",
    "raised": "other errors",
    "warned": "wrong with a warning",
    "crashes": "crashed",
    "hangs": "not finished in time",
    "wrong": "wrong",
}
"""What is not right, from the mildest on."""

LONGEST = 100
"""Characters of a program on the page."""


def worst(result: dict[str, Any]) -> str:
    """Return the status of a call: that of the way that fares worse."""
    order = ["right", *WORDS]
    return max((result.get(way, {"status": "crashes"})["status"] for way in ("jit", "tape")), key=order.index)


def counts(result: dict[str, Any]) -> bool:
    """Return whether the plain call runs; one that does not says nothing about gradtape."""
    return bool(result["plain"]["status"] != "fails")


def page(results: dict[str, Any]) -> str:
    """Return the page."""
    stored = results["packages"]
    every = [result for package in stored.values() for result in package["calls"].values()]
    counted = [result for result in every if counts(result)]
    tally = Counter(worst(result) for result in counted)
    ways = {
        "right both ways": tally["right"],
        "right compiled": sum(result.get("jit", {}).get("status") == "right" for result in counted),
        "right on a tape": sum(result.get("tape", {}).get("status") == "right" for result in counted),
        **{word: tally[status] for status, word in WORDS.items()},
    }
    totals = [f"| {word} | {n} | {100 * n / max(1, len(counted)):.0f} % |" for word, n in ways.items()]
    failing = len(every) - len(counted)
    text = HEAD.format(
        packages=len(stored),
        calls=len(counted),
        environment=", ".join(f"{name} {version}" for name, version in results["environment"].items()),
        totals="\n".join(totals),
        not_counted=f"Calls that fail by themselves are not counted: {failing}.",
    )
    for trade, packages in TRADES.items():
        names = sorted((package.name for package in packages if package.name in stored), key=str.lower)
        if names:
            text += f"## {trade}\n\n{TABLE}" + "".join(_row(name, stored[name]) for name in names) + "\n"
            text += "".join(_reasons(name, stored[name]) for name in names)
    return text.rstrip() + "\n"


def _row(name: str, package: dict[str, Any]) -> str:
    calls = [result for result in package["calls"].values() if counts(result)]
    compiled = [result for result in calls if result.get("jit", {}).get("status") == "right"]
    taped = [result for result in calls if result.get("tape", {}).get("status") == "right"]
    cost = [result["jit"]["microseconds"] / result["plain"]["microseconds"] for result in compiled]
    first = [result["jit"]["first"] for result in compiled]
    cells = [name, package["version"], len(calls), sum(map(is_right, calls)), len(compiled), len(taped)]
    cells += [f"{median(cost):.2g}", f"{median(first):.2g}"] if compiled else ["", ""]
    return "| " + " | ".join(str(cell) for cell in cells) + " |\n"


def _reasons(name: str, package: dict[str, Any]) -> str:
    """Return the calls of a package that are not right, by the reasons."""
    said: dict[str, list[str]] = {}
    for program, result in package["calls"].items():
        by_reason: dict[str, list[str]] = {}
        for stage, way in (("plain", ""), ("jit", "compiled"), ("tape", "on a tape")):
            outcome = result.get(stage, {"status": "right"})
            if outcome["status"] in WORDS or outcome["status"] == "fails":
                by_reason.setdefault(_reason(outcome), []).append(way)
        if by_reason:
            parts = [
                f"{' and '.join(filter(None, ways))} {reason}".strip() for reason, ways in by_reason.items()
            ]
            said.setdefault("; ".join(parts), []).append(f"`{_short(program)}`")
    lines = [f"- {', '.join(programs)}: {reason}.\n" for reason, programs in said.items()]
    return f"**{name}**\n\n" + "".join(lines) + "\n" if lines else ""


def _short(program: str) -> str:
    """Return the last line of a program, without what is long."""
    line = program.splitlines()[-1].strip().removeprefix("return ")
    return line if len(line) <= LONGEST else line[:LONGEST] + " ..."


def _reason(outcome: dict[str, Any]) -> str:
    """Return what a way came to, in words."""
    status = outcome["status"]
    words = "fails by itself" if status == "fails" else WORDS[status]
    if status == "warned":
        details = [outcome["warning"], outcome.get("warned_at")]
    else:
        message = (
            f"{outcome['error']}: {outcome['reason']}" if outcome.get("error") else outcome.get("reason", "")
        )
        details = [message, outcome.get("line")]
    text = html.escape(", ".join(filter(None, details)), quote=False)
    return f"{words} ({re.sub(r'([|*_`#]|[][])', lambda found: chr(92) + found[0], text)})"
