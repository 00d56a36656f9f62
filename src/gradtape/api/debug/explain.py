"""Why a gradient is None, or zero."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import DtypeError
from ...ir.graph import RELEASED, Mark, Node, Value
from ...ir.types import is_inexact
from ...kinds.control import Structured
from ...trace.handle import Handle
from ...trace.log import Exit, Log, log_of
from ...trace.sites import Site, user_site
from ...trace.waiting import left_alone
from ..naming import described
from ..svg import code_at
from ..tape import GradientTape
from .paths import Cut, ancestry, depends, follow, is_flat, opened, uses, vanishing


@dataclass(frozen=True, repr=False)
class Explanation:
    """Why a gradient is what it is.

    Attributes
    ----------
    reason : str
        In short: ``"connected"``, ``"never entered"``, ``"never watched"``, ``"watched after use"``, ``"recording stopped"``,
        ``"integer"``, ``"left the graph"``, ``"stop_gradient"``, ``"not differentiable"``, ``"another value"``, ``"not used"``,
        ``"record used"`` or ``"zero derivative"``.
    site : object or None
        The line that cut the path.
    op : str or None
        The op that cut it.
    text : str
        The reason in a sentence.
    remedy : str
        What to do.
    """

    reason: str
    text: str
    site: Any = None
    op: str | None = None
    remedy: str = ""

    def __repr__(self) -> str:
        lines = [f"{self.reason}: {self.text}"]
        if self.site is not None:
            lines.append(f"  where: {self.site}")
            code = code_at(self.site)
            if code:
                lines.append(f"      {code}")
        if self.remedy:
            lines.append(f"  what to do: {self.remedy}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        place = ""
        if self.site is not None:
            code = html.escape(code_at(self.site))
            place = f"<div style='opacity:.7'>{html.escape(str(self.site))}</div><pre style='margin:.2em 1em'>{code}</pre>"
        colour = "#2a9d5c" if self.reason == "connected" else "#d9822b"
        remedy = f"<div><b>What to do:</b> {html.escape(self.remedy)}</div>" if self.remedy else ""
        return (
            f"<div style='border-left:4px solid {colour};padding:.3em .9em;line-height:1.5'>"
            f"<b>{html.escape(self.reason)}</b>: {html.escape(self.text)}{place}{remedy}</div>"
        )


def explain_gradient(tape: GradientTape, target: Any, source: Any) -> Explanation:
    """Say why the gradient of `target` in `source` is None, or zero.

    Parameters
    ----------
    tape : GradientTape
        The tape that was, or will be, asked; its record may have been used already.
    target : Array
        What was to be differentiated.
    source : Array
        In what.

    Returns
    -------
    Explanation
        Shows itself as a small page; `reason`, `op` and `site` tell programs.

    Raises
    ------
    DtypeError
        If an argument is of a kind that has no gradient at all.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> with gt.GradientTape() as tape:
    ...     x = tape.watch(np.array([1.5, 2.5]))
    ...     y = np.sum(x.astype(int) * 2.0)
    >>> print(tape.gradient(y, x))
    None
    >>> gt.debug.explain_gradient(tape, y, x).reason
    'integer'
    """
    if not isinstance(tape, GradientTape):
        raise DtypeError(
            f"explain_gradient got {described(tape)} as the tape", where=user_site(), remedy="pass the tape"
        )
    for role, given in (("target", target), ("source", source)):
        if not isinstance(given, Handle | np.ndarray | np.generic | int | float | complex):
            raise DtypeError(
                f"explain_gradient got {described(given)} as the {role}",
                where=user_site(),
                remedy=f"pass one Array as the {role}",
            )
    mark = tape.mark
    if mark is None:
        return Explanation(
            "never entered",
            "the tape has recorded nothing",
            remedy="compute inside `with gt.GradientTape() as tape:`",
        )
    log = log_of(mark)
    if not isinstance(source, Handle):
        return Explanation(
            "never watched",
            f"the source is a plain {type(source).__name__}, which does not know what was computed from it",
            remedy="use what watch returns: x = tape.watch(x)",
        )
    if not isinstance(target, Handle):
        return _left(log, None, f"the target is a plain {type(target).__name__}") or Explanation(
            "left the graph",
            f"the target is a plain {type(target).__name__}, which does not know where it came from",
            remedy="keep the Array: no float(), .item() or .numpy() before the gradient",
        )
    with left_alone():
        return _along(target.value, source.value, mark, log)


def _along(target: Value, source: Value, mark: Mark, log: Log) -> Explanation:
    """Explain what lies between two values that are arrays' own."""
    end = opened(target, mark)
    if depends(end, source):
        return _connected(end, source, mark, log)
    replaced = end is not target or target.index == RELEASED
    between = source.node is not None or source.index == RELEASED
    if mark in source.marks and replaced and between:
        return Explanation(
            "record used",
            "the gradient has been taken, and one call that knows nothing of the source has replaced the record",
            remedy="ask for the explanation before the gradient, or make the tape gt.GradientTape(persistent=True)",
        )
    return _apart(end, source, mark, log)


def _connected(target: Value, source: Value, mark: Mark, log: Log) -> Explanation:
    """Explain where the target was computed from the source."""
    first = next(uses(source, ancestry(target)), None)
    if not is_inexact(source.dtype):
        return Explanation(
            "integer",
            f"the source is {source.dtype}, and there is nothing between integers",
            log.watched.get(source),
            remedy="watch floats: tape.watch(x.astype(float))",
        )
    if mark not in source.marks:
        return Explanation(
            "never watched",
            "the source is not followed by this tape",
            None if first is None else first.site,
            None if first is None else first.op.name,
            "x = tape.watch(x), inside the with block and before it is used",
        )
    found, cuts = follow(target, source, mark)
    if not found:
        return _explain_cut(cuts, log)
    if not is_inexact(target.dtype):
        return _explain_cut(cuts, log)
    killers = vanishing(target, source, mark)
    if killers is None:
        return Explanation("connected", "there is a path, and the gradient is not zero")
    return _explain_zero(killers)


def _explain_cut(cuts: list[Cut], log: Log) -> Explanation:
    cut = cuts[0]
    node, name, site = cut.node, cut.node.op.name, cut.node.site
    more = f" (and {len(cuts) - 1} more ways end elsewhere)" if len(cuts) > 1 else ""
    if cut.kind == "recording":
        return _unrecorded(cut, log)
    if cut.kind == "stop_gradient":
        text = "stop_gradient was asked to let nothing through"
        return Explanation("stop_gradient", text + more, site, name, "take it out, if that was not meant")
    if cut.kind == "integer":
        text = f"the value is converted to {node.outs[0].dtype} here, and integers carry no derivative"
        return Explanation(
            "integer", text + more, site, name, "stay with floats: np.floor, np.round or nothing"
        )
    if cut.kind == "comparison":
        text = f"{name} gives booleans: they jump, and have no derivative"
        remedy = "let the floats themselves reach the target, as in np.where(x > 0, x, 0); for a smooth step, a sigmoid"
        return Explanation("not differentiable", text + more, site, name, remedy)
    if cut.kind == "position":
        text = f"{name} gives integers ({node.outs[0].dtype}): they jump, and have no derivative"
        remedy = (
            "use the values in place of the positions (np.max for np.argmax), or a smooth stand-in (softmax)"
        )
        return Explanation("not differentiable", text + more, site, name, remedy)
    if isinstance(node.op, Structured):
        text = f"no derivative leads through {name} from there to this result"
        remedy = (
            "look at what it is used for there: a condition, an index, the number of turns, or another result"
        )
        return Explanation("not differentiable", text + more, site, name, remedy)
    return Explanation(
        "not differentiable",
        f"{name} has no derivative in this argument{more}",
        site,
        name,
        "write it with other functions",
    )


def _unrecorded(cut: Cut, log: Log) -> Explanation:
    """Explain a result that the tape does not follow although it follows the operand."""
    value, site = cut.operand, cut.node.site
    watched = log.watched.get(value)
    if watched is not None and isinstance(site, Site) and site.tick <= watched.tick:
        return Explanation(
            "watched after use",
            f"the array was watched only afterwards (at {watched})",
            site,
            cut.node.op.name,
            "watch it first, then compute",
        )
    return Explanation(
        "recording stopped",
        "the tape was not recording when this line ran",
        site,
        cut.node.op.name,
        "move the line into the with block; a one-shot tape ends with its first gradient, so make it "
        "gt.GradientTape(persistent=True) to go on",
    )


def _explain_zero(killers: list[Node]) -> Explanation:
    remedy = "look at the values there; where a slope is wanted, use a function that has one"
    if not killers:
        return Explanation("zero derivative", "what comes together on several ways cancels", remedy=remedy)
    node = killers[0]
    name = node.op.name
    if is_flat(node):
        text = f"{name} is constant piece by piece, so its derivative is 0"
    elif name == "where":
        text = "the condition chooses the other branch everywhere"
    elif name in ("maximum", "minimum", "fmax", "fmin", "clip"):
        text = f"another operand of {name} is the result everywhere"
    elif name in ("multiply", "matmul"):
        text = "the other factor is 0"
    else:
        text = f"the derivative of {name} is 0 at these values (or what comes together there cancels)"
    return Explanation("zero derivative", text, node.site, name, remedy)


def _apart(target: Value, source: Value, mark: Mark, log: Log) -> Explanation:
    """Explain where the target was not computed from the source."""
    left = _left(log, source, "the target was not computed from the source")
    if left is not None and mark in source.marks:
        return left
    for value, site in log.watched.items():
        if value is not source and depends(source, value) and depends(target, value):
            return Explanation(
                "another value",
                f"the target was computed from the array that was watched at {site}, but not from this one, "
                "which was made of it (in place, or as another result)",
                None if source.node is None else source.node.site,
                None if source.node is None else source.node.op.name,
                "ask for the gradient in the array that was used: keep it, y = x + 1 in place of x += 1",
            )
    if mark not in source.marks:
        return Explanation(
            "never watched",
            "the source is not followed by this tape, and the target was not computed from it",
            remedy="x = tape.watch(x), and compute with what watch returns",
        )
    return Explanation(
        "not used",
        "the target was not computed from the source",
        log.watched.get(source),
        remedy="compute with what tape.watch returned: the ndarray that went in is another array",
    )


def _left(log: Log, source: Value | None, text: str) -> Explanation | None:
    """Explain by the place where a value left the graph; of values that are gone only that they did is known."""
    gone: Exit | None = None
    for exit_ in reversed(log.exits):
        value = exit_.value()
        if value is None:
            gone = gone or exit_
        elif source is None or depends(value, source):
            return _explain_exit(
                exit_, f"{text}: a value was taken out by {exit_.what}, and is a constant since"
            )
    if gone is None:
        return None
    return _explain_exit(gone, f"{text}; a value was taken out by {gone.what}, and was a constant since")


def _explain_exit(exit_: Exit, text: str) -> Explanation:
    return Explanation(
        "left the graph",
        text,
        exit_.site,
        remedy="stay with Arrays: NumPy's functions take them; take numbers out only to print them",
    )
