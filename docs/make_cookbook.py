"""Draws the pictures of the cookbook: runs the programs of its pages, and calls a function for each picture that a page shows.

``python docs/make_cookbook.py`` draws all, ``python docs/make_cookbook.py nile swing`` these. Each picture states which programs it was
drawn from, so that a test can tell that it is old. The site makes the dark pictures of the light ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

PAGES: Final = Path(__file__).resolve().parent / "cookbook"
PICTURES: Final = PAGES.parent / "pictures" / "cookbook"
BLUE, RED, GREEN, ORANGE, GREY = "#0072B2", "#D55E00", "#009E73", "#E69F00", "0.55"
"""Colours that differ for colour-blind eyes (M. Okabe and K. Ito), on light and on dark ground."""

Names = dict[str, Any]
CODE: Final = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PICTURE: Final = re.compile(r"^!\[.*\]\(.*/(\w+)\.svg\)$", re.MULTILINE)


def censored(axes: Any, v: Names) -> None:
    order = np.argsort(v["time"])
    failed = v["failed"][order]
    alive = np.cumprod(1 - failed / np.arange(len(order), 0, -1))
    axes.step(v["time"][order], alive, where="post", color=GREY, label="data (Kaplan-Meier)")
    grid = np.linspace(0.01, 1.2, 100)

    def survival(p: Any) -> Any:
        return np.exp(-((grid / p["scale"]) ** p["shape"]))

    band = v["errors"].propagate(survival)
    middle, spread = survival(v["fit"].x), band.standard_deviation
    axes.plot(grid, middle, color=BLUE, label="fit")
    axes.fill_between(
        grid, middle - 1.96 * spread, middle + 1.96 * spread, color=BLUE, alpha=0.25, linewidth=0
    )
    axes.set(xlabel="thousands of hours", ylabel="share that still works", ylim=(0, 1))
    axes.legend(frameon=False)


def schools(axes: Any, v: Names) -> None:
    places = np.arange(8)
    axes.errorbar(v["effect"], places + 0.12, xerr=v["error"], fmt="o", color=GREY, label="measured")
    axes.errorbar(
        v["schools"].mean(0), places - 0.12, xerr=v["schools"].std(0), fmt="s", color=BLUE, label="posterior"
    )
    axes.set(xlabel="effect", ylabel="school", yticks=places)
    axes.set_yticklabels("ABCDEFGH")
    axes.invert_yaxis()
    axes.set(xlim=(-22, 60))
    axes.legend(frameon=False)


def nile(axes: Any, v: Names) -> None:
    axes.plot(range(1871, 1971), v["nile"], ".", color=GREY, label="flow")
    axes.plot(range(1872, 1971), v["filtered"](v["fit"].x)[1], color=BLUE, label="filtered level")
    axes.set(xlabel="year", ylabel="flow in 10⁸ m³")
    axes.legend(frameon=False)


def process(axes: Any, v: Names) -> None:
    x, middle, spread = v["grid"], v["prediction"], np.sqrt(v["unsure"])
    axes.plot(v["x"], v["y"], ".", color=GREY, label="data")
    axes.plot(x, np.sin(x) + 0.5 * np.cos(3 * x), "--", color=RED, label="truth")
    axes.plot(x, middle, color=BLUE, label="prediction")
    axes.fill_between(x, middle - 2 * spread, middle + 2 * spread, color=BLUE, alpha=0.25, linewidth=0)
    axes.set(xlabel="x", ylabel="y")
    axes.legend(frameon=False, ncols=3, loc="lower center")


def exchange(axes: Any, v: Names) -> None:
    import gradtape as gt

    grid = np.linspace(-0.8, 0.9, 18)
    few = v["normals"][:20_000]
    simulated = [gt.value_and_grad(v["exchange"])(v["market"] | {"correlation": c}, few) for c in grid]
    exact = [gt.value_and_grad(v["margrabe"])(v["market"] | {"correlation": c}) for c in grid]
    axes.plot(grid, [price for price, _ in exact], color=BLUE, label="price, formula")
    axes.plot(grid, [price for price, _ in simulated], "o", color=BLUE, markersize=4, label="simulation")
    axes.plot(grid, [slope["correlation"] for _, slope in exact], color=RED, label="its derivative, formula")
    axes.plot(
        grid,
        [slope["correlation"] for _, slope in simulated],
        "s",
        color=RED,
        markersize=4,
        label="simulation",
    )
    axes.set(xlabel="correlation")
    axes.legend(frameon=False, ncols=2)


def heston(axes: Any, v: Names) -> None:
    from scipy.optimize import newton
    from scipy.special import ndtr

    strikes = v["strikes"]

    def implied(prices: Any, years: float) -> Any:
        def excess(sigma: Any) -> Any:
            spread = sigma * np.sqrt(years)
            d = np.log(100 / strikes) / spread + spread / 2
            return 100 * ndtr(d) - strikes * ndtr(d - spread) - prices

        return 100 * newton(excess, np.full(len(strikes), 0.2))

    fitted = v["heston"](v["fit"].x)
    for row, (years, colour) in enumerate(zip(v["years"].ravel(), (RED, ORANGE, GREEN, BLUE), strict=True)):
        axes.plot(strikes, implied(fitted[row], years), color=colour, label=f"{years:g} years")
        axes.plot(strikes, implied(v["quotes"][row], years), "o", color=colour, markersize=4)
    axes.set(xlabel="strike", ylabel="implied volatility in percent")
    axes.legend(frameon=False)


def curve(axes: Any, v: Names) -> None:
    bars = axes.bar([f"{year} y" for year in v["maturities"]], v["slopes"] / 1e4, color=BLUE)
    axes.bar_label(bars, fmt="%.1f")
    axes.set(xlabel="quoted swap", ylabel="value per basis point", yscale="symlog", ylim=(-30, 4000))
    axes.axhline(0, color="k", linewidth=0.8)


def frontier(axes: Any, v: Names) -> None:
    targets = np.linspace(0.07, 0.0895, 12)
    axes.plot([v["best"](target).fun for target in targets], targets, color=BLUE, label="efficient frontier")
    axes.plot(np.sqrt(np.diag(v["covariance"])), v["expected"], "o", color=GREY, label="single assets")
    axes.plot(v["chosen"].fun, 0.085, "s", color=RED, label="chosen portfolio")
    axes.set(xlabel="risk", ylabel="expected return")
    axes.legend(frameon=False)


def predictive(axes: Any, v: Names) -> None:
    t = v["step"] * np.arange(len(v["forces"]))
    axes.plot(t, v["states"][:, 0], color=BLUE, label="position")
    axes.plot(t, v["states"][:, 2], color=RED, label="angle")
    axes.step(t, v["forces"], where="post", color=GREY, label="force")
    axes.set(xlabel="time")
    axes.legend(frameon=False)


def swing(axes: Any, v: Names) -> None:
    place, angle = v["swing"].x["x"][:2]
    tip = place + v["rod"] * np.sin(angle), -v["rod"] * np.cos(angle)
    axes.plot(*tip, color=BLUE, linewidth=1)
    for k in range(0, v["count"] + 1, 5):
        axes.plot([place[k], tip[0][k]], [0, tip[1][k]], color=GREY, linewidth=1)
        axes.plot(place[k], 0, "s", color="k", markersize=5)
        axes.plot(tip[0][k], tip[1][k], "o", color=BLUE, markersize=6)
    axes.set(aspect="equal", xlabel="position", ylabel="height")


def identification(axes: Any, v: Names) -> None:
    some = slice(0, 150)
    t = v["sampling"] * np.arange(v["count"])[some]
    axes.step(t, 0.3 * v["u"][some] - 1.6, where="post", color="k", linewidth=0.8, label="input")
    axes.plot(t, v["measured"][some], ".", color=GREY, markersize=4, label="measured")
    axes.plot(t, v["response"](v["fit"].x)[some], color=BLUE, label="identified model")
    axes.set(xlabel="time")
    axes.legend(frameon=False, ncols=3, loc="upper center")
    axes.margins(y=0.15)


def filter(axes: Any, v: Names) -> None:
    t = v["step"] * np.arange(len(v["ys"]))
    pull, spread = np.array(v["estimates"])[:, 2], np.array(v["spreads"])[:, 2]
    axes.plot(t, np.array(v["ys"])[:, 0], ".", color=GREY, markersize=3, label="measured position")
    axes.plot(t, np.sin(np.array(v["estimates"])[:, 0]), color=BLUE, linewidth=1, label="estimate")
    axes.plot(t, pull, color=RED, label="estimate of g / length")
    axes.fill_between(t, pull - 2 * spread, pull + 2 * spread, color=RED, alpha=0.25, linewidth=0)
    axes.axhline(9, color="k", linewidth=0.8)
    axes.set(xlabel="time", ylim=(-2, 12.5))
    axes.legend(frameon=False, ncols=3, loc="upper center")


def pendulum(axes: Any, v: Names) -> None:
    angles = v["swing"][:2]
    axes.plot(np.sum(np.sin(angles), axis=0), -np.sum(np.cos(angles), axis=0), color=BLUE, linewidth=0.9)
    axes.plot(
        [0, *np.cumsum(np.sin(angles[:, -1]))], [0, *-np.cumsum(np.cos(angles[:, -1]))], "o-", color="k"
    )
    axes.set(aspect="equal", xticks=[], yticks=[])


def heat(axes: Any, v: Names) -> None:
    axes.plot(v["middles"], v["truth"], "--", color=RED, label="true conductivity")
    axes.plot(v["middles"], v["found"], color=BLUE, label="found")
    axes.plot(v["x"][::5], np.full(9, 0.93), "^", color=GREY, label="thermometers")
    axes.set(xlabel="place in the rod")
    axes.legend(frameon=False)


def cluster(axes: Any, v: Names) -> None:
    ends = np.sort([run.fun for run in v["runs"]])
    axes.plot(ends, "o", color=BLUE, markersize=4)
    axes.axhline(-16.505384, color=RED, linewidth=1, label="Cambridge Cluster Database")
    axes.set(xlabel="run, sorted", ylabel="energy at the end", ylim=(-16.8, -11))
    axes.legend(frameon=False)


def modes(axes: Any, v: Names) -> None:
    axes.plot(v["t"], v["record"], ".", color=GREY, markersize=3, label="record")
    axes.plot(v["t"], v["residuals"](v["fit"].x) + v["record"], color=BLUE, linewidth=1.2, label="fit")
    axes.set(xlabel="time", ylim=(-2.2, 3.4))
    axes.legend(frameon=False, loc="lower right", ncols=2)
    small = axes.inset_axes([0.45, 0.68, 0.5, 0.3])
    small.plot(
        np.fft.rfftfreq(400, v["t"][1])[:40], np.abs(np.fft.rfft(v["record"]))[:40], ".-", color=ORANGE
    )
    small.set(yticks=[], title="spectrum")
    for frequency in v["fit"].x["frequency"]:
        small.axvline(frequency, color=BLUE, linewidth=0.8)


def weighting(axes: Any, v: Names) -> None:
    axes.semilogx(
        v["hertz"], v["decibels"](v["bilinear"]) - v["wanted"], "--", color=RED, label="bilinear transform"
    )
    axes.semilogx(v["hertz"], v["decibels"](v["designed"]) - v["wanted"], color=BLUE, label="designed")
    axes.set(xlabel="frequency in Hz", ylabel="error in dB", ylim=(-3, 0.5))
    axes.legend(frameon=False, loc="lower left")


def phase(axes: Any, v: Names) -> None:
    axes.set_axis_off()
    shown = {
        "image": np.abs(v["image"]),
        "one of six patterns": np.log(1 + np.fft.fftshift(v["intensity"][0])),
        "found": np.abs(v["found"]),
    }
    for k, (title, picture) in enumerate(shown.items()):
        part = axes.inset_axes([k / 3 + 0.01, 0, 0.31, 0.9])
        part.imshow(picture, cmap="viridis")
        part.set(title=title, xticks=[], yticks=[])


def deconvolution(axes: Any, v: Names) -> None:
    axes.plot(v["t"], v["blurred"], ".", color=GREY, markersize=3, label="record")
    axes.plot(v["t"], v["truth"], "--", color=RED, linewidth=1, label="truth")
    axes.plot(v["t"], v["sharp"], color=BLUE, label="restored")
    axes.set(xlabel="time", ylim=(-0.2, 1.5))
    axes.legend(frameon=False, ncols=3, loc="upper center")


def logistic(axes: Any, v: Names) -> None:
    axes.semilogy(np.array(v["losses"]) - v["losses"][-1] + 1e-16, color=BLUE)
    axes.set(xlabel="step", ylabel="loss above its minimum", ylim=(1e-13, 1))


def spirals(axes: Any, v: Names) -> None:
    ends = np.linspace(-1.05, 1.05, 120)
    plane = np.stack(np.meshgrid(ends, ends), axis=-1).reshape(-1, 2)
    logits = v["forward"](v["params"], plane, v["running"])[0]
    probability = 1 / (1 + np.exp(logits[:, 0] - logits[:, 1])).reshape(120, 120)
    axes.imshow(probability, extent=(-1.05, 1.05) * 2, origin="lower", cmap="RdBu", vmin=-0.4, vmax=1.4)
    for label, colour in ((0, "#7a0018"), (1, "#06284f")):
        axes.plot(*v["points"][:600][v["label"][:600] == label].T, ".", color=colour, markersize=3)
    axes.set(aspect="equal", xticks=[], yticks=[])


def lstm(axes: Any, v: Names) -> None:
    axes.semilogy(v["losses"], color=BLUE, linewidth=0.8)
    axes.axhline(1 / 6, color=RED, label="variance of the sum")
    axes.set(xlabel="step", ylabel="squared error")
    axes.legend(frameon=False)


def embeddings(axes: Any, v: Names) -> None:
    new = np.ones(v["taste"].shape, bool)
    new[v["who"], v["what"]] = False
    axes.plot(v["taste"][new][::60], v["guess"][new][::60], ".", color=BLUE, markersize=3)
    axes.axline((0, 0), slope=1, color="k", linewidth=0.8)
    axes.set(aspect="equal", xlabel="true rating", ylabel="predicted rating")


def sections(page: Path) -> Iterator[tuple[str, str]]:
    """Return the code of each section of a page, with the name of its picture."""
    for text in page.read_text().split("\n## ")[1:]:
        (name,) = PICTURE.findall(text)
        yield "".join(CODE.findall(text)), name


def pictures() -> dict[str, str]:
    """Return all pictures with a fingerprint of the code that they are drawn from: of their section, and of those above it."""
    found = {}
    for page in sorted(PAGES.glob("*.md")):
        above = ""
        for code, name in sections(page):
            above += code
            found[name] = hashlib.sha256(above.encode()).hexdigest()
    return found


def draw(name: str, origin: str, names: Names) -> None:
    """Write a picture."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams |= {
        "svg.hashsalt": name,
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 9,
    }
    figure, axes = plt.subplots(figsize=(6.0, 2.8), layout="constrained")
    function: Callable[[Any, Names], None] = globals()[name]
    function(axes, names)
    axes.spines[["top", "right"]].set_visible(False)
    about = {"Date": None, "Description": f"drawn from {origin}"}
    figure.savefig(PICTURES / f"{name}.svg", facecolor="white", metadata=about)
    plt.close(figure)


def main(chosen: list[str]) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    origins = pictures()
    for page in sorted(PAGES.glob("*.md")):
        if chosen and not {name for _, name in sections(page)} & {*chosen}:
            continue
        names: Names = {"__name__": "example"}
        for code, name in sections(page):
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(code, page.name, "exec"), names)
            if not chosen or name in chosen:
                draw(name, origins[name], names)


if __name__ == "__main__":
    main(sys.argv[1:])
