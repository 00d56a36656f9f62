"""`explain_gradient`: why a gradient is None, zero, or not finite."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from gradtape.api.debug.explanation import Explanation
from gradtape.api.debug.origin import first_nonfinite, origin
from gradtape.api.debug.paths import (
    ancestors,
    depends,
    find_loss,
    find_paths,
    leaves_of,
    unfolded,
    unobserved_sweep,
    uses,
)
from gradtape.api.debug.reasons import explain_cut, explain_nonfinite, explain_zero
from gradtape.api.debug.unrolled import compute_op_by_op
from gradtape.api.tape.missing_paths import Cuts
from gradtape.api.tape.naming import described
from gradtape.api.tape.record import Record, watched_value
from gradtape.api.tape.tape import GradientTape, record_of
from gradtape.errors import DtypeError
from gradtape.habits import suggests_keywords
from gradtape.ir.graph import RELEASED, TraceTag, Value
from gradtape.ir.types import is_inexact
from gradtape.trace.array.handle import Handle
from gradtape.trace.lazy.pending import only_requested
from gradtape.trace.source.log import Exit, Log, log_of
from gradtape.trace.source.sites import user_site
from gradtape.trace.variables.variable import Variable

UNCONNECTED: Final = ("never watched", "not used", "left the graph", "another value", "record used")
"""Reasons of a target that was not computed from the source."""


@suggests_keywords
def explain_gradient(tape: GradientTape, target: Any, source: Any) -> Explanation:
    """Explain why the gradient of `target` with respect to `source` is None, zero, or not finite.

    Parameters
    ----------
    tape : GradientTape
        The tape of the gradient; its record may have been used already.
    target : Array or Variable
        The target of the gradient.
    source : Array or Variable
        The source of the gradient.

    Returns
    -------
    Explanation
        Prints as a small page; `reason`, `op` and `site` are for programs.

    Raises
    ------
    DtypeError
        If an argument is of a type that has no gradient.

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
    tag = tape.mark
    if tag is None:
        return Explanation(
            "never entered",
            "the tape has recorded nothing",
            remedy="compute inside `with gt.GradientTape() as tape:`",
        )
    log = log_of(tag)
    if not isinstance(source, Handle):
        return Explanation(
            "never watched",
            f"the source is {described(source)}, which has no record of the computation",
            remedy="use what watch returns: x = tape.watch(x)",
        )
    if not isinstance(target, Handle):
        return _explain_exits(log, None, f"the target is {described(target)}") or Explanation(
            "left the graph",
            f"the target is {described(target)}, which does not know where it came from",
            remedy="keep the Array: no float(), .item() or .numpy() before the gradient",
        )
    record = record_of(tape)
    assert record is not None
    with only_requested():
        (end,) = _values(target, record)[:1] or [target.value]
        if isinstance(source, Variable):
            return _explain_variable(end, source, record, log)
        start = watched_value(source, record)
        if start is None:
            return Explanation(
                "not used",
                "the array was overwritten before anything was computed from its watched value",
                remedy="x = tape.watch(x) after x was filled",
            )
        return _explain_value(end, start, tag, log)


def _values(handle: Handle, record: Record) -> list[Value]:
    """Return the value of an array; for a variable, the values that the tape has seen of it, or else its content."""
    if not isinstance(handle, Variable):
        return [handle.value]
    read = [*record.reads(handle), *handle.reads()]
    return [value for value in dict.fromkeys(read) if record.tag in value.tags] or handle.reads()[:1]


def _explain_variable(target: Value, variable: Variable, record: Record, log: Log) -> Explanation:
    """Explain by the read of the variable whose path reaches farthest."""
    reads = _values(variable, record)
    called = "the variable" if variable.name is None else f"the variable {variable.name!r}"
    if reads and record.tag in reads[0].tags:
        found = [_explain_value(target, read, record.tag, log) for read in reads]
        return min(found, key=lambda explanation: explanation.reason in UNCONNECTED)
    if variable.serial in record.variables:
        return Explanation(
            "not used",
            f"the target was not computed from {called}, or from an earlier content of it",
            remedy="take the gradient before it is assigned to, or make the tape gt.GradientTape(persistent=True)",
        )
    if record.wants(variable):
        return Explanation(
            "not used",
            f"{called} was not read while the tape recorded",
            remedy="compute with it inside the with block",
        )
    why = (
        "the tape was made with watch_accessed_variables=False"
        if variable.trainable
        else "it is not trainable"
    )
    return Explanation(
        "never watched",
        f"{called} is not recorded by this tape: {why}",
        remedy="tape.watch(variable), inside the with block and before it is used",
    )


def _explain_value(target: Value, source: Value, tag: TraceTag, log: Log) -> Explanation:
    """Explain the gradient of a value with respect to another."""
    end = unfolded(target, tag)
    if depends(end, source):
        return _connected(end, source, tag, log)
    gone = any(leaf.index == RELEASED and tag in leaf.tags for leaf in leaves_of(end))
    between = source.node is not None or source.index == RELEASED
    if tag in source.tags and (gone or (end is not target and between)):
        return Explanation(
            "record used",
            "the gradient has been taken, and the record of the numbers that were read was released"
            if gone
            else "the gradient has been taken, and the record was replaced by one call that does not depend on the source",
            remedy="take the explanation before the gradient, or make the tape gt.GradientTape(persistent=True)",
        )
    return _unconnected(end, source, tag, log)


def _connected(target: Value, source: Value, tag: TraceTag, log: Log) -> Explanation:
    """Explain a gradient whose target was computed from the source."""
    first = next(uses(source, ancestors(target)), None)
    if not is_inexact(source.dtype):
        return Explanation(
            "integer",
            f"the source is {source.dtype}, and derivatives with respect to integers are undefined",
            log.watched.get(source),
            remedy="watch floats: tape.watch(x.astype(float))",
        )
    if tag not in source.tags:
        return Explanation(
            "never watched",
            "the source is not recorded by this tape",
            None if first is None else first.site,
            None if first is None else first.op.name,
            "x = tape.watch(x), inside the with block and before it is used",
        )
    found, cuts = find_paths([target], [source], ancestors(target), tag)
    if not found or not is_inexact(target.dtype):
        return explain_cut(cuts, log)
    sweep = unobserved_sweep(target, source, tag)
    (gradient,) = sweep.results
    assert gradient is not None
    compute_op_by_op([gradient], all_ancestors=True)
    assert gradient.data is not None
    index = first_nonfinite(gradient.data)
    if index is not None:
        return explain_nonfinite(origin(gradient, index))
    loss = find_loss(sweep)
    if loss is not None:
        return explain_zero(loss, log)
    lost = next(Cuts(tag, [target], [[source]]).found(), None)
    if lost is not None:
        return _explain_exit(lost[0], f"a path is missing: {lost[1]}", "partly lost")
    if tag.missed is not None:
        return Explanation(
            "partly lost",
            "an operation on a watched array ran on another thread, and the tape did not record it",
            tag.missed,
            remedy="compute on the thread of the with block, or take a gradient in each thread and add them",
        )
    return Explanation(
        "connected",
        ("there is a path, and the gradient is not zero" + _also_left(log, source))
        if source.size
        else "there is a path; the gradient has no elements, as the source has none",
    )


def _also_left(log: Log, source: Value) -> str:
    """Say which value left last that comes from the source: whether the target was computed of its number is not known."""
    exits = [exit_ for exit_ in log.exits if exit_.comes_from(source)]
    if not exits:
        return ""
    return f"; results computed from {exits[-1].what} at {exits[-1].site}, if any, are not in it"


def _unconnected(target: Value, source: Value, tag: TraceTag, log: Log) -> Explanation:
    """Explain a gradient whose target was not computed from the source."""
    exited = _explain_exits(log, source, "the target was not computed from the source")
    if exited is not None and tag in source.tags:
        return exited
    for value, site in log.watched.items():
        if value is not source and depends(source, value) and depends(target, value):
            return Explanation(
                "another value",
                f"the target was computed from the array that was watched at {site}, but not from this one, "
                "which was made of it (in place, or as another result)",
                None if source.node is None else source.node.site,
                None if source.node is None else source.node.op.name,
                "take the gradient with respect to the array that was used: keep it with y = x + 1 instead of x += 1",
            )
    if tag not in source.tags:
        return Explanation(
            "never watched",
            "the source is not recorded by this tape, and the target was not computed from it",
            remedy="x = tape.watch(x), and compute with the result of watch",
        )
    return Explanation(
        "not used",
        "the target was not computed from the source",
        log.watched.get(source),
        remedy="compute with the array that tape.watch returned, not with the ndarray that was passed. If the target is a derivative: "
        "that of a linear function is a constant",
    )


def _explain_exits(log: Log, source: Value | None, text: str) -> Explanation | None:
    """Explain by the line where a value left the graph; None where none did. Of dead values only the last exit is known."""
    gone: Exit | None = None
    for exit_ in reversed(log.exits):
        value = exit_.value()
        if value is None:
            gone = gone or exit_
        elif source is None or depends(value, source):
            return _explain_exit(
                exit_, f"{text}: a value left the tape through {exit_.what}, and is a constant from there on"
            )
    if gone is None:
        return None
    return _explain_exit(
        gone, f"{text}; a value left the tape through {gone.what}, and was a constant from there on"
    )


def _explain_exit(exit_: Exit, text: str, reason: str = "left the graph") -> Explanation:
    return Explanation(
        reason,
        text,
        exit_.site,
        remedy="stay with Arrays, which NumPy's functions accept; convert to numbers only to print them",
    )
