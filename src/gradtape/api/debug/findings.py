"""What made a NaN or an infinity, in words."""

from __future__ import annotations

from typing import Any, Final

from gradtape.api.debug.origin import Finding

REMEDIES: Final = {
    "log": "keep the argument above zero where the result is used: np.log(np.where(x > 0, x, 1.0)), or np.log(x + tiny)",
    "divide": "keep the denominator away from zero: np.where(y != 0, x / np.where(y != 0, y, 1.0), 0.0)",
    "sqrt": "keep the argument above zero: np.sqrt(np.where(x > 0, x, 1.0)) inside the branch of an np.where",
    "exp": "subtract the maximum first (np.logaddexp, scipy.special.logsumexp and softmax do)",
    "power": "keep the base above zero, or use a whole exponent",
    "arcsin": "clip the argument to (-1, 1)",
    "arccos": "clip the argument to (-1, 1)",
}
"""What helps, by the op that made the number (or whose derivative did)."""

REMEDY: Final = "look at the numbers that go in there: print them, or stop in a debugger at this line"


def headline(finding: Finding) -> str:
    """Return which op gave what, where in its result, and in which turn."""
    sample = finding.samples[0]
    place = f"at {list(sample.index)}" if sample.index else "as its result"
    backward = "" if finding.derivative_of is None else f", in the derivative of {finding.derivative_of}"
    turns = "".join([f", in turn {turn} of {loop}" for loop, turn in finding.turns])
    return f"{finding.op} gave {number(sample.result)} {place}{backward}{turns}"


def reason(finding: Finding) -> str:
    """Return the numbers that went in, and what the result is."""
    kind = f"the result is {finding.dtype} of shape {finding.shape}"
    if not finding.samples[0].operands:
        return f"{kind}; all that goes into this element is finite, and it overflows"
    made = [
        f"{finding.op}({', '.join(map(number, sample.operands))}) is {number(sample.result)}"
        + (f" at {list(sample.index)}" if sample.index else "")
        for sample in finding.samples
    ]
    more = f", and {finding.count - len(made)} more" if finding.count > len(made) else ""
    return f"{'; '.join(made)}{more}; {kind}"


def remedy(finding: Finding) -> str:
    """Return what to do."""
    return REMEDIES.get(finding.derivative_of or finding.op, REMEDY)


def number(given: Any) -> str:
    """Return a number with six digits."""
    return f"{given:.6g}" if isinstance(given, float | complex) else str(given)
