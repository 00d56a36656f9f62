"""Outcomes: errors of linear algebra that user code handles, ``try: np.linalg.cholesky(a)``.

Results are pending, and the error for a matrix that cannot be factored would be raised when the result is read, outside the handler.
So where the code handles an error, the result is computed at once. With a program that was traced without an error, an error is a guard
that missed. A program that was traced with one has a guard that calls the operation again: it must fail.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import numpy as np

from gradtape.errors import LIBRARIES, ConcretizationError
from gradtape.ir.graph import Value
from gradtape.ir.types import BOOL, Aval
from gradtape.kinds.routines.host import call_host, enter_function
from gradtape.ops.core.elementwise.cast import stop_gradient
from gradtape.ops.core.reductions import reduce_all
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.guards import abstract_of, trace_of
from gradtape.trace.lazy.force import force
from gradtape.trace.lazy.pending import forget_failed
from gradtape.trace.patching.bytecode import handles_error
from gradtape.trace.source.contexts import contexts
from gradtape.trace.source.sites import PACKAGE, user_site
from gradtape.trees import flatten, unflatten

MAY_FAIL: Final = frozenset(
    {
        np.linalg.cholesky,
        np.linalg.eigh,
        np.linalg.eigvalsh,
        np.linalg.inv,
        np.linalg.lstsq,
        np.linalg.matrix_power,
        np.linalg.pinv,
        np.linalg.solve,
        np.linalg.svd,
        np.linalg.svdvals,
        np.linalg.tensorinv,
        np.linalg.tensorsolve,
    }
)
"""Functions that raise LinAlgError for some matrices of the right shape."""


FAILURES: Final = (IndexError, np.linalg.LinAlgError)
"""Errors of a program's operations, which depend on numbers: for numbers that the code does not let through to them, they are no errors."""


class OutcomeFailed(BaseException):
    """Raised where the function itself must answer a call.

    An operation has failed whose error the code handles, or that the code may not come to with these numbers.
    """


def is_handled(frame: FrameType) -> bool:
    """Return whether an error in this frame is caught by user code, up to the function that gradtape runs."""
    if frame.f_code is call_now.__code__:
        return False
    current: FrameType | None = frame
    users = False
    while current is not None:
        package = str(current.f_globals.get("__name__", "")).partition(".")[0]
        if package not in LIBRARIES:
            users = True
            if handles_error(current):
                return True
        elif users and package == PACKAGE:
            return False
        current = current.f_back
    return False


def call_now(array: Any, function: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Call a function of Arrays and compute its results now; raise the error that NumPy raises."""
    return compute_now(array.__array_function__(function, types, args, kwargs), function, args, kwargs)


def compute_now(made: Any, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Compute results of a call whose error the code handles, and set the outcome of their traces.

    Of mapped values all elements are computed: they must agree in the outcome.
    """
    values = [
        item.value for item in (made if isinstance(made, tuple) else (made,)) if isinstance(item, Handle)
    ]
    mapped = next((tag for value in values if (tag := abstract_of(value)) is not None), None)
    wholes = [whole for value in values if (whole := _of_all_elements(value)) is not None]
    if len(wholes) < len(values):
        return made
    traces = dict.fromkeys(trace for whole in wholes if (trace := trace_of(whole)) is not None)
    try:
        force(wholes)
    except np.linalg.LinAlgError:
        forget_failed(wholes)
        if _fails_before(args, kwargs):
            return made
        failure = _of_all_elements(_failure(function, args, kwargs))
        assert failure is not None
        failed = reduce_all(failure, axes=tuple(range(failure.ndim))) if failure.ndim else failure
        if mapped is not None and not force([failed])[0]:
            error = ConcretizationError(
                f"an error that the code handles is raised for some elements in {mapped.described}, and not for others",
                where=user_site(),
                why=mapped.why,
                remedy="ask before the operation, as in np.linalg.eigvalsh(a)[0] > 0, and select with np.where; or loop over the elements",
            )
            for tag in contexts.mapped:  # the code may handle this error as well
                tag.disagreement = error
            raise error from None
        for trace in traces:
            trace.guard(failed, 1, user_site())
        raise
    finally:
        for trace in traces:
            trace.has_outcomes = True
    return made


def _fails_before(args: Any, kwargs: dict[str, Any]) -> bool:
    """Return whether the operands of a call cannot be computed: that error is not the call's, and is raised outside the code."""
    operands = [leaf.value for leaf in flatten((args, kwargs))[0] if isinstance(leaf, Handle)]
    wholes = [whole for value in operands if (whole := _of_all_elements(value)) is not None]
    try:
        force(wholes)
    except np.linalg.LinAlgError:
        forget_failed(wholes)
        return True
    return False


def _of_all_elements(value: Value) -> Value | None:
    """Return a value of all elements of the axes that are mapped around, which are in front; None where they are not known."""
    for tag in reversed(contexts.mapped):
        if tag in value.tags:
            if tag.whole is None:
                return None
            value = tag.whole(value)
    return None if abstract_of(value) is not None else value


def _failure(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Value:
    """Return whether a call fails, of which the program makes sure by calling it again."""
    leaves, spec = flatten((args, kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Handle)]
    values = [stop_gradient(leaves[place].value) for place in places]
    constants = [None if isinstance(leaf, Handle) else leaf for leaf in leaves]

    def fails(*arrays: Any) -> tuple[Any]:
        numbers = dict(zip(places, arrays, strict=True))
        given, keywords = unflatten(spec, [numbers.get(place, one) for place, one in enumerate(constants)])
        try:
            function(*given, **keywords)
        except np.linalg.LinAlgError:
            return (np.asarray(True),)
        return (np.asarray(False),)

    return call_host(enter_function(fails), [Aval((), BOOL)], values)[0]
