"""Closure conversion: a function of the user's with the traced arrays that it reads from outside as arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.api.control.carries import placeholders
from gradtape.api.control.variables import operand
from gradtape.api.custom.printing import PRINTS
from gradtape.api.transforms.jit import jit
from gradtape.ir.graph import Value
from gradtape.kinds.operands import as_value
from gradtape.trace.array.array import Array, wrap
from gradtape.trace.array.handle import unwrap
from gradtape.trace.jit.bodies import BodyTracer, Failure, apply_graph
from gradtape.trace.jit.guards import InBody


class InSolver(InBody):
    """The tag of values in a function that a solver calls with numbers of its own choice."""

    __slots__ = ()

    why = "it is traced once, and the solver calls it with many values"
    instead = "use np.where, or gt.cond, or call the solver outside the compiled function"
    leak_why = "it is traced once, and the solver calls it with many values"
    leak_remedy = "return it from the function"


class ClosedFunction:
    """A function of one or more arrays, compiled, with the arrays that it reads from outside as further arguments.

    Parameters
    ----------
    function : callable
        ``function(x) -> array``. It is traced once.
    x : Value, or sequence of them
        What it is traced with: its type counts.
    described : str
        The function, for errors.

    Attributes
    ----------
    captured : list of Value
        The arrays that it reads from outside.
    body : Body
        Its graph.
    check : callable
        ``check(x, *captured)`` raises the error of a check of the function that fails.
    apply, evaluate, compiled : callable
        ``apply(x, *captured)``, traced, and compiled. What `gt.print` prints in the function is printed by `evaluate`, which is traced like
        `apply`, and by `compiled`, and they raise the errors of its checks; rules of derivatives apply it.
    """

    def __init__(self, function: Callable[..., Any], x: Value | Sequence[Value], described: str) -> None:
        with BodyTracer() as tracing:
            tag = InSolver(described)
            starts = placeholders([start.aval for start in ([x] if isinstance(x, Value) else x)], tag)
            traced = tracing.run(
                lambda *values: function(*map(Array, values)), function, tag, starts, *starts
            )
            result = as_value(unwrap(traced.result), described)
            traced.collect_nodes([result])
            reads = traced.reads
            body = traced.closed([*traced.inputs, *reads], [result], described)
            prints = any(start is PRINTS for start in traced.assigned)
            checks = [start for start in traced.assigned if isinstance(start, Failure)]
            states = [*[PRINTS] * prints, *checks]
            closed = traced.closed([*traced.inputs, *reads, *states], [result, *states], described)
            traced.forget_variables()
        self.captured = [operand(read) for read in reads]
        self.body = body
        self._derived: dict[Any, Callable[..., Any]] = {}
        zeros = [np.int64(0)] * len(checks)

        def run(*arrays: Any) -> Any:
            (made,) = apply_graph(body, [as_value(unwrap(array)) for array in arrays])
            return wrap(made)

        def run_with_states(states: Any, *arrays: Any) -> Any:
            values = [as_value(unwrap(array)) for array in (*arrays, *states)]
            return tuple(map(wrap, apply_graph(closed, values)))

        def evaluate(*arrays: Any) -> Any:
            made, *after = run_with_states([*[PRINTS] * prints, *zeros], *arrays)
            for count in after[:prints]:
                PRINTS.assign(count)
            for failed in after[prints:]:
                traced.verify(unwrap(failed))
            return made

        def check(*arrays: Any) -> None:
            if zeros:
                _, *after = run_with_states([*[np.int64(0)] * prints, *zeros], *arrays)
                for failed in after[prints:]:
                    traced.verify(unwrap(failed))

        with_states = jit(run_with_states)

        def compiled(*arrays: Any) -> Any:
            made, *after = with_states([*[np.int64(0)] * prints, *zeros], *arrays)
            for failed in after[prints:]:
                if failed:
                    traced.raise_error(int(failed))
            return made

        self.apply, self.check = run, check
        self.evaluate, self.compiled = (evaluate, compiled) if len(closed.outputs) > 1 else (run, jit(run))

    def derived(self, transform: Callable[..., Any]) -> Callable[..., Any]:
        """Return a transform of the function in its first argument, compiled once."""
        if transform not in self._derived:
            self._derived[transform] = jit(transform(self.apply))
        return self._derived[transform]
