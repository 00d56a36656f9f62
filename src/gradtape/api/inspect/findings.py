"""What `check` finds, and how it looks at the derivatives that a script asked for: kinks, lost digits and lost paths at its arguments."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.api.debug.nonsmooth.kinks import kinks
from gradtape.api.debug.nonsmooth.recording import op_by_op
from gradtape.api.debug.paths import ancestors, find_paths, unfolded
from gradtape.api.debug.precision import HAS_EXTENDED, digits
from gradtape.api.debug.reasons import explain_cut
from gradtape.api.inspect.page.problems import arrays_in, copied
from gradtape.api.tape.tape import GradientTape
from gradtape.api.transforms.argnums import selection_of
from gradtape.api.transforms.jit import Jitted, jit
from gradtape.errors import ArgumentError, GradtapeError
from gradtape.ir.body import bodies_of
from gradtape.ir.graph import Graph
from gradtape.trace.array.handle import Handle
from gradtape.trace.source.log import log_of
from gradtape.transforms.procedures.ops import ProcedureOp
from gradtape.trees import flatten, unflatten

KINDS: Final = {
    "derivative": "not differentiated",
    "number": "not finite",
    "kink": "kinks and jumps",
    "digits": "lost digits",
    "effect": "not repeated by compiled calls",
    "warning": "warnings",
    "compile": "not compiled",
    "recompile": "compiled again",
    "callback": "calls of Python",
}
"""The kinds of findings, with their headings: first what may be wrong, then what takes time."""

MOST_OPS: Final = 20_000
MOST_NUMBERS: Final = 2_000_000
"""Ops, with those of all iterations, and numbers that these compute, up to which a function is looked at op by op."""

KEPT: Final = 2**24
"""Bytes of arguments of which copies are kept."""


@dataclass(frozen=True)
class Finding:
    """One thing that a script could do better.

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    what, why, remedy : str
        As in errors.
    filename, line : str and int
        Where; an empty name and 0 where no line is known.
    function : str
        The compiled function that it is about; empty for tapes.
    seconds : float or None
        Its time in this run; None for findings that are not about time.
    count : int
        How often it happened.
    """

    kind: str
    what: str
    why: str = ""
    remedy: str = ""
    filename: str = ""
    line: int = 0
    function: str = ""
    seconds: float | None = None
    count: int = 1


Place = tuple[str, int]


def place_of(site: Any) -> Place:
    """Return the file and the line of a site, or of a text that names one; an empty name and 0 for none."""
    if site is None:
        return "", 0
    if isinstance(site, str):
        filename, _, line = site.partition(" in ")[0].rpartition(":")
        return (filename, int(line)) if line.isdigit() else ("", 0)
    return site.filename, site.line


def code_line(filename: str, line: int) -> str:
    """Return a line of code."""
    return linecache.getline(filename, line).strip()


class Point(NamedTuple):
    """Arguments at which a derivative was asked for.

    Attributes
    ----------
    name : str
        The function that was called, for messages.
    primal : callable
        What is differentiated, of the arguments that were chosen.
    chosen : list
        These arguments.
    """

    name: str
    primal: Callable[..., Any]
    chosen: list[Any]


def copied_point(function: Jitted[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Point | None:
    """Return where a call asks for a derivative; None where it asks for none, for traced or large arguments."""
    made_by = function.made_by
    while made_by is not None and made_by.transform is jit and isinstance(made_by.args[0], Jitted):
        made_by = made_by.args[0].made_by
    if made_by is None:
        return None
    leaves = flatten((args, kwargs))[0]
    if (
        any(isinstance(leaf, Handle) for leaf in leaves)
        or sum(array.nbytes for array in arrays_in(leaves)) > KEPT
    ):
        return None
    try:
        options = inspect.signature(made_by.transform).bind(*made_by.args, **made_by.kwargs).arguments
        if "function" not in options or "argnums" not in inspect.signature(made_by.transform).parameters:
            return None
        primal = options["function"]
        selection = selection_of(primal, options.get("argnums"), options.get("argnames"), "check")
        chosen_places = selection.places(args, kwargs)
        kept_args, kept_kwargs = copied(args), copied(kwargs)
        chosen = selection.chosen(kept_args, kept_kwargs, chosen_places)
    except (GradtapeError, TypeError, ValueError):  # the call itself will say so
        return None

    def of_chosen(*parts: Any) -> Any:
        arguments, keywords = selection.replaced(kept_args, kept_kwargs, chosen_places, parts)
        result = primal(*arguments, **keywords)
        return result[0] if options.get("has_aux") else result

    return Point(function.site.name, of_chosen, list(chosen))


def is_small(graphs: Iterable[Graph]) -> bool:
    """Return whether programs can be run op by op, with all loops unrolled, in a moment."""
    sizes = [_unrolled(graph) for graph in graphs]
    return all(ops <= MOST_OPS and numbers <= MOST_NUMBERS for ops, numbers in sizes)


def _unrolled(graph: Any) -> tuple[float, float]:
    """Return how many ops a program has without loops, and how many numbers they compute; infinities where only the run knows."""
    ops = numbers = 0.0
    for node in graph.nodes:
        bodies = list(bodies_of(node))
        trips = _trips(node)
        if isinstance(node.op, ProcedureOp) or (bodies and trips is None):
            return np.inf, np.inf
        ops += 1
        numbers += sum(prod(getattr(out, "shape", ())) for out in node.outs if hasattr(out.aval, "shape"))
        for body in bodies:
            inner = _unrolled(body)
            ops, numbers = ops + (trips or 0) * inner[0], numbers + (trips or 0) * inner[1]
    return ops, numbers


def _trips(node: Any) -> int | None:
    """Return how often the bodies of a node run; None where only the run knows."""
    return 1 if "branches" in node.params else node.params.get("length")


def at_point(point: Point, *, exact: bool) -> Iterator[Finding]:
    """Yield what a function loses at some arguments: paths and digits, if `exact`, and where its derivative jumps."""
    leaves = arrays_in(point.chosen)
    if not leaves or not all(np.isfinite(leaf).all() for leaf in leaves):
        return
    looks: list[Callable[[Point], Iterator[Finding]]] = [_kinks]
    if exact:
        looks += [_cuts, _digits] if HAS_EXTENDED else [_cuts]
    for look in looks:
        try:
            yield from look(point)
        except ArgumentError:  # no argument is a float
            return


def _kinks(point: Point) -> Iterator[Finding]:
    for kink in kinks(point.primal, *point.chosen):
        slopes = [", ".join(f"{number:.4g}" for number in _numbers(part)) for part in kink.slopes]
        returned = ", ".join(f"{number:.4g}" for number in _numbers(kink.returned))
        description = (
            f"{kink.op} is at a kink: its slope is {slopes[0]} before and {slopes[1]} after, and gradtape returns {returned}"
            if kink.kind == "kink"
            else f"{kink.op} is at a jump, which no derivative shows"
        )
        if kink.is_stationary:
            continue  # a minimum may be at a kink, and the derivative is as good as any
        filename, line = place_of(kink.site)
        yield Finding(
            "kink",
            description,
            f"the arguments are {kink.distance:.2g} from it",
            "change the arguments, or write a smooth function where the slope matters: np.sqrt(x**2 + e) for np.abs(x)",
            filename,
            line,
            point.name,
        )


def _digits(point: Point) -> Iterator[Finding]:
    counted_digits = digits(point.primal, *point.chosen)
    for loss in counted_digits.losses:
        filename, line = place_of(loss.site)
        part = f", in the derivative of {loss.in_derivative_of}" if loss.in_derivative_of else ""
        yield Finding(
            "digits",
            f"{loss.op}{part} loses {loss.lost:.0f} digits",
            f"{counted_digits.value:.0f} digits of the value are right, and {counted_digits.derivative:.0f} of the derivative",
            loss.remedy,
            filename,
            line,
            point.name,
        )


def _cuts(point: Point) -> Iterator[Finding]:
    """Yield where some paths of a derivative end at integers, or at ops without a derivative, while others go on."""
    leaves, structure = flatten(point.chosen)
    with op_by_op(), GradientTape(persistent=True) as tape:
        watched = [tape.watch(np.asarray(leaf)) if arrays_in(leaf) else leaf for leaf in leaves]
        results = flatten(point.primal(*unflatten(structure, watched)))[0]
    tag = tape.mark
    targets = [unfolded(result.value, tag) for result in results if isinstance(result, Handle)] if tag else []
    sources = [leaf.value for leaf in watched if isinstance(leaf, Handle)]
    if tag is None or not targets:
        return
    nodes = list(dict.fromkeys(node for target in targets for node in ancestors(target)))
    connected, cuts = find_paths(targets, sources, nodes, tag)
    reported: set[Place] = set()
    for cut in cuts:
        location = place_of(cut.node.site)
        if connected and cut.kind in ("integer", "no derivative") and location not in reported:
            reported.add(location)
            explanation = explain_cut([cut], log_of(tag))
            yield Finding(
                "derivative",
                explanation.text,
                "the gradient contains the other paths only",
                explanation.remedy,
                *location,
                function=point.name,
            )


def _numbers(tree: Any) -> Sequence[Any]:
    """Return the first numbers of a nest."""
    flat = [np.ravel(np.asarray(leaf)) for leaf in flatten(tree)[0]]
    return [number for part in flat for number in part[:4]][:4]
