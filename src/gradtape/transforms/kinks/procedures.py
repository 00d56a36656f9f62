"""Roots in procedures of what statements have summed up: the squares are in a loop, the root is behind it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product

from gradtape.ir.body import make_body
from gradtape.ir.graph import Node, Value, extract
from gradtape.ops.numpy.linalg.norms import root
from gradtape.passes.procedures.forwarding import forward_elements
from gradtape.procedures.equal_statements import merge_equal_statements
from gradtape.procedures.ir import Apply, Procedure, Span, Statement
from gradtape.procedures.rewrite import Rewriter
from gradtape.procedures.traversal import roots
from gradtape.records import replaced
from gradtape.statements import walk
from gradtape.transforms.kinks.roots import Orders, is_flat, of_anything, roots_of_norms, settles, takes_root
from gradtape.transforms.loops.draft import never_stop
from gradtape.transforms.procedures.activity import Location, loads, location_of, stores

Known = Callable[[Value, bool], float]


def with_flat_roots(procedure: Procedure) -> Procedure:
    """Return the procedure with the roots of sums of squares as those that norms end in: their slope at 0 counts as 0.

    Values are what they were. See `gradtape.transforms.kinks.roots` for roots whose squares stand in the same expression.

    Examples
    --------
    >>> from gradtape.ops.core.elementwise.roots import sqrt
    >>> from gradtape.procedures.builder import ProcedureBuilder
    >>> build = ProcedureBuilder("distance")
    >>> x, y = build.scalar("x"), build.allocate("y", 1)
    >>> build.store(y, 0, x * x)
    >>> with_flat_roots(build.finish([sqrt(build.load(y, 0))])).results[0].node.op.name
    'root'
    """
    nodes, _ = extract(roots(procedure), stop=lambda value: not value.is_made)
    applies = [statement for statement in walk(procedure.body) if isinstance(statement, Apply)]
    if not any(map(takes_root, [*nodes, *[node for apply in applies for node in apply.graph.nodes]])):
        return procedure
    # What is equal becomes one value: a square is written as a product of two loads.
    merged = forward_elements(merge_equal_statements(forward_elements(procedure)))
    rewriter = _WithFlatRoots(_StoredOrders(merged))
    changed = rewriter.rewritten(merged)
    return changed if rewriter.count else procedure


class _StoredOrders:
    """The orders of loaded values in a procedure: the least of all values stored in the location anywhere."""

    def __init__(self, procedure: Procedure) -> None:
        statements = list(walk(procedure.body))
        shared = {location_of(content) for content in procedure.parameters}
        self._leaves: dict[Value, Location] = {
            value: location for value, location in loads(statements) if location not in shared
        }
        found = list(stores(statements))
        known = {location for _, location in found}
        self._orders: dict[tuple[Location, bool], float] = dict.fromkeys(
            product({*known, *self._leaves.values()}, (False, True)), math.inf
        )
        applies = [statement for statement in statements if isinstance(statement, Apply)]
        if not settles(self._orders, lambda: self._lower(found, applies)):
            self._orders = {}

    def of(self, leaf: Value, signed: bool) -> float:
        """Return the order of a leaf of the procedure."""
        location = self._leaves.get(leaf)
        return of_anything(leaf, signed) if location is None else self._of_location(location, signed)

    def inside(self, apply: Apply) -> Known:
        """Return what tells the orders of the inputs of an array computation."""
        given = dict(zip(apply.graph.inputs, apply.inputs, strict=True))
        outside = Orders(never_stop, self.of)

        def known(leaf: Value, signed: bool) -> float:
            operand = given.get(leaf)
            if isinstance(operand, Span):
                return self._of_location(operand.pointer.memory, signed)
            return outside.of(operand or leaf, signed=signed)

        return known

    def _of_location(self, location: Location, signed: bool) -> float:
        return self._orders.get((location, signed), 1.0 if signed else 0.0)

    def _lower(self, found: Sequence[tuple[Value, Location]], applies: Sequence[Apply]) -> None:
        """Lower orders to those of the stored values."""
        orders = Orders(never_stop, self.of)
        for value, location in found:
            self._lower_one(location, value, orders)
        for apply in applies:
            inside = Orders(never_stop, self.inside(apply))
            for output, span in zip(apply.graph.outputs, apply.outputs, strict=True):
                self._lower_one(span.pointer.memory, output, inside)

    def _lower_one(self, location: Location, value: Value, orders: Orders) -> None:
        for signed in (False, True):
            key = (location, signed)
            if key in self._orders:
                self._orders[key] = min(self._orders[key], orders.of(value, signed=signed))


class _WithFlatRoots(Rewriter):
    """Puts the root of a norm in the place of roots that are flat, and counts them."""

    def __init__(self, stored: _StoredOrders) -> None:
        super().__init__()
        self._stored = stored
        self.count = 0

    def made(self, node: Node, inputs: tuple[Value, ...]) -> Sequence[Value]:
        if takes_root(node) and is_flat(node, Orders(never_stop, self._stored.of)):
            self.count += 1
            return (root(inputs[0]),)
        return super().made(node, inputs)

    def statement(self, statement: Statement) -> Statement:
        changed = super().statement(statement)
        if not isinstance(statement, Apply) or not any(map(takes_root, statement.graph.nodes)):
            return changed
        assert isinstance(changed, Apply)
        graph, orders = statement.graph, Orders(never_stop, self._stored.inside(statement))
        outputs = roots_of_norms(graph.outputs, graph.inputs, orders)
        if outputs is None:
            return changed
        self.count += 1
        return replaced(changed, graph=make_body(graph.inputs, outputs, graph.name))
