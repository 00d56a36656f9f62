"""Checks: branches of Python whose other side only raises an error, ``if np.any(x < 0): raise ValueError``.

Where values have numbers, checks are guards like others. In the body of a loop, or in a function that a solver calls, values have none:
there the check becomes a part of the program. The code goes on as if the check had passed. The program computes the number of the first
check that failed, and the call of the loop, or of the solver, raises its error.
"""

from __future__ import annotations

from types import FrameType
from typing import Any, Final

import numpy as np

from gradtape.errors import LeakedValueError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.ops.core.elementwise.logic import logical_not, truth
from gradtape.ops.core.elementwise.mixed_comparisons import fits
from gradtape.ops.core.reductions import reduce_all
from gradtape.ops.core.shape import reshape
from gradtape.trace.jit.guards import InBody, abstract_of, trace_of
from gradtape.trace.lazy.force import force
from gradtape.trace.patching.bytecode import only_raises, passes_error_on, qualified_name
from gradtape.trace.source.contexts import contexts
from gradtape.trace.source.sites import PACKAGE, user_site

RUNS_BODY: Final = "run_body"
"""The name of the method that calls the function of a body."""


ASSUMED: Final = {
    "scipy.interpolate._interpolate._PPolyBase.__init__": True,  # breakpoints increase
    "scipy.interpolate._interpolate.interp1d.__init__": False,  # there is no NaN
}
"""Answers that code of SciPy mostly gets where neither side is an error, by function. With others it stops in a body."""


def answer_of_check(value: Value, frame: FrameType) -> bool | None:
    """Return the truth of a value without numbers of its own, if a branch depends on it whose other side only raises an error; else None.

    Parameters
    ----------
    value : Value
        Of one element.
    frame : frame
        Asks for the truth.
    """
    passing, assumed = _passing_answer(frame), False
    if passing is None:
        passing, assumed = ASSUMED.get(qualified_name(frame)), True
    if passing is None:
        return None
    ok = truth(reshape(value, ()))
    passed = passes(ok if passing else logical_not(ok))
    if passed is None or (assumed and not passed):
        return None  # which is an error
    return passing if passed else not passing


def _passing_answer(frame: FrameType) -> bool | None:
    """Return the answer with which code goes on, where the other one only leads to an error; None if there is no such answer."""
    if_true, if_false = (only_raises(frame, answer, _is_ours) for answer in (True, False))
    if if_true == if_false or _is_handled(frame):
        return None
    return if_false


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == PACKAGE


def _is_handled(frame: FrameType) -> bool:
    """Return whether code handles an error of a frame, up to the body of the outermost loop: then its other side does not only raise."""
    bodies = sum(isinstance(context, InBody) for context in contexts.stack)
    current: FrameType | None = frame.f_back
    while current is not None and bodies:
        if not _is_ours(current):
            if not passes_error_on(current, _is_ours):
                return True
        elif current.f_code.co_name == RUNS_BODY:
            bodies -= 1
        current = current.f_back
    return False


def passes_in_body(ok: Value) -> bool | None:
    """Return whether a check of a condition without numbers passes; None where numbers can be had, or the condition cannot be checked."""
    return passes(ok) if isinstance(abstract_of(ok), InBody) else None


def passes(ok: Value) -> bool | None:
    """Return whether a check passes; in a body, let the program check it. None where it cannot be checked."""
    stack, mapped = contexts.stack, list(contexts.mapped)
    last = len(stack)
    while True:
        first = mapped[-1].depth if mapped else 0
        bodies = [context for context in stack[first:last] if isinstance(context, InBody)]
        if bodies:
            body = bodies[-1] if any(one.is_condition for one in bodies) else bodies[0]
            if body.check is None or (body is not bodies[0] and not body.is_condition):
                return None
            return body.check(ok)
        if not mapped:
            break
        tag, last = mapped.pop(), first
        if tag in ok.tags:
            if tag.whole is None:
                return None
            ok = reduce_all(tag.whole(ok), axes=(0,))
    (data,) = force([ok])
    trace = trace_of(ok)
    return bool(data) if trace is None else bool(trace.guard(ok, int(data), user_site(3)))


def check_fit(number: Value, dtype: np.dtype[Any]) -> None:
    """Raise NumPy's error for a Python number that does not fit an integer dtype; in a body or a procedure the program checks it.

    In a trace a number is checked once for each dtype.

    Raises
    ------
    OverflowError, ValueError
        For such a number; ValueError if it is NaN.
    """
    if here.builder is not None:
        here.builder.check_fit(number, dtype)
        return
    tag = abstract_of(number) or trace_of(number)
    if tag is not None and (number, dtype) in tag.fitting:
        return
    try:
        passed = passes(fits(number, dtype))
    except LeakedValueError:  # a placeholder, of which only the type counts
        return
    if passed is False:
        if abstract_of(number) is None:
            np.array(int(force([number])[0].item()), dtype)  # which raises NumPy's error
        raise OverflowError(f"Python number out of bounds for {dtype}")
    if tag is not None:
        tag.fitting.add((number, dtype))


def first_number(value: Value) -> int:
    """Return the number of the first check that has failed in a body; 1 in the body of another loop, where there are no numbers."""
    for tag in reversed(contexts.mapped):
        if tag in value.tags and tag.whole is not None:
            value = tag.whole(value)
    if abstract_of(value) is not None:
        return 1
    (numbers,) = force([value])
    return int(numbers[numbers != 0][0])
