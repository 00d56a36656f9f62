"""Propagation of index sets through linear maps, one rule per kind of op.

The pattern of a Jacobian is found in the nodes that compute its product with a vector. They are linear in what depends on the
seed, and an element of their result depends on the union of what the elements depend on from which it is computed. A. H.
Gebremedhin, F. Manne, A. Pothen, "What Color Is Your Jacobian?", 2005; A. Hill, G. Dalle, "Sparser, Better, Faster, Stronger:
Sparsity Detection for Efficient Automatic Differentiation", 2025.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.ir.body import Body
from gradtape.ir.graph import Literal, Node, Value
from gradtape.ir.op import NDArray, Op
from gradtape.kinds.accumulate import Accumulate
from gradtape.kinds.contract import Contract
from gradtape.kinds.control import Barrier, Custom
from gradtape.kinds.correlation import Correlation
from gradtape.kinds.cumulative import Cumulative
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import IndexMap
from gradtape.kinds.join import Join
from gradtape.kinds.reduction import Reduction
from gradtape.kinds.routines.callback import Callback
from gradtape.kinds.routines.matrix import Matrix
from gradtape.kinds.sort import Sort
from gradtape.ops.core.elementwise.arithmetic import multiply
from gradtape.ops.core.elementwise.select import where
from gradtape.transforms.basis import LinearMap
from gradtape.transforms.call import GraphCall
from gradtape.transforms.loops.ops import Repeat, Scan, Switch, While
from gradtape.transforms.procedures.loop_pullback import reference_to_loop
from gradtape.transforms.procedures.ops import ProcedureOp
from gradtape.transforms.procedures.reference import ProcedureReference
from gradtape.transforms.sparsity.index_sets import (
    IndexSets,
    coordinates,
    empty_sets,
    identity_sets,
    merged,
    picked,
    repeated,
    restricted,
    stacked,
    united,
)
from gradtape.transforms.sparsity.procedures import UnknownPatternError, follow_procedure

MOST_STEPS: Final = 20_000
"""Nodes of all iterations of a loop up to which index sets are propagated through each iteration."""

MOST_ROUNDS: Final = 50
"""Rounds in which the index sets of loop-carried values may grow, before they are taken to be everything."""

Look = Callable[[Value], NDArray | None]
"""Returns what is known of the array of a value that does not depend on the seed; None where it may be another one in another call."""


class Known(NamedTuple):
    """The facts about values that do not depend on the seed, for the rules.

    Attributes
    ----------
    numbers : callable
        See `Look`: the elements of index arrays.
    nonzero : callable
        Which elements of a factor or mask are not zero.
    nonzero_matrix : callable
        The same for a factor of a matrix product, if most elements are zero.
    used : set of Value
        The values whose index sets are needed.
    """

    numbers: Look
    nonzero: Look
    nonzero_matrix: Look
    used: Collection[Value] = ()


def map_pattern(linear: LinearMap, facts: Known) -> list[IndexSets | None]:
    """Return, for each result of a linear map, which elements of the seed its elements depend on."""
    nodes, _ = linear.nodes_between()
    known_sets: dict[Value, IndexSets] = {linear.seed: identity_sets(linear.seed.size)}
    _follow(nodes, known_sets, facts, linear.outs)
    return [None if out is None else known_sets.get(out) for out in linear.outs]


Given = Sequence[IndexSets | None]
Rule = Callable[[Node, Given, Known], Sequence[IndexSets | None]]


def _follow(
    nodes: Sequence[Node], known_sets: dict[Value, IndexSets], facts: Known, outs: Sequence[Value | None]
) -> None:
    """Propagate index sets through nodes in topological order, to `outs`."""
    used: set[Any] = {*outs, *[x for node in nodes for x in node.inputs]}
    facts = facts._replace(used=used)
    for node in nodes:
        operands = [known_sets.get(operand) for operand in node.inputs]
        if all(sets is None for sets in operands):
            continue
        rule = next((rule for kind, rule in RULES if isinstance(node.op, kind)), _everything)
        results = zip(node.outs, rule(node, operands, facts), strict=True)
        known_sets.update({out: sets for out, sets in results if sets is not None})


def _known(operands: Given) -> list[IndexSets]:
    return [sets for sets in operands if sets is not None]


def _everything(node: Node, operands: Given, facts: Known) -> Sequence[IndexSets]:
    """Let every element of the results depend on all that the operands depend on."""
    union = united([repeated(sets, 1) for sets in _known(operands)])
    return [repeated(union, max(out.size, 1)) for out in node.outs]


def _elementwise(node: Node, operands: Given, facts: Known) -> Sequence[IndexSets | None]:
    op = node.op
    assert isinstance(op, Elementwise)
    if not op.differentiable:
        return [None]
    shape, size = node.out.shape, node.out.size
    sets: Given = [
        None
        if operand is None
        else operand
        if x.shape == shape
        else picked(operand, np.zeros(size, np.int64))
        for x, operand in zip(node.inputs, operands, strict=True)
    ]
    sets = _selected(node, sets, facts)
    return [united(_known(sets))]


def _selected(node: Node, sets: Given, facts: Known) -> Given:
    """Return the index sets of operands without elements that are multiplied by zero or not selected."""
    if node.op is where:
        mask = facts.nonzero(node.inputs[0])
        if mask is not None:
            flags = np.broadcast_to(mask, node.out.shape)
            return [
                None if operand_sets is None else restricted(operand_sets, chosen)
                for operand_sets, chosen in zip(sets, (flags, flags, ~flags), strict=True)
            ]
    elif node.op is multiply and sum(operand_sets is not None for operand_sets in sets) == 1:
        other = node.inputs[0] if sets[0] is None else node.inputs[1]
        factor = facts.nonzero(other)
        if factor is not None:
            flags = np.broadcast_to(factor, node.out.shape)
            return [
                None if operand_sets is None else restricted(operand_sets, flags) for operand_sets in sets
            ]
    return sets


def _index_map(node: Node, operands: Given, facts: Known) -> Sequence[IndexSets | None]:
    (x, *indices), sets = node.inputs, operands[0]
    if sets is None:
        return [None]
    arrays = [facts.numbers(index) for index in indices]
    ready = [array for array in arrays if array is not None]
    if len(ready) == len(arrays):
        positions = np.arange(1, x.size + 1).reshape(x.shape)
        sources = node.op.evaluate([positions, *ready], node.params)[0].reshape(-1) - 1
        return [picked(sets, sources)]
    return [_mixed(sets, x.shape, len(indices), node.out.shape)]


def _mixed(sets: IndexSets, shape: tuple[int, ...], lead: int, out: tuple[int, ...]) -> IndexSets:
    """Return the index sets of an array read at unknown positions along its first `lead` axes: the union over these."""
    inner_size = prod(shape[lead:])
    size = prod(shape)
    union = merged(sets, np.arange(size) % max(inner_size, 1), np.arange(size), inner_size)
    return picked(union, np.arange(prod(out)) % max(inner_size, 1))


def _accumulate(node: Node, operands: Given, facts: Known) -> Sequence[IndexSets | None]:
    op = node.op
    assert isinstance(op, Accumulate)
    base, v, indices, _ = op.split(node.inputs)
    below, above = operands[:2]
    arrays = [facts.numbers(index) for index in indices]
    ready = [array for array in arrays if array is not None]
    if len(ready) < len(arrays):
        spread = None
        if above is not None:
            spread = _mixed(above, v.shape, indices[0].ndim, base.shape)
        return [united(_known([below, spread]))]
    readers = [_reader(array, extent) for array, extent in zip(ready, base.shape, strict=False)]
    coordinates_of_targets = op.target(coordinates(v.shape), base.shape, *readers, **node.params)
    targets = (
        np.ravel_multi_index(coordinates_of_targets, base.shape) if base.ndim else np.zeros(v.size, np.int64)
    )
    targets = np.reshape(targets, -1)
    order = np.arange(v.size)
    if op.combine == "add":
        added = None if above is None else merged(above, targets, order, base.size)
        return [united(_known([below, added]))]
    columns = next(sets.shape[1] for sets in (below, above) if sets is not None)
    both = stacked(
        [empty_sets(x.size, columns) if sets is None else sets for x, sets in ((base, below), (v, above))]
    )
    sources = np.arange(base.size)
    sources[targets] = base.size + order
    return [picked(both, sources)]


def _reader(array: NDArray, extent: int) -> Callable[[Sequence[NDArray]], NDArray]:
    return lambda index: array[tuple(index)] % max(extent, 1)


def _reduction(node: Node, operands: Given, facts: Known) -> Sequence[IndexSets | None]:
    op, (x,), (sets,) = node.op, node.inputs, operands
    assert isinstance(op, Reduction) and sets is not None
    if op.positional or node.out.dtype.kind == "b":
        return [None]
    return [_summed(sets, x.shape, node.params["axes"])]


def _summed(sets: IndexSets, shape: tuple[int, ...], axes: Sequence[int]) -> IndexSets:
    """Return the unions of index sets along axes."""
    is_kept = [axis not in axes for axis in range(len(shape))]
    extents = tuple([extent for extent, flag in zip(shape, is_kept, strict=True) if flag])
    numbers = np.arange(prod(extents)).reshape(
        [extent if flag else 1 for extent, flag in zip(shape, is_kept, strict=True)]
    )
    targets = np.broadcast_to(numbers, shape).reshape(-1)
    return merged(sets, targets, np.arange(prod(shape)), prod(extents))


def _cumulative(node: Node, operands: Given, facts: Known) -> Sequence[IndexSets]:
    """Unite the index sets of all elements before, by steps of 1, 2, 4, ..."""
    shape, axis = node.out.shape, node.params["axis"]
    union = united(_known(operands))
    order = np.arange(node.out.size).reshape(shape)
    step, extent = 1, shape[axis]
    direction = -1 if node.params["reverse"] else 1
    numbers = np.arange(extent).reshape([-1 if k == axis else 1 for k in range(len(shape))])
    while step < extent:
        before = np.broadcast_to(numbers - direction * step, shape)
        inside = (before >= 0) & (before < extent)
        shifted = np.where(inside, np.roll(order, direction * step, axis), -1)
        union = united([union, picked(union, shifted.reshape(-1))])
        step *= 2
    return [union]


def _contract(node: Node, operands: Given, facts: Known) -> Sequence[IndexSets]:
    p = node.params
    parts = []
    for k, sets in enumerate(operands):
        if sets is not None:
            own_subscripts, theirs = (p["x"], p["y"]) if k == 0 else (p["y"], p["x"])
            parts.append(_product(sets, node, k, own_subscripts, theirs, facts))
    return [united(parts)]


def _product(
    sets: IndexSets, node: Node, k: int, own_subscripts: Sequence[int], theirs: Sequence[int], facts: Known
) -> IndexSets:
    """Return the index sets of a product in one operand."""
    a, b = node.inputs[k], node.inputs[1 - k]
    out = node.params["out"]
    extents = dict(zip((*own_subscripts, *theirs), (*a.shape, *b.shape), strict=True))
    factor = facts.nonzero_matrix(b)
    if factor is not None:
        return _sparse_product(sets, factor, node, a, own_subscripts, theirs, extents)
    summed = [axis for axis, subscript in enumerate(own_subscripts) if subscript not in out]
    kept_subscripts = [subscript for subscript in own_subscripts if subscript in out]
    union = _summed(sets, a.shape, summed) if summed else sets
    grid = dict(zip(out, coordinates(node.out.shape), strict=True))
    positions = np.zeros(node.out.size, np.int64)
    for subscript in kept_subscripts:
        positions = positions * extents[subscript] + grid[subscript]
    return picked(union, positions)


def _sparse_product(
    sets: IndexSets,
    factor: NDArray,
    node: Node,
    a: Value,
    own_subscripts: Sequence[int],
    theirs: Sequence[int],
    extents: Mapping[int, int],
) -> IndexSets:
    """Return the index sets of a product with an array that is mostly zeros."""
    free = [subscript for subscript in own_subscripts if subscript not in theirs]
    entries = np.nonzero(factor)
    grid = coordinates(tuple([extents[subscript] for subscript in free]))
    count, inner = len(entries[0]) if entries else 1, prod([extents[subscript] for subscript in free])
    coordinate = {
        subscript: np.repeat(entry, inner) for subscript, entry in zip(theirs, entries, strict=True)
    }
    coordinate.update({subscript: np.tile(entry, count) for subscript, entry in zip(free, grid, strict=True)})

    def flat(subscripts: Sequence[int]) -> NDArray:
        positions = np.zeros(count * inner, np.int64)
        for subscript in subscripts:
            positions = positions * extents[subscript] + coordinate[subscript]
        return positions

    return merged(sets, flat(node.params["out"]), flat(own_subscripts), node.out.size)


def _correlation(node: Node, operands: Given, facts: Known) -> Sequence[IndexSets]:
    (x, w), (moved, kernel) = node.inputs, operands
    rank = node.params["rank"]
    lead = x.ndim - rank
    parts = []
    if moved is not None:
        positions = np.arange(x.size).reshape(x.shape)
        windows = np.lib.stride_tricks.sliding_window_view(
            positions, w.shape[lead:], tuple(range(lead, x.ndim))
        )
        inner = prod(w.shape[lead:])
        targets = np.repeat(np.arange(node.out.size), inner)
        parts.append(merged(moved, targets, windows.reshape(-1), node.out.size))
    if kernel is not None:
        union = _summed(kernel, w.shape, range(lead, w.ndim))
        inner = prod(node.out.shape[lead:])
        parts.append(picked(union, np.arange(node.out.size) // max(inner, 1)))
    return [united(parts)]


def _join(node: Node, operands: Given, facts: Known) -> Sequence[IndexSets]:
    columns = next(sets.shape[1] for sets in operands if sets is not None)
    pieces = [
        empty_sets(x.size, columns) if sets is None else sets
        for x, sets in zip(node.inputs, operands, strict=True)
    ]
    starts = np.cumsum([0, *[x.size for x in node.inputs]])
    positions = [
        np.arange(start, start + x.size).reshape(x.shape)
        for start, x in zip(starts, node.inputs, strict=False)
    ]
    order = node.op.evaluate(positions, node.params)[0].reshape(-1)
    return [picked(stacked(pieces), order)]


def _sort(node: Node, operands: Given, facts: Known) -> Sequence[IndexSets | None]:
    return [None for _ in node.outs]


def _matrix(node: Node, operands: Given, facts: Known) -> Sequence[IndexSets]:
    """Each column of what a routine is linear in is transformed by itself."""
    op = node.op
    assert isinstance(op, Matrix)
    linear_operand = op.linear_in
    sets = None if linear_operand is None else operands[linear_operand]
    if sets is None or linear_operand is None or len(_known(operands)) > 1 or len(node.outs) > 1:
        return _blocks(node, operands, [x.ndim - 2 for x in node.inputs])
    x, axis = node.inputs[linear_operand], node.out.ndim - 2
    if x.shape[-1] != node.out.shape[-1]:
        return _blocks(node, operands, [each.ndim - 2 for each in node.inputs])
    union = _summed(sets, x.shape, [axis])
    columns, rows = node.out.shape[-1], node.out.shape[-2]
    order = np.arange(node.out.size)
    return [picked(union, order // max(rows * columns, 1) * columns + order % max(columns, 1))]


def _callback(node: Node, operands: Given, facts: Known) -> Sequence[IndexSets]:
    op = node.op
    assert isinstance(op, Callback)
    ranks = op.ranks(node.params)
    return _blocks(node, operands, [x.ndim - rank for x, rank in zip(node.inputs, ranks, strict=True)])


def _blocks(node: Node, operands: Given, leads: Sequence[int]) -> Sequence[IndexSets]:
    """Let each of a stack of problems depend on all of its operands."""
    unions = []
    lead = 0
    for x, sets, lead in zip(node.inputs, operands, leads, strict=True):
        if sets is not None:
            unions.append(_summed(sets, x.shape, range(lead, x.ndim)))
    union = united(unions)
    problems = max(union.shape[0], 1)
    return [picked(union, np.arange(out.size) // max(out.size // problems, 1)) for out in node.outs]


def _passed(node: Node, operands: Given, facts: Known) -> Sequence[IndexSets | None]:
    """The outputs are the first inputs."""
    return operands[: len(node.outs)]


def _call(node: Node, operands: Given, facts: Known) -> Sequence[IndexSets | None]:
    op = node.op
    assert isinstance(op, GraphCall)
    known_sets = {x: sets for x, sets in zip(op.graph.inputs, operands, strict=True) if sets is not None}
    _follow(op.graph.nodes, known_sets, facts, op.graph.outputs)
    return [known_sets.get(out) for out in op.graph.outputs]


def _body(body: Body, operands: Given, facts: Known) -> list[IndexSets | None]:
    known_sets = {x: sets for x, sets in zip(body.inputs, operands, strict=True) if sets is not None}
    _follow(body.nodes, known_sets, facts, body.outputs)
    return [known_sets.get(out) for out in body.outputs]


def _switch(node: Node, operands: Given, facts: Known) -> Sequence[IndexSets | None]:
    branches = [_body(branch, operands[1:], _inside({})) for branch in node.params["branches"]]
    return [_union(column) for column in zip(*branches, strict=True)]


def _union(operands: Given) -> IndexSets | None:
    present = _known(operands)
    return united(present) if present else None


def _scan(node: Node, operands: Given, facts: Known) -> Sequence[IndexSets | None]:
    """Follow the iterations one by one, if they are not too many; else what all of them together depend on."""
    params = node.params
    body, length = params["body"], params["length"]
    first = params["consts"] + params["carries"]
    columns = next(sets.shape[1] for sets in operands if sets is not None)
    if length * len(body.nodes) > MOST_STEPS:
        return _by_procedure(node, operands, facts) or _fixed_point(node, operands, facts)
    consts, carried = list(operands[: params["consts"]]), list(operands[params["consts"] : first])
    inputs = list(zip(node.inputs[first:], operands[first:], strict=True))
    shared = {
        inner: array
        for inner, outer, sets in zip(body.inputs[1:], node.inputs, consts, strict=False)
        if sets is None and (array := _integers(outer, facts)) is not None
    }
    arrays = {
        inner: array
        for inner, (outer, _) in zip(body.inputs[1 + first :], inputs, strict=True)
        if (array := _integers(outer, facts)) is not None
    }
    ys: list[list[IndexSets]] = [[] for _ in body.outputs[params["carries"] :]]
    order = range(length)[::-1] if params["reverse"] else range(length)
    for iteration in order:
        numbers = {**shared, **{x: array[iteration] for x, array in arrays.items()}}
        numbers[body.inputs[0]] = np.asarray(iteration)
        elements = [_element(x, sets, iteration) for x, sets in inputs]
        outs = _body(body, [None, *consts, *carried, *elements], _inside(numbers))
        carried = outs[: params["carries"]]
        for iterations, out, value in zip(
            ys, outs[params["carries"] :], body.outputs[params["carries"] :], strict=True
        ):
            iterations.append(empty_sets(value.size, columns) if out is None else out)
    results = [
        stacked(iterations[:: -1 if params["reverse"] else 1]) if iterations else None for iterations in ys
    ]
    return [*carried, *results]


def _integers(x: Value, facts: Known) -> NDArray | None:
    """Return the numbers of an array that may be one of positions."""
    return facts.numbers(x) if x.dtype.kind in "iub" else None


def _element(x: Value, sets: IndexSets | None, position: int) -> IndexSets | None:
    if sets is None:
        return None
    inner = prod(x.shape[1:])
    return picked(sets, np.arange(position * inner, (position + 1) * inner))


def _fixed_point(node: Node, operands: Given, facts: Known) -> Sequence[IndexSets | None]:
    """Let all iterations depend on what any element and any carry before depends on."""
    params = node.params
    body, length = params["body"], params["length"]
    first = params["consts"] + params["carries"]
    consts, carried = list(operands[: params["consts"]]), list(operands[params["consts"] : first])
    elements = [
        None if sets is None else _summed(sets, x.shape, [0])
        for x, sets in zip(node.inputs[first:], operands[first:], strict=True)
    ]
    for _ in range(MOST_ROUNDS):
        outs = _body(body, [None, *consts, *carried, *elements], _inside({}))
        grown = [_union(pair) for pair in zip(carried, outs[: params["carries"]], strict=True)]
        if all(_size(old) == _size(new) for old, new in zip(carried, grown, strict=True)):
            ys = [
                None if out is None else picked(out, np.tile(np.arange(out.shape[0]), length))
                for out in outs[params["carries"] :]
            ]
            return [*grown, *ys]
        carried = grown
    return _everything(node, operands, facts)


def _size(sets: IndexSets | None) -> int:
    return 0 if sets is None else int(sets.nnz)


def _nothing(value: Value) -> None:
    return None


def _inside(arrays: Mapping[Value, NDArray]) -> Known:
    """Return the known numbers of a body: literals, and integers that are computed from known ones."""
    cache: dict[Value, NDArray | None] = dict(arrays)

    def numbers(value: Value) -> NDArray | None:
        if isinstance(value, Literal):
            return value.data
        if value not in cache:
            node = value.node
            found = None
            if node is not None and value.dtype.kind in "iub":
                arrays = [numbers(operand) for operand in node.inputs]
                ready = [array for array in arrays if array is not None]
                if len(ready) == len(arrays):
                    found = np.asarray(node.op.evaluate(ready, node.params)[value.index])
            cache[value] = found
        return cache[value]

    return Known(numbers, _nothing, _nothing)


def _while(node: Node, operands: Given, facts: Known) -> Sequence[IndexSets | None]:
    return _by_procedure(node, operands, facts) or _everything(node, operands, facts)


def _procedure(node: Node, operands: Given, facts: Known) -> Sequence[IndexSets | None]:
    op = node.op
    assert isinstance(op, ProcedureOp)
    return _through(op.whole(node.params), node, operands, facts) or _everything(node, operands, facts)


def _by_procedure(node: Node, operands: Given, facts: Known) -> Sequence[IndexSets | None] | None:
    """Follow a loop of a graph as the procedure that computes it; None if that has no answer."""
    reference = reference_to_loop(node)
    return None if reference is None else _through(reference, node, operands, facts)


def _through(
    reference: ProcedureReference, node: Node, operands: Given, facts: Known
) -> Sequence[IndexSets | None] | None:
    def of_graph(graph: Body, inner: Given, numbers: Sequence[NDArray | None]) -> list[IndexSets | None]:
        arrays = {x: array for x, array in zip(graph.inputs, numbers, strict=True) if array is not None}
        return _body(graph, inner, _inside(arrays))

    try:
        return follow_procedure(
            reference.procedure,
            operands,
            [out in facts.used for out in node.outs],
            lambda position: facts.numbers(node.inputs[position]),
            of_graph,
        )
    except UnknownPatternError:
        return None


RULES: tuple[tuple[type[Op], Rule], ...] = (
    (Elementwise, _elementwise),
    (IndexMap, _index_map),
    (Accumulate, _accumulate),
    (Reduction, _reduction),
    (Cumulative, _cumulative),
    (Contract, _contract),
    (Correlation, _correlation),
    (Join, _join),
    (Sort, _sort),
    (Matrix, _matrix),
    (Callback, _callback),
    (Custom, _passed),
    (Barrier, _passed),
    (GraphCall, _call),
    (Scan, _scan),
    (While, _while),
    (Repeat, _while),
    (ProcedureOp, _procedure),
    (Switch, _switch),
)
