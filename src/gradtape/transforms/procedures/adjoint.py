"""The adjoint statements of a procedure, block by block, in terms of the values of the forward sweep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gradtape.ir.builder import at, here
from gradtape.ir.graph import Node, Value, extract, literal, number_of
from gradtape.ir.types import INT64, Aval, aval
from gradtape.kinds.contract import Contract
from gradtape.kinds.cotangent import Cotangent
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.operands import conform
from gradtape.ops.core.elementwise.arithmetic import masked_product
from gradtape.ops.core.elementwise.logic import bitwise_and, less, not_equal
from gradtape.passes.procedures.residuals import expensive_values
from gradtape.procedures.builder import ProcedureBuilder, leaf
from gradtape.procedures.ir import (
    Allocate,
    Apply,
    Assign,
    For,
    If,
    Load,
    Memory,
    Pointer,
    Procedure,
    Read,
    Span,
    Statement,
    Store,
    Variable,
    While,
)
from gradtape.procedures.traversal import roots, site_of
from gradtape.statements import walk
from gradtape.transforms.linear import Cotangents
from gradtape.transforms.loops.draft import make_body, never_stop, placeholder
from gradtape.transforms.observers import site_of_derivative
from gradtape.transforms.procedures.accumulate import (
    LEAST_DEFERRED,
    LEAST_SUM,
    MOST_DEFERRED,
    SOME_DEFERRED,
    Accumulator,
    DeferredSum,
    empty_sum,
)
from gradtape.transforms.procedures.activity import Activity, FiniteValues
from gradtape.transforms.procedures.blocks import Block, BlockTree, Place, written
from gradtape.transforms.procedures.dependence import Access, Dependence
from gradtape.transforms.procedures.shadows import Shadows
from gradtape.transforms.vjp import pull_back, reverse_sweep


class Adjoint:
    """The adjoint code, before the choice which forward values are saved and which are recomputed.

    Parameters
    ----------
    procedure : Procedure
        What is differentiated.
    seeds : dict of Value to Value
        Cotangents of results that are values.
    tree, activity, shadows, build, dependence
        Of the procedure.

    Attributes
    ----------
    steps : dict
        By block and position: the statements of the reverse of the statement there, and of the nodes that stand after it.
    begins : dict
        By block: the first statements of its reverse.
    inner : dict
        By statement of the reverse sweep: the blocks of which its blocks are the reverse.
    contents : list of (Place, Span)
        Arrays of the forward sweep that are read as a whole, and where.
    temporaries : list of Allocate
        Of the reverse sweep.
    cotangents : dict of Value to Value
        Of the parameters that are values.
    """

    def __init__(
        self,
        procedure: Procedure,
        seeds: dict[Value, Value],
        tree: BlockTree,
        activity: Activity,
        shadows: Shadows,
        build: ProcedureBuilder,
        dependence: Dependence,
    ) -> None:
        self._dependence = dependence
        self.steps: dict[Block, dict[int, list[Statement]]] = {}
        self.begins: dict[Block, list[Statement]] = {}
        self.inner: dict[Statement, list[Block]] = {}
        self.contents: list[tuple[Place, Span]] = []
        self.temporaries: list[Statement] = []
        self.cotangents: dict[Value, Value] = {}
        self._procedure = procedure
        self._seeds = seeds
        self._tree = tree
        self._active = activity.values
        self._finite = FiniteValues(procedure)
        self._shadows = shadows
        self._build = build
        self._sums: dict[Value, Variable] = {}
        self._after_loop: dict[Block, list[tuple[Variable, Load]]] = {}
        self._deferred: dict[Block, list[DeferredSum]] = {}
        self._sums_at: dict[tuple[Block, int], list[Value]] = {}
        self._nodes_at: dict[tuple[Block, int], list[Node]] = {}
        nodes, _ = extract(roots(procedure), stop=lambda value: not value.is_made)
        for node in nodes:
            if not self._active.isdisjoint(node.outs):
                place = tree.place_of(node.outs[0])
                assert place is not None
                self._nodes_at.setdefault((place.block, place.position), []).append(node)
        self._behind_infinite_slopes = self._values_behind_infinite_slopes(nodes)
        self._masked = Cotangents()
        self._accumulator = Accumulator()
        self._reverse(tree.root)

    def _reverse(self, block: Block) -> None:
        """Append the steps of a block, from its end to its beginning."""
        cotangents = Cotangents()
        outer, self._accumulator = self._accumulator, Accumulator()
        outer_masked, self._masked = self._masked, Cotangents()
        steps = self.steps[block] = {}
        self.begins[block] = []
        if block is self._tree.root:
            for value, seed in self._seeds.items():
                if value in self._active:
                    self._begin(value, seed, cotangents)
        for position in range(len(block.statements) - 1, -2, -1):
            steps[position] = []
            statement = block.statements[position] if position >= 0 else None
            with self._build.block(steps[position]), at(_reverse_site(statement)):
                if statement is not None:
                    self._reverse_effect(block, position, statement, cotangents)
                self._pull_nodes(block, position, cotangents)
                if isinstance(statement, Load | Read):
                    self._reverse_leaf(Place(block, position), statement, cotangents)
        with self._build.block(steps[-1]):
            self._leave(block, cotangents)
        self._accumulator = outer
        self._masked = outer_masked

    def _leave(self, block: Block, cotangents: Cotangents) -> None:
        """Append the sums of the cotangents of values that are known outside a block."""
        for value, cotangent in cotangents.items():
            place = self._tree.place_of(value)
            assert place is not None
            if place.block is not block:
                total = self._sum_of(value, place)
                self._build.assign(total, self._build.read(total) + self._part(cotangent, value))
            elif block is self._tree.root and value in self._procedure.parameters:
                self.cotangents[value] = self._part(cotangent, value)

    def _sum_of(self, value: Value, place: Place) -> Variable:
        """Return the variable in which the cotangent of a value is summed over inner blocks."""
        if value not in self._sums:
            total = Variable(self._build.unique("sum"), aval((), value.dtype))
            self._sums[value] = total
            self._sums_at.setdefault((place.block, place.position), []).append(value)
            self.begins[place.block].append(Assign(total, empty_sum(total)))
        return self._sums[value]

    def _part(self, cotangent: Cotangent, value: Value) -> Value:
        return conform(cotangent.applied(), value.dtype, ())

    def _pull_nodes(self, block: Block, position: int, cotangents: Cotangents) -> None:
        """Pull cotangents back through the nodes that stand at a place."""
        for value in self._sums_at.get((block, position), ()):
            self._begin(value, self._build.read(self._sums[value]), cotangents)
        for node in reversed(self._nodes_at.get((block, position), ())):
            if any(out in self._active and cotangents.get(out) is not None for out in node.outs):
                if self._may_have_infinite_slope(node):
                    cotangents.select(node.out, self._masked.get(node.out))
                pull_back(node, self._active, cotangents, never_stop)
                if not self._behind_infinite_slopes.isdisjoint(node.outs):
                    self._pull_masked(node)

    def _pull_masked(self, node: Node) -> None:
        """Pull back the cotangents that have the masks of zeros from memory."""
        needed_values = self._behind_infinite_slopes
        row: object = masked_product  # which is an op, though its type is that of a function
        cotangent = self._masked.get(node.out) if node.op is row else None
        if cotangent is not None:
            slope, tangent = node.inputs
            if slope in needed_values:  # a tangent of zero takes part in no path
                nonzero = not_equal(tangent, 0)
                mask = nonzero if cotangent.mask is None else bitwise_and(cotangent.mask, nonzero)
                self._masked.add(slope, Cotangent(masked_product(cotangent.value, tangent), mask))
            needed_values = needed_values & {tangent} - {slope}
        pull_back(node, needed_values, self._masked, never_stop)

    def _values_behind_infinite_slopes(self, nodes: Sequence[Node]) -> set[Value]:
        """Return the active results of nodes whose slope may be infinite, and the values computed from them."""
        behind: set[Value] = set()
        for node in nodes:
            if self._may_have_infinite_slope(node) or not behind.isdisjoint(node.inputs):
                behind.update(self._active.intersection(node.outs))
        return behind

    def _may_have_infinite_slope(self, node: Node) -> bool:
        """Return whether a partial derivative may be infinite, also where an operand is."""
        op = node.op
        if not op.finite_derivatives:
            return True
        if not isinstance(op, Elementwise) or op.additive:
            return False
        rules = op.linear_rules or (None,) * len(node.inputs)
        infinite = [k for k, operand in enumerate(node.inputs) if not self._finite.is_finite(operand)]
        return any(
            operand in self._active and any(k != j or rule is None for j in infinite)
            for k, (operand, rule) in enumerate(zip(node.inputs, rules, strict=True))
        )

    def _reverse_leaf(self, place: Place, statement: Load | Read, cotangents: Cotangents) -> None:
        """Append the adjoint of a load or of the reading of a variable."""
        out = statement.out
        cotangent = cotangents.get(out) if isinstance(out, Value) and out in self._active else None
        if cotangent is None:
            return
        assert isinstance(out, Value)
        part = self._part(cotangent, out)
        if isinstance(statement, Load) and self._is_invariant(place, statement):
            total = Variable(self._build.unique("sum"), aval((), out.dtype))
            self._build.assign(total, self._build.read(total) + part)
            self._after_loop.setdefault(place.block, []).append((total, statement))
        elif isinstance(statement, Load):
            self._accumulator.add(self._build, self._shadows.of(statement.pointer), statement.index, part)
        else:
            self._accumulator.add_to_variable(self._build, self._shadows.variable(statement.variable), part)

    def _is_invariant(self, place: Place, load: Load) -> bool:
        """Return whether each iteration of a loop loads the same element, which the loop does not write: cotangents are summed first."""
        block = place.block
        index, pointer = self._tree.place_of(load.index), self._tree.places.get(load.pointer)
        if not block.is_loop or index is None or pointer is None:
            return False
        inside = [each for each in self._tree.blocks if block in each.around()]
        if index.block in inside or pointer.block in inside:
            return False
        for each in inside:
            for position, statement in enumerate(each.statements):
                if load.pointer.memory in written(statement) and (
                    not isinstance(statement, Store)
                    or self._dependence.shares(statement, Place(each, position), load, place)
                ):
                    return False
        return True

    def _append_sums(self, block: Block, inner: Block) -> None:
        """Append, after the reverse of a loop, what adds the sums of its iterations to elements."""
        build = self._build
        for deferred in self._deferred.pop(inner, ()):
            deferred.finish(build)
        for total, load in self._after_loop.pop(inner, ()):
            self.begins[block].append(Assign(total, empty_sum(total)))
            with build.branch(
                less(literal(0, INT64), self._tree.counted[inner.number])
            ):  # else no index is valid
                shadow = self._shadows.of(load.pointer)
                build.store(shadow, load.index, build.load(shadow, load.index) + build.read(total))

    def _reverse_effect(
        self, block: Block, position: int, statement: Statement, cotangents: Cotangents
    ) -> None:
        """Append the adjoint of what a statement changes."""
        build, shadows = self._build, self._shadows
        if isinstance(statement, Store) and shadows.has(statement.pointer):
            part = self._accumulator.take(build, shadows.of(statement.pointer), statement.index)
            self._add(statement.value, part, cotangents)
        elif isinstance(statement, Assign) and isinstance(statement.value, Value):
            if shadows.has(statement.variable):
                part = self._accumulator.take_from_variable(build, shadows.variable(statement.variable))
                self._add(statement.value, part, cotangents)
        elif isinstance(statement, Apply):
            self._reverse_apply(Place(block, position), statement, cotangents)
        elif isinstance(statement, For | While | If):
            self._reverse_holder(block, position, statement)

    def _add(self, value: Value, part: Value, cotangents: Cotangents) -> None:
        if value in self._active:
            self._begin(value, part, cotangents)

    def _begin(self, value: Value, cotangent: Value, cotangents: Cotangents) -> None:
        """Add a cotangent that was in memory, and has lost its mask: where it is zero, it counts as zero by selection."""
        cotangents.add(value, Cotangent(cotangent))
        if value in self._behind_infinite_slopes:
            self._masked.add(value, Cotangent(cotangent, not_equal(cotangent, 0), is_applied=True))

    def _reverse_holder(self, block: Block, position: int, statement: For | While | If) -> None:
        """Append the reverse of a loop or a branch."""
        reverse: Statement
        if isinstance(statement, If):
            reverse = If(statement.condition)
        else:
            (inner,) = block.inner[position]
            is_parallel = isinstance(statement, For) and statement.parallel and self._is_parallel(inner)
            reverse = For(leaf(INT64), self._tree.counted[inner.number], [], is_parallel, here.site)
        self.inner[reverse] = block.inner[position]
        for inner in block.inner[position]:
            self._reverse(inner)
        self._accumulator.forget(step for each in block.inner[position] for step in self._all_steps(each))
        self._build.append(reverse)
        for inner in block.inner[position]:
            sums = len(self._build.current)
            self._append_sums(block, inner)
            self._accumulator.forget(walk(self._build.current[sums:]))

    def _is_parallel(self, loop: Block) -> bool:
        """Return whether the iterations of the reverse of a parallel loop do not conflict but for sums.

        They take adjoints of elements that only one iteration stores, and add to those of elements that any iteration loads. In an array
        to which both happens, no element may be loaded by several iterations.
        """
        inside = [block for block in self._tree.blocks if loop in block.around()]
        loads: dict[Memory, list[Access]] = {}
        spans: set[Memory] = set()
        changed: set[Memory] = set()
        for block in inside:
            for position, statement in enumerate(block.statements):
                if isinstance(statement, Load) and statement.out in self._active:
                    access = Access(statement.pointer, statement.index, Place(block, position))
                    loads.setdefault(statement.pointer.memory, []).append(access)
                elif isinstance(statement, Apply):
                    spans.update([x.pointer.memory for x in statement.inputs if isinstance(x, Span)])
                changed.update([x for x in written(statement) if isinstance(x, Memory)])
        both = {memory for memory in changed if self._shadows.has(memory)}
        if not both.isdisjoint(spans):
            return False
        return not any(
            self._dependence.is_carried_by(loop, first, second)
            for memory in both & loads.keys()
            for number, first in enumerate(loads[memory])
            for second in loads[memory][number:]
        )

    def _all_steps(self, block: Block) -> Iterator[Statement]:
        """Yield the statements of the reverse of a block and of those inside it."""
        for steps in self.steps[block].values():
            yield from walk(steps)
        for inner in block.inner.values():
            for each in inner:
                yield from self._all_steps(each)

    # Graphs of arrays

    def _reverse_apply(self, place: Place, statement: Apply, cotangents: Cotangents) -> None:
        """Append the pullback of a graph: into temporary arrays, and from there into the cotangents of the inputs."""
        body, shadows, build = statement.graph, self._shadows, self._build
        seeded = [
            (output, span)
            for output, span in zip(body.outputs, statement.outputs, strict=True)
            if shadows.has(span.pointer)
        ]
        sources = [
            (inner, operand)
            for inner, operand in zip(body.inputs, statement.inputs, strict=True)
            if (shadows.has(operand.pointer) if isinstance(operand, Span) else operand in self._active)
        ]
        if not seeded:
            return
        seeds = [placeholder(output) for output, _ in seeded]
        pulled = reverse_sweep(
            [output for output, _ in seeded], [inner for inner, _ in sources], seeds, never_stop
        ).results
        parts = [
            (conform(part, inner.dtype, inner.shape), operand)
            for part, (inner, operand) in zip(pulled, sources, strict=True)
            if part is not None
        ]
        wholes = [shadows.of_span(span) for _, span in seeded]
        spans = {
            inner: operand
            for inner, operand in zip(body.inputs, statement.inputs, strict=True)
            if isinstance(operand, Span)
        }
        of_seeds = dict(zip(seeds, wholes, strict=True))
        parts = [each for each in parts if not self._defer(place, *each, spans, of_seeds)]
        arrays = self._append_pullback(place, statement, [part for part, _ in parts], seeds, wholes)
        self._accumulator = Accumulator()
        for span in wholes:
            with build.loop(span.aval.size) as i:
                build.store(span.pointer, span.offset + i, 0.0)
        for array, (_, operand) in zip(arrays, parts, strict=True):
            if isinstance(operand, Span):
                shadow = shadows.of_span(operand)
                with build.loop(shadow.aval.size) as i:
                    before = build.load(shadow.pointer, shadow.offset + i)
                    build.store(shadow.pointer, shadow.offset + i, before + build.load(array, i))
            else:
                self._add(operand, build.load(array, 0), cotangents)

    def _defer(
        self,
        place: Place,
        part: Value,
        operand: Span | Value,
        spans: Mapping[Value, Span],
        seeds: Mapping[Value, Span],
    ) -> bool:
        """Append what keeps the factors of a product that is added to an adjoint, if it is better to sum many of them after it."""
        node, sources = part.node, {**spans, **seeds}
        if (
            not isinstance(operand, Span)
            or node is None
            or not isinstance(node.op, Contract)
            or any(factor not in sources for factor in node.inputs)
            or part.size < max(LEAST_SUM, sum(factor.size for factor in node.inputs))
        ):
            return False
        loop = self._loop_of_sum(place.block, operand)
        if loop is None or loop.parent is None:
            return False
        count = number_of(loop.holder.count) if isinstance(loop.holder, For) else None
        most = SOME_DEFERRED if count is None or loop is not place.block else min(int(count), MOST_DEFERRED)
        if most < LEAST_DEFERRED:
            return False
        factors = [placeholder(factor) for factor in node.inputs]
        stacked = [Value(aval((most, *factor.shape), factor.dtype)) for factor in factors]
        x, y, out = (node.params[name] for name in ("x", "y", "out"))
        along = max((*x, *y)) + 1
        product = node.op(*stacked, x=(along, *x), y=(along, *y), out=out)
        waiting = Variable(self._build.unique("waiting"), aval((), INT64))
        self.begins[loop.parent].append(Assign(waiting, literal(0, INT64)))
        deferred = DeferredSum(
            make_body(stacked, [product]),
            [self._temporary(each.aval, place.block) for each in stacked],
            self._temporary(part.aval, place.block),
            self._shadows.of_span(operand),
            waiting,
        )
        self.contents += [(place, spans[factor]) for factor in node.inputs if factor in spans]
        deferred.append(self._build, [sources[factor] for factor in node.inputs])
        self._deferred.setdefault(loop, []).append(deferred)
        return True

    def _loop_of_sum(self, block: Block, operand: Span) -> Block | None:
        """Return the outermost loop that reads the same array in each iteration, and does not write it."""
        outermost: Block | None = None
        goes_on = True
        offset, pointer = self._tree.place_of(operand.offset), self._tree.places.get(operand.pointer)
        for loop in block.around():
            if isinstance(loop.holder, For) and loop.holder.parallel:
                return None
            inside = [each for each in self._tree.blocks if loop in each.around()]
            if loop.is_loop and not goes_on:
                continue
            goes_on = not (
                offset is None
                or pointer is None
                or offset.block in inside
                or pointer.block in inside
                or any(operand.pointer.memory in written(s) for each in inside for s in each.statements)
            )
            if loop.is_loop and goes_on:
                outermost = loop
        return outermost

    def _append_pullback(
        self,
        place: Place,
        statement: Apply,
        parts: Sequence[Value],
        seeds: Sequence[Value],
        wholes: Sequence[Span],
    ) -> list[Pointer]:
        """Append the graph that computes cotangents of inputs; return the arrays that it writes."""
        if not parts:
            return []
        body = statement.graph
        expensive = expensive_values(statement)
        stored = [
            (output, span)
            for output, span in zip(body.outputs, statement.outputs, strict=True)
            if output in expensive
        ]
        nodes, _ = extract(parts, [*body.inputs, *[x for x, _ in stored], *seeds])
        read = {value for node in nodes for value in node.inputs}.union(parts)
        primal = [
            (inner, operand)
            for inner, operand in (*zip(body.inputs, statement.inputs, strict=True), *stored)
            if inner in read
        ]
        self.contents += [(place, operand) for _, operand in primal if isinstance(operand, Span)]
        arrays = [self._temporary(part.aval, place.block) for part in parts]
        pullback = make_body([*[inner for inner, _ in primal], *seeds], parts)
        outputs = [
            Span(array, literal(0, INT64), aval(part.shape, part.dtype))
            for array, part in zip(arrays, parts, strict=True)
        ]
        operands = (*[operand for _, operand in primal], *wholes)
        self._build.append(Apply(pullback, operands, tuple(outputs)))
        return arrays

    def _temporary(self, type_: Aval, block: Block) -> Pointer:
        """Return an array of the reverse sweep; the iterations of a parallel loop have their own."""
        name = self._build.unique("part")
        pointer = Pointer(name, Memory(name, type_.dtype))
        is_own = any(isinstance(x.holder, For) and x.holder.parallel for x in block.around())
        where = self._build.current if is_own else self.temporaries
        where.append(Allocate(pointer, literal(type_.size, INT64)))
        return pointer


def _reverse_site(statement: Statement | None) -> Any:
    """Return the site of the reverse of a statement."""
    if statement is None:
        return None
    return site_of_derivative(site_of(statement), type(statement).__name__.lower(), backward=True)
