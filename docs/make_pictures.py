"""Writes docs/speed.svg, the picture of the README's speed table. Run it after ``benchmarks/run.py`` has written the table anew."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[1]
TOOLS = {"gradtape": "C3", "jax": "C0", "torch": "C1", "autograd": "C7"}
"""Tools that differentiate, by their colours. What is derived by hand is the measure, in C."""


def table(text: str) -> list[tuple[str, dict[str, float]]]:
    """Return the rows of the speed table that have a time by hand in C: a name, and microseconds by tool."""
    part = text[text.index("<!-- speed table -->") :]
    lines = [line for line in part.splitlines()[1:] if line.startswith("|")]
    head = [cell.strip() for cell in lines[0].strip("|").split("|")]
    rows = []
    for line in lines[2:]:
        cells = dict(zip(head, [cell.strip() for cell in line.strip("|").split("|")], strict=True))
        times = {
            name.removesuffix(" us"): float(cell.replace(",", ""))
            for name, cell in cells.items()
            if name.endswith(" us") and re.fullmatch(r"[\d.,e+-]+", cell)
        }
        if times.keys() >= {"c", "gradtape"}:
            size = f"{int(cells['size']):,}" if cells["size"].isdigit() else cells["size"]
            rows.append((" ".join([cells["work"], size, cells["wording"]]).strip(), times))
    return rows


def main() -> None:
    """Draw how many times as long as C by hand each tool takes for value and gradient."""
    rows = table((ROOT / "README.md").read_text())[::-1]
    plt.rcParams["svg.hashsalt"] = "speed"  # the same table gives the same file
    figure, axes = plt.subplots(figsize=(7.5, 0.32 * len(rows) + 1.2), layout="constrained")
    for tool, colour in TOOLS.items():
        points = [(times[tool] / times["c"], place) for place, (_, times) in enumerate(rows) if tool in times]
        axes.scatter(*zip(*points, strict=True), color=colour, label=tool, s=36, zorder=3)
    axes.axvline(1, color="k", linewidth=1)
    axes.set(xscale="log", xlabel="time of value and gradient; 1 is C, derived by hand (log scale)")
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=len(TOOLS), frameon=False)
    figure.savefig(ROOT / "docs" / "speed.svg", facecolor="white", metadata={"Date": None})


if __name__ == "__main__":
    main()
