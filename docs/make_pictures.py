"""Draws the pictures of the README and of docs/benchmarks.md from the tables of the benchmarks, and the badges from facts.

Run it after a benchmark has written its table anew: ``python docs/make_pictures.py``. No picture has a number of its own. Each tells which
text it was drawn from, so that a test can say that it is old.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
TOOLS: Final = {
    "gradtape": ("#D55E00", "o"),
    "jax": ("#0072B2", "s"),
    "torch": ("#CC79A7", "^"),
    "autograd": ("0.6", "D"),
    "CasADi": ("#009E73", "v"),
    "hand": ("k", "|"),
}
"""Colours that differ for colour-blind eyes (M. Okabe and K. Ito), and marks."""


def rows(text: str, *columns: str) -> list[dict[str, str]]:
    """Return the rows of the first table that has these columns."""
    for part in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        lines = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in part.splitlines()]
        if set(columns) <= set(lines[0]):
            return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]
    raise ValueError(f"no table has the columns {columns}")


def number(cell: str) -> float:
    """Return what a cell begins with, without commas of thousands; an empty one is not a number."""
    found = re.match(r"[\d.,]+(e[+-]?\d+)?", cell)
    return float(found[0].replace(",", "")) if found else float("nan")


def speed(text: str, axes: Any) -> None:
    """How many times as long as C by hand each tool takes for value and gradient."""
    table = [row for row in rows(text, "c us", "gradtape us") if row["c us"]][::-1]
    for tool in ("gradtape", "jax", "torch", "autograd"):
        colour, mark = TOOLS[tool]
        ratios = [number(row[f"{tool} us"]) / number(row["c us"]) for row in table]
        axes.scatter(ratios, range(len(table)), color=colour, marker=mark, label=tool, s=36, zorder=3)
    axes.axvline(1, color="k", linewidth=1)
    axes.set(xscale="log", xlabel="time of value and gradient; 1 is C, derived by hand (log scale)")
    sizes = [f"{int(row['size']):,}" if row["size"].isdigit() else row["size"] for row in table]
    names = [
        " ".join([row["work"], size, row["wording"]]).strip() for row, size in zip(table, sizes, strict=True)
    ]
    axes.set_yticks(range(len(table)), names)
    axes.figure.legend(loc="outside upper center", ncols=4, frameon=False)


WORKS: Final = {
    "rosen": "Rosenbrock",
    "bs": "Black-Scholes",
    "lse": "log-sum-exp",
    "gmm": "Gaussian mixture",
    "pendulum": "pendulum",
    "lstm": "LSTM",
    "hmm": "hidden Markov model",
    "newton": "Newton's iteration",
}


def summary(text: str, axes: Any) -> None:
    """The largest size of each work: how many times as long as C by hand each tool takes for value and gradient."""
    table = [row for row in rows(text, "c us", "gradtape us") if row["c us"]]
    sizes = {row["work"]: row["size"] for row in table}  # the last is the largest
    for place, work in enumerate(reversed(WORKS)):
        same = [row for row in table if row["work"] == work and row["size"] == sizes[work]]
        for tool in ("gradtape", "jax", "torch", "autograd"):
            times = [number(row[f"{tool} us"]) for row in same if row[f"{tool} us"]]  # the better wording
            if times:
                colour, mark = TOOLS[tool]
                axes.scatter(
                    min(times) / number(same[0]["c us"]),
                    place,
                    color=colour,
                    marker=mark,
                    s=48,
                    zorder=3,
                    label=tool,
                )
    axes.axvline(1, color="k", linewidth=1)
    axes.annotate(" C, by hand", (1, len(WORKS) - 0.55), fontsize=9)
    axes.set(
        xscale="log",
        xlabel="time of value and gradient, as a multiple of C (log scale)",
        ylim=(-0.6, len(WORKS) - 0.2),
    )
    axes.set_yticks(range(len(WORKS)), list(WORKS.values())[::-1])
    handles = {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    order = [tool for tool in TOOLS if tool in handles]
    axes.figure.legend(
        [handles[tool] for tool in order], order, loc="outside upper center", ncols=4, frameon=False
    )


def loops(text: str, axes: Any) -> None:
    """Value and gradient of Numba's programs, in units of Numba's value alone."""
    table = rows(text, "Numba's primal ms", "C ms")[::-1]
    places = range(len(table))
    axes.barh(
        places,
        [number(row["ratio"]) for row in table],
        color=TOOLS["gradtape"][0],
        height=0.6,
        label="gradtape",
    )
    by_hand = [number(row["C ms"]) / number(row["Numba's primal ms"]) for row in table]
    axes.scatter(by_hand, places, color="k", marker="D", s=30, zorder=3, label="C, adjoint by hand")
    axes.axvline(1, color="k", linewidth=1)
    axes.set(xlabel="time of value and gradient; 1 is the value alone, by Numba")
    axes.set_yticks(places, [row["program"] for row in table])
    axes.figure.legend(loc="outside upper center", ncols=2, frameon=False)


def npbench(text: str, axes: Any) -> None:
    """How many times as fast as NumPy and as JAX the programs of NPBench are, sorted."""
    table = rows(text, "NumPy value ms", "JAX gradient ms")
    for label, slow, fast, tool in (
        ("value, against NumPy", "NumPy value ms", "value ms", "autograd"),
        ("value, against JAX", "JAX value ms", "value ms", "jax"),
        ("gradient, against JAX", "JAX gradient ms", "gradient ms", "gradtape"),
    ):
        ratios = sorted(number(row[slow]) / number(row[fast]) for row in table if row[slow] and row[fast])
        colour, mark = TOOLS[tool]
        shares = [100 * (place + 0.5) / len(ratios) for place in range(len(ratios))]
        axes.plot(shares, ratios, mark, color=colour, markersize=4, label=label)
    axes.axhline(1, color="k", linewidth=1)
    axes.set(yscale="log", xlabel="share of the programs in percent", ylabel="times as fast (log scale)")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(frameon=False)


def sparse(text: str, axes: Any) -> None:
    """Medians of sparse Jacobians and Hessians."""
    table = rows(text, "matrix", "CasADi")[::-1]
    for tool in ("hand", "CasADi", "gradtape"):
        colour, mark = TOOLS[tool]
        times = [number(row[tool]) for row in table]
        label = "by hand, SciPy" if tool == "hand" else tool
        size = 160 if mark == "|" else 36
        axes.scatter(times, range(len(table)), color=colour, marker=mark, s=size, label=label, zorder=3)
    axes.set(xscale="log", xlabel="milliseconds (log scale)")
    axes.set_yticks(range(len(table)), [row["matrix"].replace(": ", ":\n") for row in table])
    axes.figure.legend(loc="outside upper center", ncols=3, frameon=False)


def densities(text: str, axes: Any) -> None:
    """Densities of scipy.stats against their formulas."""
    table = rows(text, "value / formula")[::-1]
    for column, colour, mark in (("value / formula", "#0072B2", "s"), ("gradient / formula", "#D55E00", "o")):
        ratios = [number(row[column]) for row in table]
        axes.scatter(
            ratios, range(len(table)), color=colour, marker=mark, label=column.split(" / ")[0], s=36, zorder=3
        )
    axes.axvline(1, color="k", linewidth=1)
    axes.set(xlim=(0, 1.6), xlabel="time of scipy.stats' density; 1 is its formula, written out")
    axes.set_yticks(range(len(table)), [row["distribution"] for row in table])
    axes.figure.legend(loc="outside upper center", ncols=2, frameon=False)


def startup(text: str, axes: Any) -> None:
    """From the start of Python to the first gradient."""
    table = rows(text, "start to first gradient s")[::-1]
    for place, row in enumerate(table):
        middle, low, high = (
            number(row[name]) for name in ("start to first gradient s", "fastest s", "slowest s")
        )
        axes.barh(
            place, middle, xerr=[[middle - low], [high - middle]], color=TOOLS[row["tool"]][0], height=0.6
        )
    names = [f"{row['tool']}, {row['cache']} cache".replace("none cache", "no cache") for row in table]
    axes.set_yticks(range(len(table)), names)
    axes.set(xlabel="seconds from the start of Python to the first gradient")


DRAWN: Final[dict[str, tuple[str, Callable[[str, Any], None], tuple[float, float]]]] = {
    "summary": ("README.md", summary, (6.5, 4.4)),
    "speed": ("README.md", speed, (7.5, 8.9)),
    "loops": ("benchmarks/LOOPS.md", loops, (7.5, 4.2)),
    "npbench": ("benchmarks/LOOPS.md", npbench, (7.5, 4.0)),
    "sparse": ("benchmarks/SPARSE.md", sparse, (7.5, 9.6)),
    "densities": ("benchmarks/DENSITIES.md", densities, (7.5, 4.4)),
    "startup": ("benchmarks/STARTUP.md", startup, (7.5, 1.9)),
}
"""The pictures: what they are drawn from, by which function, and their size in inches."""


def origin(name: str) -> str:
    """Return a fingerprint of the tables that a picture is drawn from."""
    text = (ROOT / DRAWN[name][0]).read_text()
    tables = "".join(line for line in text.splitlines(keepends=True) if line.startswith("|"))
    if DRAWN[name][0] == "README.md":
        tables = text.split("<!-- speed table -->")[1]
    return hashlib.sha256(tables.encode()).hexdigest()


def draw(name: str) -> None:
    """Write a picture."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    source, function, size = DRAWN[name]
    plt.rcParams["svg.hashsalt"] = name  # the same table gives the same file
    figure, axes = plt.subplots(figsize=size, layout="constrained")
    function((ROOT / source).read_text(), axes)
    if name != "npbench":
        axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    about = {
        "Date": None,
        "Title": (function.__doc__ or "").strip(),
        "Description": f"drawn from {origin(name)}",
    }
    figure.savefig(PICTURES / f"{name}.svg", facecolor="white", metadata=about)
    plt.close(figure)


def badges() -> dict[str, tuple[str, str, str]]:
    """Return the badges by name: subject, fact and colour."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = [name.rpartition(" ")[2] for name in project["classifiers"] if re.search(r":: 3\.\d+$", name)]
    numpy = next(name for name in project["dependencies"] if name.startswith("numpy"))
    table = rows((ROOT / "docs" / "coverage.md").read_text(), "namespace", "supported")
    have, supported = (
        sum(number(row[name]) for row in table if row["namespace"].startswith("`"))
        for name in ("with derivatives", "supported")
    )
    return {
        "python": ("Python", " | ".join(versions), "#0072B2"),
        "numpy": ("NumPy", numpy.removeprefix("numpy").partition(",")[0].replace(">=", "\u2265 "), "#0072B2"),
        "coverage": ("functions with derivatives", f"{supported:,.0f} of {have:,.0f}", "#00704f"),
        "licence": ("licence", project["license"], "#555555"),
    }


def badge(subject: str, fact: str, colour: str) -> str:
    """Return a badge as SVG: the subject on grey, the fact on a colour."""
    left, right = (round(6.1 * len(part) + 14) for part in (subject, fact))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" aria-label="{subject}: {fact}">
<title>{subject}: {fact}</title>
<clipPath id="round"><rect width="{left + right}" height="20" rx="3"/></clipPath>
<g clip-path="url(#round)"><rect width="{left}" height="20" fill="#333"/><rect x="{left}" width="{right}" height="20" fill="{colour}"/></g>
<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
<text x="{left / 2}" y="14" textLength="{left - 14}">{subject}</text>
<text x="{left + right / 2}" y="14" textLength="{right - 14}">{fact}</text>
</g>
</svg>
"""


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    for name in DRAWN:
        draw(name)
    for name, facts in badges().items():
        (PICTURES / f"badge-{name}.svg").write_text(badge(*facts))


if __name__ == "__main__":
    main()
