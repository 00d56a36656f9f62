"""Looking inside compiled functions: the graph, the loops, the LLVM and the assembly, and why things are as they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

from gradtape.api.transforms.gradient import value_and_grad
from gradtape.api.transforms.jit import Jitted, jit
from gradtape.errors import ArgumentError, counted, kind_of
from gradtape.ir.body import bodies_of
from gradtape.ir.printer import identifier, print_graph
from gradtape.kinds.routines.callback import Callback
from gradtape.lower.numba.module import EntryPoint, print_module, print_program
from gradtape.lower.pipeline import lower
from gradtape.passes.complex.graphs import split_complex
from gradtape.passes.pipeline import optimise
from gradtape.passes.simplify.guards import substitute_guarded_numbers
from gradtape.procedures.printer import print_procedure
from gradtape.runtime.compile.engine import assembly, optimised_llvm
from gradtape.trace.jit.callsite import CallSite
from gradtape.trace.jit.signature import CallArguments, describe_key
from gradtape.trace.jit.specialisation import Specialisation
from gradtape.trace.source.sites import user_site
from gradtape.transforms.procedures.ops import ProcedureOp


class Text(str):
    """Text that is displayed unquoted, in a terminal and in a notebook."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        escaped = self.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return f"<pre style='line-height:1.2'>{escaped}</pre>"


def graph(function: Jitted[..., Any], *args: Any, optimised: bool = False, **kwargs: Any) -> Text:
    """Return the graph of a compiled function, as typed three-address Python, and the source of the procedures that it calls.

    Parameters
    ----------
    function : Jitted
        Made by `gradtape.jit`, `gradtape.grad` or `gradtape.value_and_grad`.
    *args, **kwargs
        Example arguments, which select the trace, or make it if there is none. Without them, the last trace is shown.
    optimised : bool, default False
        Whether to show the graph after the passes instead of as traced.

    Returns
    -------
    str
        Shows itself without quotes.

    Raises
    ------
    ArgumentError
        If `function` is not a compiled function, or was never called and no arguments are given.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> f = gt.jit(lambda x: np.sum(x * 2))
    >>> "reduce_sum" in gt.inspect.graph(f, np.ones(3))
    True
    """
    traced = _specialisation(function, args, kwargs).graph
    shown = optimise(split_complex(substitute_guarded_numbers(traced))) if optimised else traced
    called = {node.op.whole(node.params) for node in shown.nodes if isinstance(node.op, ProcedureOp)}
    sources = [print_procedure(reference.procedure) for reference in sorted(called, key=repr)]
    return Text("\n\n".join([print_graph(shown), *sources]))


def loops(function: Jitted[..., Any], *args: Any, **kwargs: Any) -> Text:
    """Return the loops of a compiled function, as Python that runs. Parameters as for `graph`."""
    return Text(print_program(_specialisation(function, args, kwargs).graph))


def numba_source(function: Callable[..., Any], *args: Any) -> Text:
    """Return a Python module that computes a function and its gradient, and needs only NumPy and Numba.

    Parameters
    ----------
    function : callable
        The module has a function of its name. If its result is one real number there is another, ``value_and_grad_`` and the name, that
        returns the value and the gradient in the first argument. Of a compiled function, which `gradtape.jit`, `gradtape.grad` or
        `gradtape.value_and_grad` has made, the module computes what that returns.
    *args
        Example arguments: the module is for arrays of these shapes and dtypes. Its functions take the arrays and numbers in them, one
        parameter for each.

    Returns
    -------
    str
        Shows itself without quotes. Every function of the module is compiled by ``@numba.njit`` when it is called.

    Raises
    ------
    LoweringError
        For routines of LAPACK and functions of SciPy, which Numba does not have.
    ArgumentError
        If the function reads variables.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> source = gt.inspect.numba_source(lambda x: np.sum(x * x), np.ones(3))
    >>> "def value_and_grad_lambda(x0):" in source
    True
    """
    if isinstance(function, Jitted):
        return Text(print_module([_entry_point(function, args)]))
    entries = [_entry_point(jit(function), args)]
    outputs = entries[0].graph.outputs
    if len(outputs) == 1 and outputs[0].shape == () and outputs[0].dtype.kind == "f":
        entries.append(_entry_point(value_and_grad(function), args))
    return Text(print_module(entries))


def _entry_point(function: Jitted[..., Any], args: tuple[Any, ...]) -> EntryPoint:
    """Return what a module computes for a compiled function and arguments."""
    site = function.site
    specialisation, name = _specialisation(function, args, {}), site.name
    called = site.kernel_call(CallArguments(args, {}, site.static))
    if specialisation.state.read or not all(isinstance(output, int) for output in specialisation.outputs):
        raise ArgumentError(
            f"{name} has results that do not come from its arguments alone",
            where=user_site(),
            why="it reads a variable, or returns a constant",
            remedy="pass what it reads as an argument",
        )
    hidden = () if called is None else tuple(called[1])
    return EntryPoint(identifier(name), specialisation.graph, tuple(specialisation.outputs), hidden)


def llvm(function: Jitted[..., Any], *args: Any, optimised: bool = True, **kwargs: Any) -> Text:
    """Return the LLVM of a compiled function's kernel, after LLVM's passes or before. Parameters as for `graph`."""
    lowered = lower(_specialisation(function, args, kwargs).graph)
    text = lowered.ir_text
    return Text(optimised_llvm(text, unroll=lowered.unrolls) if optimised else text)


def asm(function: Jitted[..., Any], *args: Any, **kwargs: Any) -> Text:
    """Return the assembly of a compiled function's kernel. Parameters as for `graph`."""
    lowered = lower(_specialisation(function, args, kwargs).graph)
    return Text(assembly(lowered.ir_text, unroll=lowered.unrolls))


def explain(function: Jitted[..., Any]) -> Text:
    """Return a report of the traces and compilations of a function, with their reasons and costs.

    Parameters
    ----------
    function : Jitted
        A compiled function.

    Returns
    -------
    str
        For each signature: the traces, the guards that select them (with the line that needed a value), the origin of the machine code
        (compiled, disk, or the interpreter and why), seconds, the loops that were fused and the arrays that were stored, and the lines at
        which machine code calls Python. Calls that failed are listed with the error and the line, of whatever package, that
        asked for numbers or gave a traced array to compiled code.
    """
    site = _site(function)
    trace_count, lent = len(site.specialisations()), len(site.lent)
    lines = [
        f"{site.name}: {counted(trace_count, 'trace')} for {counted(len(site.signatures) + bool(lent), 'signature')}"
    ]
    if site.traces > trace_count:
        lines[0] += f"; {site.traces} were made, and later ones replaced earlier ones"
    for key, states in site.signatures.items():
        lines.append(f"arguments {describe_key(key)}")
        for number, specialisation in enumerate(states.all()):
            lines.extend("  " + line for line in _explain_trace(number, specialisation))
        if any(captures.tree.warned for captures in states):
            lines.append(
                "  more traces than gt.config.trace_limit: calls that need another one run on the interpreter"
            )
    errors = Counter(
        f"a call failed at {event.site}: {event.text}"
        for event in site.explain.events
        if event.kind == "error"
    )
    lines.extend(f"{line}{times(n)}" for line, n in errors.items())
    if lent:
        lines.append("shared with functions of the same code")
        for number, specialisation in enumerate(site.lent):
            lines.extend("  " + line for line in _explain_trace(number, specialisation))
    return Text("\n".join(lines))


def _explain_trace(number: int, specialisation: Specialisation) -> list[str]:
    """Return the lines about one trace: where its kernel came from, what it is specialised on, and what it costs."""
    program = specialisation.program
    kernel = program.kernel_so_far
    origin = {
        "background": f"{kernel.reason}, and the NumPy interpreter answers calls until it is done",
        "compiled": f"compiled in {kernel.seconds * 1e3:.1f} ms",
        "disk": f"loaded from the disk cache in {kernel.seconds * 1e3:.1f} ms",
        "interpreter": f"runs on the NumPy interpreter: {kernel.reason}",
    }[kernel.origin]
    native = (
        "called natively"
        if specialisation.native is not None and kernel.loaded is not None
        else "called through Python"
    )
    lines = [f"trace {number}: {counted(len(specialisation.graph.nodes), 'node')}, {origin}, {native}"]
    if program.interpreted:
        lines.append(
            f"  calls answered by the NumPy interpreter while it was compiled: {program.interpreted}"
        )
    guards = Counter(
        f"guard: the value at {guard.site} is {guard.expected}" for guard in specialisation.guards
    )
    lines.extend(f"  {line}{times(n)}" for line, n in guards.items())
    if specialisation.prologue is not None:
        lines.append(f"  prologue: {specialisation.prologue.state}")
    lines.extend(f"  {way}" for way in dict.fromkeys(map(str, specialisation.ways)))
    lines.extend(f"  {line}" for line in _explain_loops(specialisation))
    lines.extend(f"  {line}{times(n)}" for line, n in Counter(_explain_calls(specialisation)).items())
    if specialisation.captured:
        lines.append(
            f"  reads {len(specialisation.captured)} captured arrays: traced again when one of them changes"
        )
    state = specialisation.state
    if state.read:
        lines.append(f"  reads {len(state.read)} variables and assigns to {len(state.assigned)}")
    lines.append(f"  workspace: {kernel.workspace} bytes")
    lines.extend(f"  {note}{times(n)}" for note, n in Counter(kernel.notes).items())
    return lines


def times(number: int) -> str:
    """Return how often something stands for itself, if that is more than once."""
    return f", {number} times" if number > 1 else ""


def _explain_loops(specialisation: Specialisation) -> list[str]:
    """Return what was made of Python's loops."""
    lines = []
    loops = Counter(
        (str(loop.site), loop.trips, loop.nodes, loop.carries, loop.elements)
        for loop in specialisation.loops
        if loop.nodes
    )
    for (site, trips, nodes, carries, rows), count in loops.items():
        iterations = "iterations while a condition holds" if trips is None else counted(trips, "iteration")
        lines.append(
            f"loop at {site}: {iterations} of {nodes} nodes, {carries} carried, {rows} by row{times(count)}"
        )
    rolled = {str(loop.site) for loop in specialisation.loops}
    for site, reason in dict.fromkeys(
        (str(declined.site), declined.reason) for declined in specialisation.declined
    ):
        if site not in rolled:
            lines.append(f"no loop at {site}: {reason}")
    return lines


def every_node(graph: Any) -> Iterator[Any]:
    """Yield the nodes of a graph and of the bodies in it."""
    for node in graph.nodes:
        yield node
        for body in bodies_of(node):
            yield from every_node(body)


def _explain_calls(specialisation: Specialisation) -> Iterator[str]:
    """Yield where machine code calls Python."""
    for node in every_node(specialisation.program.graph):
        if isinstance(node.op, Callback):
            description = (
                "a Python function is called, which has no derivative unless gt.custom_vjp gives one"
                if node.op.is_local
                else f"{node.op.name}, a routine of NumPy or SciPy, is called"
            )
            yield f"leaves machine code at {node.site}: {description}"


def _site(function: Any) -> CallSite:
    if isinstance(function, MethodType):
        function = function.__func__
    if not isinstance(function, Jitted):
        raise ArgumentError(
            f"inspect got {kind_of(function)}, which is not a compiled function",
            where=user_site(),
            remedy="pass the function that gt.jit or gt.grad returned: gt.inspect.graph(gt.jit(f), x)",
        )
    return function.site


def _specialisation(
    function: Jitted[..., Any] | MethodType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Specialisation:
    site = _site(function)
    if args or kwargs:
        if isinstance(function, MethodType):
            args = function.__self__, *args
        site.call(args, kwargs)
        specialisations = site.specialisations_for(CallArguments(args, kwargs, site.static))
    else:
        specialisations = site.specialisations()
    if not specialisations:
        raise ArgumentError(
            f"{site.name} has not been called yet, so there is nothing to show",
            where=user_site(),
            remedy=f"pass example arguments: gt.inspect.graph({site.name}, x)",
        )
    return specialisations[-1]
