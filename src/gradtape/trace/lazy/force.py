"""Force pending values: compute them when their data are read, by a program or by the interpreter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.config import config
from gradtape.errors import ConcretizationError, LeakedValueError
from gradtape.ir.body import bodies_of
from gradtape.ir.fingerprint import fingerprint
from gradtape.ir.graph import Graph, Node, Value, extract
from gradtape.ir.op import NDArray
from gradtape.ir.types import FLOAT64, aval
from gradtape.kinds.control import Structured
from gradtape.lru import LRU
from gradtape.ops.core.elementwise.cast import identity
from gradtape.reference_counts import reference_count
from gradtape.runtime.compile.program import ACTIVE, Program, record_program, tape_program
from gradtape.trace.jit.guards import Abstract, abstract_of
from gradtape.trace.lazy.instruments import CHECKS
from gradtape.trace.lazy.pending import (
    dependents,
    forget_computed,
    has_other_pending,
    live_arrays,
    live_pending,
)
from gradtape.trace.lazy.region import Region, region_of
from gradtape.trace.random.observation import OWN
from gradtape.trace.source.contexts import scopes
from gradtape.trace.source.sites import user_site
from gradtape.trace.variables.locks import computing
from gradtape.transforms.call import GraphCall
from gradtape.transforms.procedures.ops import ProcedureOp

SMALL_WORK: Final = 200_000
"""Element operations below which a region that is new is interpreted: NumPy does about this many per op in the 20 ms of a compilation."""

WORK_PER_NODE: Final = 1000
"""Element operations per node below which a region that is new is interpreted: to compile a node takes half a millisecond."""

NODE_OVERHEAD: Final = 20
"""Element operations in the time in which NumPy begins an operation: the interpreter begins each anew in each iteration of a loop."""

UNKNOWN_TRIP_COUNT: Final = 100
"""The assumed number of iterations of a loop that ends on a value."""


def force(values: Sequence[Value]) -> list[NDArray]:
    """Return the arrays of values, and compute those that are pending.

    Values that are computed on the way, and that the user holds or other pending values need, are kept: nothing is computed twice.

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
    """Do what `force` does, without the checks of debugging tools."""
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
            around, OWN.active = OWN.active, True  # what ops draw for estimates is no draw of the user's
            try:
                if pending and not _run_call(pending):
                    _release(_run_pending(pending))
            finally:
                OWN.active = around
            arrays = [value.data for value in values]
        # While machine code ran, another thread may have changed rows in the memory of one.
        for array in arrays:
            if array is None:
                break
        else:
            return arrays  # type: ignore[return-value]


class _Plan(NamedTuple):
    """How a region is computed whose inner values have certain reference counts.

    Attributes
    ----------
    program : Program
        Computes it, or a part of it.
    leaves : tuple of int
        The places of the values that the program takes.
    kept : tuple of int
        The places of the values that it computes: ends, and other values that were needed.
    whole : bool
        Whether it computes all ends.
    """

    program: Program
    leaves: tuple[int, ...]
    kept: tuple[int, ...]
    whole: bool


LARGEST_PLAN: Final = 4096
"""Values in a region that has a plan: a program may hold more and more arrays that it never reads."""

_programs: Final[LRU[Any, tuple[Program | None]]] = LRU(lambda: config.memory_cache)
"""By the key of the region, and `config.precise_math` and `config.compiler`; no program for a region that was interpreted once."""

_plans: Final[LRU[Any, _Plan]] = LRU(lambda: config.memory_cache)
"""By the same, and the reference counts of the inner values, which tell whether anything else needs one of them."""


def _run_pending(requested: Sequence[Value]) -> Iterable[Value]:
    """Compute values, and live values that depend on the same nodes, and return all that were computed."""
    alone = live_arrays.only_requested or bool(scopes())
    ends = requested if alone else [*dict.fromkeys([*requested, *live_pending()])]
    key = plan = None
    if config.jit and not CHECKS and (region := region_of(ends, None)) is not None:
        key = config.precise_math, config.compiler, _reference_counts(region, len(ends)), region.key
        try:
            plan = _plans.get(key)
        except TypeError:  # of a parameter that is an array
            key = None
        if plan is not None:
            values = [*region.places]
            kept = [values[place] for place in plan.kept]
            _run(plan.program, [values[place].data for place in plan.leaves], kept)  # type: ignore[misc]
            if plan.whole and not alone:
                live_arrays.handles.clear()
            elif not alone:
                forget_computed()
            return kept
        del region  # its references would be counted
    return _run_anew(requested, ends, key)


def _run_anew(requested: Sequence[Value], ends: Sequence[Value], key: Any) -> Iterable[Value]:
    """Compute values for which there is no plan, keep a plan, and return all values that were computed.

    Parameters
    ----------
    requested : sequence of Value
        The values.
    ends : sequence of Value
        The same, and other live values, which are computed too if they depend on the same nodes.
    key : tuple or None
        The key of the plan; None for no plan.
    """
    forget_computed()
    nodes, leaves = extract(requested)
    for leaf in leaves:
        if leaf.data is None:
            raise _without_data(leaf)
    if len(ends) > len(requested) and (more := dependents(nodes, ends)):
        requested = [*requested, *more]
        nodes, leaves = extract(requested)
    kept = [*dict.fromkeys([*requested, *_needed_elsewhere(nodes)])]
    program = None
    if config.jit and not CHECKS:
        region = region_of(kept, None)
        assert region is not None
        leaves = region.leaves
        program = _program(Graph(leaves, nodes, kept, "tape"), region.key)
        del region
    if program is None:
        profiler = ACTIVE.profiler
        with nullcontext() if profiler is None else profiler.interpreting(nodes):
            _interpret(nodes)
        return kept
    if key is not None:
        _plan(key, ends, leaves, kept, program)
    _run(program, [leaf.data for leaf in leaves], kept)  # type: ignore[misc]
    return kept


def _plan(
    key: Any, ends: Sequence[Value], leaves: Sequence[Value], kept: Sequence[Value], program: Program
) -> None:
    """Keep a plan for the region behind `ends`, if all values that the program computes are in it."""
    region = region_of(ends, None)
    assert region is not None
    places = region.places
    if len(places) <= LARGEST_PLAN and places.keys() >= {*kept}:
        inputs, outputs = tuple([places[leaf] for leaf in leaves]), tuple([places[value] for value in kept])
        _plans[key] = _Plan(program, inputs, outputs, whole={*ends} <= {*kept})


def _program(graph: Graph, key: Any) -> Program | None:
    """Return the program of a region that was computed before, or that is heavy; None for another one.

    Parameters
    ----------
    graph : Graph
        The region, without constants.
    key : tuple
        Its structural key.
    """
    key = config.precise_math, config.compiler, key
    try:
        known = _programs.get(key)
    except TypeError:  # of a parameter that is an array
        key = config.precise_math, config.compiler, fingerprint(graph)
        known = _programs.get(key)
    program = None if known is None else known[0]
    if program is None:
        if known is not None or _is_worth_it(graph.nodes):
            program = record_program(graph)
        _programs[key] = (program,)
    return program


def _reference_counts(region: Region, ends: int) -> tuple[int, ...]:
    """Return the reference count of each inner value; the key of the region tells how many of the references are its own."""
    return tuple(map(reference_count, region.computed[ends:]))


def _run(program: Program, arrays: Sequence[NDArray], kept: Iterable[Value]) -> None:
    """Let a program compute values; other threads may force values meanwhile."""
    computing.release()
    try:
        computed = program.run(arrays)
    finally:
        computing.acquire()
    for value, array in zip(kept, computed, strict=True):
        value.data = array


def _run_call(pending: Sequence[Value]) -> bool:
    """Compute values that are outputs of one call node of known arrays, if nothing else is pending; return whether that is so."""
    node = pending[0]._node  # that of a call is made at once
    if (
        node is None
        or type(node.op) is not GraphCall
        or not config.jit
        or CHECKS
        or live_arrays.only_requested
    ):
        return False
    arrays = []
    for value in node.inputs:
        if value.data is None:
            return False
        arrays.append(value.data)
    for value in pending:
        if value._node is not node:
            return False
    if has_other_pending(node):
        return False
    kept = node.living()
    key = config.precise_math, config.compiler, *[out.index for out in kept]
    programs = node.op.programs
    program = programs.get(key)
    if program is None:
        outputs = [node.op.graph.outputs[out.index] for out in kept]
        program = programs[key] = tape_program(
            Graph(node.op.graph.inputs, node.op.graph.nodes, outputs, "tape")
        )
    _run(program, arrays, kept)
    _release(kept)
    return True


def _without_data(leaf: Value) -> ConcretizationError | LeakedValueError:
    """Return the error of reading a placeholder."""
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
    """Return the outputs of nodes to which more than these nodes refer: the user's arrays, and other pending nodes.

    They are kept, so that they are not computed again later. Reference counts tell, at no cost to the recording.
    """
    uses = Counter([id(value) for node in nodes for value in node.inputs])
    return [
        out for node in nodes for out in node.outs if reference_count(out) - uses[id(out)] > _OWN_REFERENCES
    ]


def _count_own() -> int:
    """Return the references that `_needed_elsewhere` itself makes."""
    node = Node(identity, (), {})
    node.set_types((aval((), FLOAT64),))
    return next(reference_count(out) for node in (node,) for out in node.outs)


_OWN_REFERENCES: Final = _count_own()


def _release(values: Iterable[Value]) -> None:
    """Release the history of computed values that no tape, no trace and no `gradients` in a function can use.

    Where one can, the history is released when the tape, or the outermost function, has ended.
    """
    if CHECKS:
        return
    if around := scopes():
        around[0].note_computed(values)
        return
    for value in values:
        value.release_history()


def _release_again(values: Iterable[Value]) -> None:
    """Do the same for values that were computed before and are read again: tags that are not over have noted them already."""
    for value in values:
        if value._op is not None and not CHECKS and all(tag.over for tag in value.tags) and not scopes():
            value.release_history()


def _is_worth_it(nodes: Sequence[Node]) -> bool:
    """Return whether to compile a region that is new: it is heavy, or has a call node, which stands for a record that came before."""
    return sum(map(_work, nodes)) > max(SMALL_WORK, len(nodes) * WORK_PER_NODE) or any(
        isinstance(node.op, GraphCall | ProcedureOp) for node in nodes
    )


def _work(node: Node) -> int:
    """Return about how many element operations a node takes, with each iteration of its bodies."""
    work = sum(out.aval.size for out in node.outs)
    if isinstance(node.op, Structured):
        iterations = 1 if "branches" in node.params else node.params.get("length", UNKNOWN_TRIP_COUNT)
        inner = [max(_work(each), NODE_OVERHEAD) for body in bodies_of(node) for each in body.nodes]
        work += iterations * sum(inner)
    return work


def _interpret(nodes: Sequence[Node]) -> None:
    with np.errstate(all="ignore"):
        for node in nodes:
            arrays: list[Any] = [operand.data for operand in node.inputs]
            for out, array in zip(node.outs, node.op.evaluate(arrays, node.params), strict=True):
                out.data = array
