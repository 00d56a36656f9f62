"""Traces for one signature that are closed: nothing of the process that made them is needed to run them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import optree

from gradtape.api.export.specs import examples
from gradtape.api.transforms.pickling import Call
from gradtape.errors import ArgumentError, StructureError, kind_of
from gradtape.ir.graph import Graph, constant
from gradtape.ir.op import NDArray
from gradtape.records import record
from gradtape.trace.jit.callsite import CallSite
from gradtape.trace.jit.signature import CallArguments
from gradtape.trace.jit.specialisation import Specialisation
from gradtape.trace.source.asking import ASKING
from gradtape.trace.source.sites import user_site


class Traceable(Protocol):
    """A compiled function."""

    made_by: Call | None

    @property
    def site(self) -> CallSite:
        """Its traces and programs."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it."""


@record
class TracedCall:
    """The trace of one call.

    Attributes
    ----------
    function : Traceable
    call : CallArguments
        The arguments: the user's, or made up from descriptions.
    specialisation : Specialisation
    hidden : list of ndarray
        What the function read from outside its arguments, as it was then: the last inputs of the graph.
    """

    function: Traceable
    call: CallArguments
    specialisation: Specialisation
    hidden: list[NDArray]

    @property
    def name(self) -> str:
        name: str = self.function.site.name
        return name


def trace_call(function: Traceable, args: Sequence[Any], kwargs: dict[str, Any]) -> TracedCall:
    """Trace a compiled function for arguments or descriptions of arguments, apart from its other traces.

    Raises
    ------
    ArgumentError
        For random numbers that are drawn, and where the function looks at values and there are none.
    """
    site = function.site
    (given, named), described = examples((tuple(args), kwargs))
    call = CallArguments(given, named, site.static)
    own = CallSite(site.function, site.name, site.static)
    own.prepare(call)
    found = own.kernel_call(call)
    if found is None:
        raise ArgumentError(
            f"{site.name} cannot be compiled ahead of time here",
            where=user_site(),
            why="it reads an array that a tape or another trace records",
            remedy="call it outside the tape",
        )
    specialisation, hidden = found
    if specialisation.draws is not None:
        raise ArgumentError(
            f"{site.name} draws random numbers, and cannot be compiled ahead of time",
            where=user_site(),
            why="the state of their generator belongs to this process",
            remedy="pass the random numbers as an argument",
        )
    if described and specialisation.guards:
        guard = specialisation.guards[0]
        raise ArgumentError(
            f"{site.name}: Python branches on a value, but gt.spec only gives shape and dtype",
            where=guard.site,
            why="which branch to compile depends on the value",
            remedy="write np.where or gt.cond in place of the branch, compare lengths themselves (len(x) > 100), or export one file for "
            "each length"
            if ASKING.questions is not None
            else "pass example arrays: the branch that they take is compiled; or write np.where or gt.cond in place of the branch",
        )
    return TracedCall(function, call, specialisation, [np.array(array) for array in hidden])


def closed_graph(traced: TracedCall) -> Graph:
    """Return the graph of a trace whose outputs are the leaves of the results.

    Raises
    ------
    ArgumentError
        For variables, and results that are no numbers.
    """
    specialisation = traced.specialisation
    state = specialisation.state
    if state.read or state.assigned:
        raise ArgumentError(
            f"{traced.name} reads or assigns variables, and cannot be exported",
            where=user_site(),
            why="their content belongs to this process",
            remedy="write a function that takes their contents as arguments and returns the new ones",
        )
    graph = specialisation.graph
    outputs = []
    for output in specialisation.outputs:
        if isinstance(output, int):
            outputs.append(graph.outputs[output])
            continue
        leaf = output()
        array = (
            np.asarray(leaf) if isinstance(leaf, np.ndarray | np.generic | float | int | complex) else None
        )
        if array is None or array.dtype.kind not in "biufc":
            raise ArgumentError(
                f"{traced.name} returns {kind_of(leaf)}, which cannot be exported",
                where=user_site(),
                remedy="return arrays and numbers, in nested tuples, lists and dicts",
            )
        outputs.append(constant(array))
    return Graph(graph.inputs, graph.nodes, outputs, graph.name, graph.guards)


def refuse_other_order(name: str, call: CallArguments, made_for: CallArguments) -> None:
    """Raise StructureError where the dicts of a call have their keys in another order, which the function may have read."""
    if call.structure == made_for.structure:
        return
    raise StructureError(
        f"{name} was compiled for dicts whose keys are in another order, or of other types",
        where=user_site(),
        why="a function can read the order of the keys, and its result may depend on it",
        remedy="build the dicts in the order of the arguments for which it was compiled: "
        f"{_keys_of(made_for)}",
    )


def _keys_of(call: CallArguments) -> str:
    """Return the containers of the arguments of a call, with the keys in order and * for the leaves."""
    return repr(call.spec.unflatten([_Star()] * call.spec.num_leaves))


class _Star:
    """Stands for a leaf in a message."""

    def __repr__(self) -> str:
        return "*"


# Names


def argument_places(traced: TracedCall) -> list[str]:
    """Return what each leaf of the arguments is, as one would write it: ``params['w']``."""
    args, _ = traced.call.with_leaves(traced.call.leaves)
    names = argument_names(traced.function, len(args))
    places = []
    for path in optree.treespec_paths(traced.call.spec):
        kind, key, *rest = path
        places.append(place_of(names[key] if kind == 0 else str(key), rest))
    return places


def parameter_places(traced: TracedCall) -> list[str]:
    """Return the same of the traced leaves alone: the inputs of the kernel."""
    return traced.call.select(argument_places(traced))


def argument_names(function: Callable[..., Any], count: int) -> list[str]:
    """Return the names of the first positional arguments."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names: list[str] = []
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
        elif parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}[{k}]" for k in range(max(count - len(names), 0))]
    return (names + [f"x{k}" for k in range(len(names), count)])[: max(count, len(names))]


def place_of(name: str, path: Sequence[Any]) -> str:
    """Return what stands in containers, as one would write it."""
    return name + "".join([f"[{key!r}]" for key in path])
