"""From a schedule to loops: the element interpreter emits what access analysis has gone through before."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from gradtape.ir.graph import Value
from gradtape.ir.types import BOOL, INT64
from gradtape.kinds.accumulate import Accumulate
from gradtape.kinds.cumulative import Cumulative
from gradtape.kinds.join import starts
from gradtape.kinds.reduction import Reduction
from gradtape.loops.affine import Position, Var, affine, flat, interval
from gradtape.loops.ir import (
    Assign,
    Buffer,
    Compute,
    Declare,
    For,
    Guard,
    Index,
    Load,
    LoopProgram,
    Number,
    Register,
    SequentialFor,
    Store,
    const,
)
from gradtape.loops.passes.monoids import COMBINE, identity, monoid_of
from gradtape.lower.building.calls import emit_product, emit_routine
from gradtape.lower.building.context import BuildContext
from gradtape.lower.building.control import emit_control
from gradtape.lower.building.elements import ElementBuilder, LoopScope
from gradtape.lower.schedule.element_interpreter import Where
from gradtape.lower.schedule.fusion import Block, FusedLoop
from gradtape.lower.schedule.nests import LoopNest
from gradtape.lower.schedule.order import Schedule
from gradtape.ops.core.elementwise.arithmetic import add, multiply, subtract
from gradtape.ops.core.elementwise.logic import bitwise_and, bitwise_or, equal, greater, less, not_equal
from gradtape.ops.core.elementwise.select import where


class Builder(ElementBuilder):
    """Emits the statements of a schedule."""

    def __init__(self, plan: Schedule, context: BuildContext) -> None:
        super().__init__(plan, context)
        self._values: dict[LoopNest, list[Position]] = {}
        self._accumulators: dict[LoopNest, tuple[Register, ...]] = {}
        self._emitters: dict[str, Callable[[LoopNest, Where], None]] = {
            "elementwise": self._elementwise,
            "reduce": self._reduce,
            "argreduce": self._argreduce,
            "contract": self._contract,
            "cumulative": self._cumulative,
            "scatter": self._scatter,
            "join": self._join,
            "guard": self._guard,
            "product": partial(emit_product, self),
            "routine": partial(emit_routine, self),
            "control": lambda nest, values: emit_control(self, nest),
            "result": lambda nest, values: None,
            "part": lambda nest, values: None,
            "carry": lambda nest, values: None,
        }

    def build(self, name: str) -> LoopProgram:
        """Return the program of the schedule, as built."""
        self._block(self.plan.top)
        inputs, count = self.plan.inputs, self.context.trip_count
        scratch = [*self.plan.scratch, *self.scratch]
        return LoopProgram(
            name, inputs if count is None else [*inputs, count], self.plan.outputs, scratch, self.body
        )

    # The tree of blocks and loops

    def _block(self, block: Block) -> None:
        """Emit what runs in one iteration."""
        for nest in block.first:
            self._nest(nest)
        for loop in block.loops:
            self._loop(loop)
            for nest in loop.after:
                self._nest(nest)

    def _loop(self, loop: FusedLoop) -> None:
        """Emit a loop in as many pieces as it must be cut into."""
        level = loop.level
        for nest in loop.nests:
            self._values.setdefault(nest, [0] * len(nest.axes))
            with self._emitting(nest):
                if nest.first_reduced() == level:
                    self._begin(nest, level)
                if nest.kind == "scatter" and level == 0:
                    if is_segmented(nest) and loop.nests == [nest]:
                        self._segments(nest)
                        return
                    self._copy_base(nest)
            if nest.accumulates_along(level):
                register = Register(self.fresh("a"), nest.value.dtype)
                self.emit(Declare(register, const(0, nest.value.dtype)))
                self._accumulators[nest] = (register,)
        ends = sorted({0, loop.extent, *[end for end in loop.breaks if 0 < end < loop.extent]})
        for low, high in itertools.pairwise(ends):
            self._piece(loop, low, high)
        for nest in loop.nests:
            if nest.accumulates_along(level):
                del self._accumulators[nest]
            elif nest.first_reduced() == level and nest.kind not in ("scatter", "join"):
                self._finish(nest)
            elif nest.trailing_reduced() == level and nest.first_reduced() < level:
                self._combine_partial(nest)

    def _piece(self, loop: FusedLoop, low: int, high: int) -> None:
        """Emit the iterations of a loop from `low` to before `high`; a single one without a loop."""
        level = loop.level
        for nest in loop.nests:
            partial_ = nest.first_reduced() < level == nest.trailing_reduced() and low == 0
            if partial_ and low < nest.axes[level].extent and nest.kind != "product":
                with self._emitting(nest):
                    register = Register(self.fresh("a"), nest.value.dtype)
                self.emit(Declare(register, _identity(nest)))
                self._accumulators[nest] = (register,)
        if high - low == 1:
            for nest in loop.nests:
                self._values[nest][level] = low
            self._block(loop.body)
            return
        var = Var(self.fresh("i_"), low, high - 1)
        self.depth_of[var.name] = len(self.scopes)
        statement = For(var)
        self.scopes.append(LoopScope(statement.body))
        position = affine(var)
        for nest in loop.nests:
            self._values[nest][level] = position
        self._block(loop.body)
        self.scopes.pop()
        if statement.body:
            self.emit(statement)

    def _nest(self, nest: LoopNest) -> None:
        """Emit what a nest does in one iteration of its innermost loop, unless its own loops are over."""
        values = tuple(self._values.get(nest, ()))
        for value, axis in zip(values, nest.axes, strict=True):
            if interval(value)[0] >= axis.extent:
                return
        with self._emitting(nest):
            self._emitters[nest.kind](nest, values)

    @contextmanager
    def _emitting(self, nest: LoopNest) -> Iterator[None]:
        """Let names say that what is emitted is for a nest."""
        before, self.current = self.current, nest
        yield
        self.current = before

    def _memory(self, nest: LoopNest) -> Buffer:
        buffer = self.plan.storage[nest].buffer
        assert buffer is not None
        return buffer

    # The kinds

    def _elementwise(self, nest: LoopNest, values: Where) -> None:
        index = nest.result_index(values)
        is_own = nest.node is not None and self.nests.get(nest.value) is nest
        value = self.lookup(nest.value, index) if is_own else None
        if value is None:
            value = (
                self.compute(nest.node, index)
                if is_own and nest.node is not None
                else self.element(nest.value, index)
            )
        self.emit_result(nest, index, value)

    def _guard(self, nest: LoopNest, values: Where) -> None:
        assert nest.guard is not None
        number, expected = nest.guard
        self.emit(Guard(number, self.element(nest.value, ()), expected))

    def _reduce(self, nest: LoopNest, values: Where) -> None:
        assert nest.node is not None
        self._accumulate(nest, values, self.element(nest.node.inputs[0], nest.operand_index(values)))

    def _contract(self, nest: LoopNest, values: Where) -> None:
        node = nest.node
        assert node is not None
        x, y = [
            self.element(value, tuple([values[nest.subscript_levels[subscript]] for subscript in subscripts]))
            for value, subscripts in zip(node.inputs, (node.params["x"], node.params["y"]), strict=True)
        ]
        product = self.function(multiply, (x, y), nest.value.dtype)
        if nest.first_reduced() == len(nest.axes):
            self.emit_result(nest, nest.result_index(values), product)
        else:
            self._accumulate(nest, values, product)

    def _argreduce(self, nest: LoopNest, values: Where) -> None:
        """Emit the first greatest element, or the first NaN: a NaN beats any number and is beaten by nothing."""
        assert nest.node is not None and isinstance(nest.node.op, Reduction)
        x = self.element(nest.node.inputs[0], nest.operand_index(values))
        best, position = self._accumulators[nest]
        beats = greater if nest.node.op.monoid == "argmax" else less
        better = self.function(beats, (x, best), BOOL, here=True)
        if x.dtype.kind == "f":
            is_nan = self.function(not_equal, (x, x), BOOL)
            was_number = self.function(equal, (best, best), BOOL, here=True)
            takes = self.function(bitwise_and, (is_nan, was_number), BOOL, here=True)
            better = self.function(bitwise_or, (better, takes), BOOL, here=True)
        self.emit(Assign(best, self.function(where, (better, x, best), x.dtype, here=True)))
        here = Index(values[-1])
        self.emit(Assign(position, self.function(where, (better, here, position), INT64, here=True)))

    def _cumulative(self, nest: LoopNest, values: Where) -> None:
        node, storage = nest.node, self.plan.storage[nest].buffer
        assert node is not None and isinstance(node.op, Cumulative)
        op, axis = node.op, node.params["axis"]
        index = nest.result_index(values)
        elements = [self.element(value, index) for value in node.inputs]
        low, _ = interval(values[axis])
        if low == 0:
            result = self.formula(op.first, elements, node)
        else:
            step = 1 if node.params["reverse"] else -1
            before = tuple([p + step if k == axis else p for k, p in enumerate(index)])
            if nest in self._accumulators:
                previous: Number = self._accumulators[nest][0]
            else:
                previous = Register(self.fresh("s"), nest.value.dtype)
                self.emit(Load(previous, self._memory(nest), self.address(nest, before)))
            result = self.formula(op.step, [previous, *elements], node)
        if nest in self._accumulators:
            self.emit(Assign(self._accumulators[nest][0], result))
        if storage is not None:
            self.emit(Store(storage, self.address(nest, index), result))

    def _scatter(self, nest: LoopNest, values: Where) -> None:
        node, storage = nest.node, self._memory(nest)
        assert node is not None
        op = node.op
        assert isinstance(op, Accumulate)
        base, v, indices, _ = op.split(node.inputs)
        index = nest.operand_index(values)
        element = self.element(v, index)
        position = self.positions(op.target, index, base.shape, indices, node.params)
        address = flat(position, base.shape)
        if op.combine == "add":
            before = Register(self.fresh("s"), nest.value.dtype)
            self.emit(Load(before, storage, address))
            element = self.function(add, (before, element), nest.value.dtype, here=True)
        self.emit(Store(storage, address, element))

    def _copy_base(self, nest: LoopNest) -> None:
        """Give a scatter its base to write into, unless it writes into the base itself."""
        if self.plan.storage[nest].in_place_of is not None:
            return
        assert nest.node is not None
        base, storage = nest.node.inputs[0], self._memory(nest)
        self.over(
            base.shape,
            lambda index: self.emit(Store(storage, flat(index, base.shape), self.element(base, index))),
        )

    def _segments(self, nest: LoopNest) -> None:
        """Emit a scatter to sorted positions: a loop over the elements of the result, and in it one over what is added to each."""
        assert nest.node is not None
        op = nest.node.op
        assert isinstance(op, Accumulate)
        base, v, _, (starts,) = op.split(nest.node.inputs)

        def store(index: Where) -> None:
            (element,) = index
            first, end = [self.element(starts, (element + k,)) for k in (0, 1)]
            total = Register(self.fresh("a"), base.dtype)
            self.emit(Declare(total, self.element(base, index)))
            term = Var(self.fresh("i_"), 0, max(v.size - 1, 1))
            terms = SequentialFor(term, [], self.function(subtract, (end, first), INT64))
            self.depth_of[term.name] = len(self.scopes)
            self.scopes.append(LoopScope(terms.body))
            term_number = self.function(add, (first, Index(affine(term))), INT64)
            assert isinstance(term_number, Register)
            position = affine(Var(term_number.name, 0, max(v.size - 1, 1)))
            sum_with_element = self.function(
                add, (total, self.element(v, (position,))), base.dtype, here=True
            )
            self.emit(Assign(total, sum_with_element))
            self.scopes.pop()
            self.emit(terms)
            stored_total = Register(self.fresh("t"), base.dtype)
            self.emit(Compute(stored_total, "identity", None, (total,)))
            self.emit(Store(self._memory(nest), element, stored_total))

        self.over(base.shape, store)

    def _join(self, nest: LoopNest, values: Where) -> None:
        node, storage = nest.node, self._memory(nest)
        assert node is not None
        axis = node.params["axis"]

        def copy(piece: Value, start: int) -> None:
            def store(index: Where) -> None:
                target_index = tuple([p + start if k == axis else p for k, p in enumerate(index)])
                self.emit(Store(storage, flat(target_index, nest.shape), self.element(piece, index)))

            self.over(piece.shape, store)

        for piece, start in zip(node.inputs, starts(node), strict=True):
            copy(piece, start)

    # Accumulators

    def _begin(self, nest: LoopNest, level: int) -> None:
        """Declare what the reduced loops from `level` on accumulate into, or clear the memory."""
        if nest.kind == "argreduce":
            assert nest.node is not None and isinstance(nest.node.op, Reduction)
            dtype = nest.node.inputs[0].dtype
            best, position = Register(self.fresh("a"), dtype), Register(self.fresh("a"), INT64)
            least = identity("maximum" if nest.node.op.monoid == "argmax" else "minimum", dtype)
            self.emit(Declare(best, least))
            self.emit(Declare(position, const(0, INT64)))
            self._accumulators[nest] = (best, position)
        elif nest.kind == "product":
            outside = {axis.position for axis in nest.axes[:level]}
            inside = [k for k in range(nest.value.ndim) if k not in outside]
            self._clear(nest, inside, const(0, nest.value.dtype))
        elif nest.kind in ("reduce", "contract"):
            start = _identity(nest)
            assert nest.node is not None
            empty = any(not axis.extent for axis in nest.axes)
            if empty and start.dtype.kind == "f" and monoid_of(nest.node) == "add":
                start = const(0, nest.value.dtype)  # a sum over nothing is 0.0, not -0.0
            if nest.trailing_reduced() == level:
                register = Register(self.fresh("a"), nest.value.dtype)
                self.emit(Declare(register, start))
                self._accumulators[nest] = (register,)
            else:
                kept_axes = [axis.position for axis in nest.axes[level:] if axis.position is not None]
                self._clear(nest, kept_axes, start)

    def _clear(self, nest: LoopNest, axes: Sequence[int], start: Number) -> None:
        """Set the elements that the loops which are still to come add to."""
        memory = self._memory(nest)
        index = list(nest.result_index(tuple(self._values[nest])))

        def store(inner: Where) -> None:
            for axis, position in zip(axes, inner, strict=True):
                index[axis] = position
            self.emit(Store(memory, self.address(nest, tuple(index)), start))

        self.over(tuple([nest.shape[axis] for axis in axes]), store)

    def _accumulate(self, nest: LoopNest, values: Where, element: Number) -> None:
        if nest in self._accumulators:
            (register,) = self._accumulators[nest]
            self.emit(Assign(register, self._combined(nest, register, element)))
        else:
            self._combine_into(nest, nest.result_index(values), element)

    def _combine_into(self, nest: LoopNest, index: Where, element: Number) -> None:
        memory, address = self._memory(nest), self.address(nest, index)
        before = Register(self.fresh("s"), nest.value.dtype)
        self.emit(Load(before, memory, address))
        self.emit(Store(memory, address, self._combined(nest, before, element)))

    def _combined(self, nest: LoopNest, before: Number, element: Number) -> Number:
        assert nest.node is not None
        name, body = COMBINE[monoid_of(nest.node)]
        return self.computed(name, body, (before, element), nest.value.dtype, here=True, reassociate=True)

    def _combine_partial(self, nest: LoopNest) -> None:
        """Add what the innermost loops have accumulated to the memory."""
        registers = self._accumulators.pop(nest, None)
        if registers is not None:
            self._combine_into(nest, nest.result_index(tuple(self._values[nest])), registers[0])

    def _finish(self, nest: LoopNest) -> None:
        """Store what all reduced loops have accumulated."""
        if nest not in self._accumulators:
            return
        register = self._accumulators.pop(nest)[-1]
        index = nest.result_index(tuple(self._values[nest]))
        final = Register(self.fresh("t"), register.dtype)
        self.emit(Compute(final, "identity", None, (register,)))
        self.depth_of[final.name] = len(self.scopes) - 1
        self.emit_result(nest, index, final)


def is_segmented(nest: LoopNest) -> bool:
    """Return whether a scatter adds up numbers that are in the order of their positions."""
    node = nest.node
    return (
        node is not None
        and isinstance(node.op, Accumulate)
        and node.op.without_starts is not None
        and len(nest.axes) == 1
        and all(value.size for value in node.inputs[:2])
    )


def _identity(nest: LoopNest) -> Number:
    """Return what a reduction or contraction begins with."""
    assert nest.node is not None
    return identity(monoid_of(nest.node), nest.value.dtype)
