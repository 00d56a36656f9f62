"""Computing pending values when somebody looks at them."""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from ..config import config
from ..errors import ConcretizationError, LeakedValueError
from ..ir.graph import RELEASED, Graph, Node, Value, extract
from ..ir.op import NDArray
from ..ir.types import FLOAT64, aval
from ..kinds.registry import ROWS
from ..runtime.program import Program, program_for, repeated_program
from ..transforms.call import Call
from .contexts import scopes
from .guards import mapped_by
from .instruments import CHECKS
from .sites import user_site
from .waiting import followers, others, waiting

SMALL_WORK = 200_000
"""Element operations below which a structure seen for the first time is interpreted: compiling costs some 20 ms, in which NumPy does
about this many per op."""


def force(values: Sequence[Value]) -> list[NDArray]:
    """Return the arrays of these values, computing what is pending.

    What is computed on the way and is still in the user's hands, or needed by work that is not looked at now, is kept: it is never
    computed again.

    Raises
    ------
    LeakedValueError
        For a value of a jitted function that has returned.
    ConcretizationError
        For an element of an axis that `vmap` maps.
    """
    arrays = compute(values)
    for check in CHECKS:
        check(values)
    return arrays


def compute(values: Sequence[Value]) -> list[NDArray]:
    """Return what `force` returns, unchecked."""
    pending = [value for value in values if value.data is None]
    if pending and not _called(pending):
        nodes, leaves = extract(pending)
        for leaf in leaves:
            if leaf.data is None:
                mapped = mapped_by(leaf)
                if mapped is not None:
                    raise ConcretizationError(
                        f"Python asked for the number of an array in {mapped.described}",
                        where=user_site(),
                        why="one element stands for all elements along the mapped axis, and they need not agree",
                        remedy="use np.where(condition, a, b) in place of a branch, and index arrays in place of slices "
                        f"that depend on values{mapped.remedy}",
                    )
                raise LeakedValueError(
                    "a traced array was used after the jitted function that made it had returned",
                    where=user_site(),
                    why="inside @gt.jit an array stands for the values of every later call; it has none of its own",
                    remedy="return it from the function instead of storing it outside",
                )
        if (more := followers(nodes, pending)) and not scopes():
            pending = [*pending, *more]
            nodes, leaves = extract(pending)
        kept = dict.fromkeys([*pending, *_needed_elsewhere(nodes)])
        graph = Graph(leaves, nodes, tuple(kept), "tape")
        arrays = [leaf.data for leaf in leaves]
        compiled = config.jit and not CHECKS
        program = repeated_program(graph, at_once=lambda: _is_worth_it(nodes)) if compiled else None
        if program is None:
            _interpret(nodes)
        else:
            for value, array in zip(kept, program.run(arrays), strict=True):  # type: ignore[arg-type]
                value.data = array
        _release(kept)
    elif not pending:
        _release(values)
    return [value.data for value in values]  # type: ignore[misc]


def _called(pending: Sequence[Value]) -> bool:
    """Compute values that one call computes, if there is nothing else to do, and return whether that is so."""
    node = pending[0].node
    if node is None or type(node.op) is not Call or not config.jit or CHECKS or waiting.left_alone:
        return False
    arrays = [value.data for value in node.inputs]
    for array in arrays:
        if array is None:
            return False
    for value in pending:
        if value.node is not node:
            return False
    if others(node):
        return False
    kept = node.living()
    key = node.op, tuple([out.index for out in kept]), config.precise_math
    program = _programs.get(key)
    if program is None:
        outputs = [node.op.graph.outputs[out.index] for out in kept]
        program = _programs[key] = program_for(Graph(node.op.graph.inputs, node.op.graph.nodes, outputs, "tape"))
        while len(_programs) > config.memory_cache:
            _programs.popitem(last=False)
    _programs.move_to_end(key)
    for value, array in zip(kept, program.run(arrays), strict=True):  # type: ignore[arg-type]
        value.data = array
    _release(kept)
    return True


_programs: Final[OrderedDict[tuple[Call, tuple[int, ...], bool], Program]] = OrderedDict()
"""Of calls of which some outputs are wanted."""


def _needed_elsewhere(nodes: Sequence[Node]) -> list[Value]:
    """Return the values to which more than these nodes refer: the user's arrays, and pending nodes that are not among these.

    Without these kept, what is looked at later would compute all of them again. Python's reference counts tell, at no cost to the
    recording.
    """
    uses = Counter([id(value) for node in nodes for value in node.inputs])
    return [out for node in nodes for out in node.outs if _references(out) - uses[id(out)] > _ALONE]


def _references(value: Value) -> int:
    return sys.getrefcount(value)


def _count_alone() -> int:
    """Return the references that `_needed_elsewhere` itself makes."""
    node = Node(ROWS["identity"], (), {})
    node.set_types((aval((), FLOAT64),))
    return next(_references(out) for node in (node,) for out in node.outs)


_ALONE: Final = _count_alone()


def _release(values: Iterable[Value]) -> None:
    """Give back the history of computed values where nobody can ask for it: no tape, no trace, no `gradients` in a function."""
    if not scopes() and not CHECKS:
        for value in values:
            if value.node is not None and all(mark.over for mark in value.marks):
                value.node, value.index = None, RELEASED


def _is_worth_it(nodes: Sequence[Node]) -> bool:
    """Return whether to compile at first sight: heavy work, or a call, which stands for a record that has come before."""
    work = sum(out.aval.size for node in nodes for out in node.outs)
    return work > SMALL_WORK or any(isinstance(node.op, Call) for node in nodes)


def _interpret(nodes: Sequence[Node]) -> None:
    with np.errstate(all="ignore"):
        for node in nodes:
            arrays: list[Any] = [operand.data for operand in node.inputs]
            for out, array in zip(node.outs, node.op.evaluate(arrays, node.params), strict=True):
                out.data = array
