"""Force pending values: compute them when their data are read, by a program or by the interpreter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.config import config
from gradtape.costs import UNKNOWN_TRIP_COUNT
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
from gradtape.trace.lazy.literals import (
    Numbers,
    OperandIndex,
    StructureTable,
    copy_with_inputs,
    input_values,
    numbers_at,
    operands_that_are_inputs,
)
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
from gradtape.transforms.reroll.roll import in_recorded_order

SMALL_WORK: Final = 200_000
"""The price of a compilation in element operations: NumPy does about this many per op in 20 ms."""

WORK_PER_NODE: Final = 1000
"""What each node adds to it: to compile one takes half a millisecond."""

NODE_OVERHEAD: Final = 20
"""Element operations in the time in which NumPy begins an operation: the interpreter begins each anew, also in each iteration of a loop."""

REGION_OVERHEAD: Final = 500
"""Element operations in the time that the interpreter takes for a region beside its nodes, and a program with a plan does not."""


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
        # Another thread may have changed rows of an array while machine code ran.
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
    numbers : tuple of int
        The positions of the literals that it takes after them.
    kept : tuple of int
        The places of the values that it computes: ends, and other values that were needed.
    whole : bool
        Whether it computes all ends.
    """

    program: Program
    leaves: tuple[int, ...]
    numbers: tuple[int, ...]
    kept: tuple[int, ...]
    whole: bool


LARGEST_PLAN: Final = 4096
"""Values in a region that has a plan: a program may hold more and more arrays that it never reads."""


class _Account:
    """What regions that one program computes have cost, and the program, when it is worth compiling.

    Attributes
    ----------
    program : Program or None
        Computes them; None while the interpreter does.
    work : int
        How many element operations the interpreter takes for one.
    paid : int
        How many it has taken so far.
    price : int
        How many a compilation costs.
    """

    __slots__ = ("paid", "price", "program", "work")

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.program: Program | None = None
        self.work = REGION_OVERHEAD + sum(_work(node) + NODE_OVERHEAD for node in nodes)
        self.paid = 0
        self.price = 0 if any(map(_is_of_a_record, nodes)) else SMALL_WORK + len(nodes) * WORK_PER_NODE

    def is_worth_it(self) -> bool:
        """Return whether to compile, when a region is there to be computed.

        The rule of the ski rental: interpret until this has cost what a compilation costs. Whatever comes, less than twice the time is
        taken that would have been taken by somebody who knew it.
        """
        self.paid += self.work
        return self.paid > self.price


_structures: Final = StructureTable(lambda: config.memory_cache)
"""By the key of the region, and `config.precise_math` and `config.compiler`."""

_programs: Final[LRU[Any, _Account]] = LRU(lambda: config.memory_cache)
"""By the same, and the numbers."""

_plans: Final[LRU[Any, _Plan]] = LRU(lambda: config.memory_cache)
"""By the structure, the numbers, and the reference counts of the inner values, which tell whether anything else needs one of them."""


def _run_pending(requested: Sequence[Value]) -> Iterable[Value]:
    """Compute values, and live values that depend on the same nodes, and return all that were computed."""
    alone = live_arrays.only_requested or bool(scopes())
    ends = requested if alone else [*dict.fromkeys([*requested, *live_pending()])]
    key = plan = None
    inputs: Mapping[OperandIndex, int] = {}
    if config.jit and not CHECKS and (region := region_of(ends, None)) is not None:
        counts = _reference_counts(region, len(ends))
        structure = _structures.of((config.precise_math, config.compiler, region.key))
        if structure is not None:
            numbers = structure.numbers(region)
            key = structure, counts, numbers.key
            plan = _plans.get(key)
            if plan is not None:
                values = [*region.positions]
                kept_values = [values[position] for position in plan.kept]
                arrays = [values[position].data for position in plan.leaves]
                if plan.numbers:
                    arrays += [region.literals[position].data for position in plan.numbers]
                _run(plan.program, arrays, kept_values)  # type: ignore[arg-type]
                if plan.whole and not alone:
                    live_arrays.handles.clear()
                elif not alone:
                    forget_computed()
                return kept_values
            if numbers.inputs:
                inputs = operands_that_are_inputs(region, numbers)
        del region  # its references would be counted
    return _run_anew(requested, ends, key, inputs)


def _run_anew(
    requested: Sequence[Value], ends: Sequence[Value], key: Any, inputs: Mapping[OperandIndex, int]
) -> Iterable[Value]:
    """Compute values for which there is no plan, keep a plan, and return all values that were computed.

    Parameters
    ----------
    requested : sequence of Value
        The values.
    ends : sequence of Value
        The same, and other live values, which are computed too if they depend on the same nodes.
    key : tuple or None
        The key of the plan; None for no plan.
    inputs : mapping
        Which of the literals are inputs of programs, by the position of the number among the literals behind `ends`.
    """
    forget_computed()
    nodes, leaves = extract(requested)
    for leaf in leaves:
        if leaf.data is None:
            raise _without_data(leaf)
    if len(ends) > len(requested) and (others := dependents(nodes, ends)):
        requested = [*requested, *others]
        nodes, leaves = extract(requested)
    kept_values = [*dict.fromkeys([*requested, *_needed_elsewhere(nodes)])]
    program = None
    arrays: list[Any] = []
    if config.jit and not CHECKS:
        region = region_of(kept_values, None)
        assert region is not None
        leaves = region.leaves
        numbers, taken_inputs = numbers_at(region, inputs)
        program = _program(Graph(leaves, nodes, kept_values, "tape"), region, numbers, inputs, taken_inputs)
        arrays = [
            *[leaf.data for leaf in leaves],
            *[region.literals[position].data for position in numbers.inputs],
        ]
        del region
    if program is None:
        profiler = ACTIVE.profiler
        with nullcontext() if profiler is None else profiler.interpreting(nodes):
            _interpret(nodes)
        return kept_values
    if key is not None:
        _plan(key, ends, leaves, taken_inputs, kept_values, program)
    _run(program, arrays, kept_values)
    return kept_values


def _plan(
    key: Any,
    ends: Sequence[Value],
    leaves: Sequence[Value],
    numbers: tuple[int, ...],
    kept_values: Sequence[Value],
    program: Program,
) -> None:
    """Keep a plan for the region behind `ends`, if all values that the program computes are in it."""
    region = region_of(ends, None)
    assert region is not None
    positions = region.positions
    if len(positions) <= LARGEST_PLAN and positions.keys() >= {*kept_values}:
        inputs, outputs = (
            tuple([positions[leaf] for leaf in leaves]),
            tuple([positions[value] for value in kept_values]),
        )
        _plans[key] = _Plan(program, inputs, numbers, outputs, whole={*ends} <= {*kept_values})


def _program(
    graph: Graph,
    region: Region,
    numbers: Numbers,
    inputs: Mapping[OperandIndex, int],
    taken_inputs: Sequence[int],
) -> Program | None:
    """Return the program of a region that is heavy, or has come often; None for another one.

    Parameters
    ----------
    graph : Graph
        The region, without constants.
    region : Region
        The same.
    numbers : Numbers
        Its numbers; those that are inputs follow the leaves.
    inputs : mapping
        Which input a literal is.
    taken : sequence of int
        The inputs in their order.
    """
    structure = _structures.of((config.precise_math, config.compiler, region.key))
    key = (
        config.precise_math,
        config.compiler,
        fingerprint(graph) if structure is None else (structure, numbers.key),
    )
    account = _programs.get(key)
    if account is None:
        account = _programs[key] = _Account(graph.nodes)
    if account.program is None and account.is_worth_it():
        values = dict(zip(taken_inputs, input_values(region, numbers).values(), strict=True))
        account.program = record_program(_with_inputs(graph, inputs, values) if values else graph)
    return account.program


def _with_inputs(graph: Graph, inputs: Mapping[OperandIndex, int], values: Mapping[int, Value]) -> Graph:
    """Return a graph in which literals are inputs."""
    becomes: dict[Value, Value] = {}
    nodes, _ = copy_with_inputs(in_recorded_order(graph.nodes), becomes, inputs, values)
    outputs = [becomes.get(value, value) for value in graph.outputs]
    return Graph([*graph.inputs, *values.values()], nodes, outputs, graph.name)


def _reference_counts(region: Region, ends: int) -> tuple[int, ...]:
    """Return the reference count of each inner value; the key of the region tells how many of the references are its own."""
    return tuple(map(reference_count, region.computed[ends:]))


def _run(program: Program, arrays: Sequence[NDArray], targets: Iterable[Value]) -> None:
    """Let a program compute values; other threads may force values meanwhile."""
    computing.release()
    try:
        computed = program.run(arrays)
    finally:
        computing.acquire()
    for value, array in zip(targets, computed, strict=True):
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
    living = node.living()
    key = config.precise_math, config.compiler, *[out.index for out in living]
    programs = node.op.programs
    program = programs.get(key)
    if program is None:
        outputs = [node.op.graph.outputs[out.index] for out in living]
        program = programs[key] = tape_program(
            Graph(node.op.graph.inputs, node.op.graph.nodes, outputs, "tape")
        )
    _run(program, arrays, living)
    _release(living)
    return True


def _without_data(leaf: Value) -> ConcretizationError | LeakedValueError:
    """Return the error of reading a placeholder."""
    abstract = abstract_of(leaf)
    if abstract is not None:
        return ConcretizationError(
            f"Python needed the concrete value of a traced array in {abstract.described}",
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


def _is_of_a_record(node: Node) -> bool:
    """Return whether a node stands for a record that came before."""
    return isinstance(node.op, GraphCall | ProcedureOp)


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
