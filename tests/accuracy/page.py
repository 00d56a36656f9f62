"""The tables of docs/reference/accuracy.md that the sweep fills."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.accuracy.references import REFERENCES
from tests.accuracy.sweep import Order, Worst, sweep

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "accuracy.md"
START, END = "<!-- sweep -->\n", "<!-- end of sweep -->\n"

SCIPYS = "SciPy's own error in the value"
ZERO = "cancels at a zero of the function"
ROUNDED = "an argument is rounded first: x - y, y - 1, x**2 or p log(x)"
QUADRATURE = "integrated by a rule"
RANGE = "an intermediate number leaves the range"
REASONS: dict[str, str] = {
    "np.sinc": "NumPy's formula: the angle is rounded",
    "np.hypot": "subnormal lengths are rounded",
    "np.arctan": "subnormal results are 0",
    "np.arctan2": RANGE,
    "np.power": f"{ROUNDED}; {RANGE}",
    "np.logaddexp": f"{ROUNDED}; {ZERO}",
    "np.logaddexp2": f"{ROUNDED}; {ZERO}",
    "scipy.special.entr": ZERO,
    "scipy.special.exp10": SCIPYS,
    "scipy.special.exprel": SCIPYS,
    "scipy.special.cosm1": SCIPYS,
    "scipy.special.rel_entr": f"{ZERO}; {RANGE}",
    "scipy.special.kl_div": f"{SCIPYS}; {RANGE}",
    "scipy.special.pseudo_huber": f"{SCIPYS}; {RANGE}",
    "scipy.special.powm1": ROUNDED,
    "scipy.special.boxcox": ROUNDED,
    "scipy.special.boxcox1p": ROUNDED,
    "scipy.special.inv_boxcox": SCIPYS,
    "scipy.special.inv_boxcox1p": SCIPYS,
    "scipy.special.erf": ROUNDED,
    "scipy.special.erfc": ROUNDED,
    "scipy.special.ndtr": ROUNDED,
    "scipy.special.erfcx": SCIPYS,
    "scipy.special.erfi": SCIPYS,
    "scipy.special.log_ndtr": SCIPYS,
    "scipy.special.gammaln": SCIPYS,
    "scipy.special.rgamma": SCIPYS,
    "scipy.special.j0": SCIPYS,
    "scipy.special.j1": SCIPYS,
    "scipy.special.i0": SCIPYS,
    "scipy.special.i1": SCIPYS,
    "scipy.special.agm": RANGE,
    "scipy.special.elliprc": RANGE,
    "scipy.special.elliprf": QUADRATURE,
    "scipy.special.elliprd": QUADRATURE,
    "scipy.special.elliprg": QUADRATURE,
}
"""Why errors of functions are larger than `BOUND`."""
BOUND = 10.0


def cell(worst: Worst) -> str:
    """Return an error, and where it is if it is large."""
    if worst.ulps <= BOUND:
        return f"{worst.ulps:.1f}"
    place = ", ".join(f"{x:.3g}" for x in worst.at)
    error = "range" if np.isinf(worst.ulps) else f"{worst.ulps:.1e}"
    return f"{error} ({place})"


def largest(found: dict[Order, Worst], degree: int) -> Worst:
    """Return the largest error among the derivatives of a degree."""
    return max([worst for order, worst in found.items() if sum(order.counts) == degree])


def line(name: str, density: int) -> str:
    """Return the row of a function: value, first and second derivatives, in both dtypes."""
    cells = []
    for dtype in (np.float64, np.float32):
        found = sweep(name, dtype, density)
        cells += [cell(largest(found, degree)) for degree in range(3)]
    large = any("(" in text for text in cells)
    reason = REASONS.get(name, "") if large else ""
    return f"| `{name}` | {' | '.join(cells)} | {reason} |"


def table(density: int) -> str:
    """Return the table of all functions."""
    head = (
        "| function | value | first | second | value, float32 | first | second | reason of large errors |\n"
        "|---|---|---|---|---|---|---|---|\n"
    )
    return head + "".join(f"{line(name, density)}\n" for name in REFERENCES)


def write(density: int) -> None:
    """Write the table into the page."""
    before, _, rest = PAGE.read_text().partition(START)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{START}\n{table(density)}\n{END}{after}")
