"""Computing pending values when somebody looks at them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any, Final

import numpy as np

from gradtape.config import config
from gradtape.errors import ConcretizationError, LeakedValueError
from gradtape.ir.body import Body
from gradtape.ir.graph import Graph, Node, Value, extract
from gradtape.ir.op import NDArray
from gradtape.ir.types import FLOAT64, aval
from gradtape.kinds.control import Structured
from gradtape.ops.core.elementwise.cast import identity
from gradtape.reference_counts import reference_count
from gradtape.runtime.compile.program import ACTIVE, repeated_program, tape_program
from gradtape.trace.jit.guards import Abstract, abstract_of
from gradtape.trace.lazy.instruments import CHECKS
from gradtape.trace.lazy.pending import followers, others, waiting
from gradtape.trace.lazy.pending_cache import done_again, remember, run
from gradtape.trace.source.contexts import scopes
from gradtape.trace.source.sites import user_site
from gradtape.trace.variables.locks import computing
from gradtape.transforms.call import GraphCall

SMALL_WORK = 200_000
"""Element operations below which a structure seen for the first time is interpreted: compiling costs some 20 ms, in which NumPy does
about this many per op."""


WORK_PER_NODE = 1000
"""Element operations per node below which it takes far longer to compile nodes, half a millisecond each, than to interpret them once."""

ONE_NODE = 20
"""Element operations that take as long as NumPy takes to begin one: the interpreter begins them anew in each turn of a loop."""

UNKNOWN_TURNS = 100
"""How often a loop may turn that ends on a value."""


def force(values: Sequence[Value]) -> list[NDArray]:
    """Return the arrays of these values, computing what is pending.

    What is computed on the way and is still in the user's hands, or needed by work that is not looked at now, is kept: it is never
    computed again.

    Raises
    ------
    LeakedValueError
        For a value of a jitted function that has returned.
    ConcretizationError
        For an element of an axis that `vmap` maps, and in the body of a loop or branch.
    """
    arrays = compute(values)
    for check in CHECKS:
        check(values)
    return arrays


def compute(values: Sequence[Value]) -> list[NDArray]:
    """Return what `force` returns, unchecked."""
    profiler = ACTIVE.profiler
    if profiler is None or all(value.data is not None for value in values):
        return _computed(values)
    with profiler.forcing(user_site()):
        return _computed(values)


def _computed(values: Sequence[Value]) -> list[NDArray]:
    arrays = [value.data for value in values]
    for array in arrays:
        if array is None:
            break
    else:
        _release_again(values)
        return arrays  # type: ignore[return-value]
    while True:
        with computing:
            pending = [value for value in values if value.data is None]
            if pending and not _called(pending):
                compiled = config.jit and not CHECKS
                known = done_again(pending) if compiled else None
                _release(_worked_out(pending, compiled) if known is None else known)
            arrays = [value.data for value in values]
        # While machine code ran, another thread may have changed rows in the memory of one.
        for array in arrays:
            if array is None:
                break
        else:
            return arrays  # type: ignore[return-value]


def _worked_out(pending: Sequence[Value], compiled: bool) -> Iterable[Value]:
    """Compute values, and what else is worth it, and return what was computed."""
    nodes, leaves = extract(pending)
    for leaf in leaves:
        if leaf.data is None:
            raise _without_number(leaf)
    asked = pending
    if (more := followers(nodes, pending)) and not scopes():
        pending = [*pending, *more]
        nodes, leaves = extract(pending)
    kept = dict.fromkeys([*pending, *_needed_elsewhere(nodes)])
    graph = Graph(leaves, nodes, tuple(kept), "tape")
    program = repeated_program(graph, at_once=lambda: _is_worth_it(nodes)) if compiled else None
    if program is None:
        profiler = ACTIVE.profiler
        with nullcontext() if profiler is None else profiler.interpreting(nodes):
            _interpret(nodes)
        return kept
    remember(asked, nodes, leaves, list(kept), program)
    run(program, [leaf.data for leaf in leaves], kept)  # type: ignore[misc]
    return kept


def _called(pending: Sequence[Value]) -> bool:
    """Compute values that one call computes, if there is nothing else to do, and return whether that is so."""
    node = pending[0]._node  # a call's is never put together late
    if node is None or type(node.op) is not GraphCall or not config.jit or CHECKS or waiting.left_alone:
        return False
    arrays = []
    for value in node.inputs:
        if value.data is None:
            return False
        arrays.append(value.data)
    for value in pending:
        if value._node is not node:
            return False
    if others(node):
        return False
    kept = node.living()
    key = config.precise_math, *[out.index for out in kept]
    programs = node.op.programs
    program = programs.get(key)
    if program is None:
        outputs = [node.op.graph.outputs[out.index] for out in kept]
        program = programs[key] = tape_program(
            Graph(node.op.graph.inputs, node.op.graph.nodes, outputs, "tape")
        )
    run(program, arrays, kept)
    _release(kept)
    return True


def _without_number(leaf: Value) -> ConcretizationError | LeakedValueError:
    """Return what is wrong where the number of a placeholder is wanted."""
    abstract = abstract_of(leaf)
    if abstract is not None:
        return ConcretizationError(
            f"Python asked for the number of an array in {abstract.described}",
            where=user_site(),
            why=abstract.why,
            remedy=f"{abstract.instead}{abstract.remedy}",
        )
    for tag in leaf.tags:
        if isinstance(tag, Abstract):
            return LeakedValueError(
                f"an array of {tag.described} was used after it had returned",
                where=user_site(),
                why=tag.leak_why,
                remedy=tag.leak_remedy,
            )
    return LeakedValueError(
        "a traced array was used after the jitted function that made it had returned",
        where=user_site(),
        why="inside @gt.jit an array stands for the values of every later call; it has none of its own",
        remedy="return it from the function instead of storing it outside",
    )


def _needed_elsewhere(nodes: Sequence[Node]) -> list[Value]:
    """Return the values to which more than these nodes refer: the user's arrays, and pending nodes that are not among these.

    Without these kept, what is looked at later would compute all of them again. Python's reference counts tell, at no cost to the
    recording.
    """
    uses = Counter([id(value) for node in nodes for value in node.inputs])
    return [out for node in nodes for out in node.outs if reference_count(out) - uses[id(out)] > _ALONE]


def _count_alone() -> int:
    """Return the references that `_needed_elsewhere` itself makes."""
    node = Node(identity, (), {})
    node.set_types((aval((), FLOAT64),))
    return next(reference_count(out) for node in (node,) for out in node.outs)


_ALONE: Final = _count_alone()


def _release(values: Iterable[Value]) -> None:
    """Give up the history of computed values where nobody can ask for it: no tape, no trace, no `gradients` in a function.

    Where somebody can, it is given up when the tape, or the outermost function, has ended.
    """
    if CHECKS:
        return
    if around := scopes():
        around[0].note_computed(values)
        return
    for value in values:
        value.release_history()


def _release_again(values: Iterable[Value]) -> None:
    """Do the same for values that were computed before, and are looked at again: whoever may ask knows of them already."""
    for value in values:
        if value._op is not None and not CHECKS and all(tag.over for tag in value.tags) and not scopes():
            value.release_history()


def _is_worth_it(nodes: Sequence[Node]) -> bool:
    """Return whether to compile at first sight: heavy work, or a call, which stands for a record that has come before."""
    return sum(map(_work, nodes)) > max(SMALL_WORK, len(nodes) * WORK_PER_NODE) or any(
        isinstance(node.op, GraphCall) for node in nodes
    )


def _work(node: Node) -> int:
    """Return about how many element operations a node takes, bodies counted as often as they run."""
    work = sum(out.aval.size for out in node.outs)
    if isinstance(node.op, Structured):
        bodies = [body for param in node.params.values() for body in _bodies(param)]
        turns = 1 if "branches" in node.params else node.params.get("length", UNKNOWN_TURNS)
        work += turns * sum(max(_work(inner), ONE_NODE) for body in bodies for inner in body.nodes)
    return work


def _bodies(param: Any) -> Sequence[Body]:
    if isinstance(param, Body):
        return [param]
    return [part for part in param if isinstance(part, Body)] if isinstance(param, tuple) else []


def _interpret(nodes: Sequence[Node]) -> None:
    with np.errstate(all="ignore"):
        for node in nodes:
            arrays: list[Any] = [operand.data for operand in node.inputs]
            for out, array in zip(node.outs, node.op.evaluate(arrays, node.params), strict=True):
                out.data = array
