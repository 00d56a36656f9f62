"""From placed roots to loops: the second walk, which emits what the first one explored."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from gradtape.ir.graph import Value
from gradtape.ir.types import BOOL, INT64
from gradtape.kinds.cumulative import Cumulative
from gradtape.kinds.join import starts
from gradtape.kinds.reduction import Reduction
from gradtape.loops.affine import Position, Var, affine, interval
from gradtape.loops.ir import (
    Assign,
    Buffer,
    Compute,
    Declare,
    For,
    Guard,
    Index,
    Load,
    Number,
    Register,
    Store,
    const,
)
from gradtape.loops.passes.monoids import COMBINE, identity, monoid_of
from gradtape.lower.building.calls import emit_call
from gradtape.lower.building.control import emit_control
from gradtape.lower.building.elements import ElementBuilder, Scope
from gradtape.lower.building.outlined import LoopKernels
from gradtape.lower.schedule.element_interpreter import Where
from gradtape.lower.schedule.fusion import Block, Loop
from gradtape.lower.schedule.nests import Root, flat


class Builder(ElementBuilder):
    """Emits the statements of a placed program."""

    def __init__(self, roots: dict[Value, Root], buffers: dict[Value, Buffer]) -> None:
        super().__init__(roots, buffers)
        self.scratch: list[Buffer] = []
        self.kernels: LoopKernels | None = None
        self.count: Buffer | None = None
        self.notes: list[str] = []
        self.values: dict[Root, list[Position]] = {}
        self.accumulators: dict[Root, tuple[Register, ...]] = {}
        self.emitters: dict[str, Callable[[Root, Where], None]] = {
            "each": self._each,
            "reduce": self._reduce,
            "argreduce": self._argreduce,
            "contract": self._contract,
            "scan": self._scan,
            "scatter": self._scatter,
            "join": self._join,
            "guard": self._guard,
            "blas": self._call,
            "routine": self._call,
            "control": self._control,
            "result": self._nothing,
            "held": self._nothing,
        }

    def within(self, roots: dict[Value, Root], buffers: dict[Value, Buffer]) -> Builder:
        """Return a builder for the body of a loop, which shares the names."""
        inner = Builder(roots, buffers)
        inner.names = self.names
        inner.makers = self.makers
        return inner

    # The tree

    def block(self, block: Block) -> None:
        """Emit what runs in one turn."""
        for root in block.first:
            self.stand(root)
        for loop in block.loops:
            self.loop(loop)
            for root in loop.after:
                self.stand(root)

    def loop(self, loop: Loop) -> None:
        """Emit a loop in as many pieces as it must be broken into."""
        level = loop.roots[0].path.index(loop)
        for root in loop.roots:
            self.values.setdefault(root, [0] * len(root.axes))
            if root.first_reduced() == level:
                before, self.current = self.current, root
                self._begin(root, level)
                self.current = before
            if root.kind == "scatter" and level == 0:
                self._copy_base(root)
            if root.carries(level):
                register = Register(self.fresh("a"), root.value.dtype)
                self.emit(Declare(register, const(0, root.value.dtype)))
                self.accumulators[root] = (register,)
        ends = sorted({0, loop.extent, *[end for end in loop.breaks if 0 < end < loop.extent]})
        for low, high in itertools.pairwise(ends):
            self._piece(loop, level, low, high)
        for root in loop.roots:
            if root.carries(level):
                del self.accumulators[root]
            elif root.first_reduced() == level and root.kind not in ("scatter", "join"):
                self._finish(root)
            elif root.trailing_reduced() == level and root.first_reduced() < level:
                self._combine(root)

    def _piece(self, loop: Loop, level: int, low: int, high: int) -> None:
        running = [root for root in loop.roots if low < root.axes[level].extent]
        for root in running:
            partial = root.first_reduced() < level == root.trailing_reduced() and low == 0
            if partial and root.kind != "blas":
                self._begin_partial(root)
        if high - low == 1:
            for root in loop.roots:
                self.values[root][level] = low
            self.block(loop.body)
            return
        var = Var(self.fresh("i_"), low, high - 1)
        self.depth_of[var.name] = len(self.scopes)
        statement = For(var)
        self.scopes.append(Scope(statement.body))
        position = affine(var)
        for root in loop.roots:
            self.values[root][level] = position
        self.block(loop.body)
        self.scopes.pop()
        if statement.body:
            self.scopes[-1].statements.append(statement)

    def stand(self, root: Root) -> None:
        """Emit a root at the innermost level of its loops."""
        values = tuple(self.values.get(root, ()))
        for value, axis in zip(values, root.axes, strict=True):
            if interval(value)[0] >= axis.extent:
                return
        before, self.current = self.current, root
        self.emitters[root.kind](root, values)
        self.current = before

    # The kinds

    def _each(self, root: Root, values: Where) -> None:
        index = root.result_index(values)
        own = root.node is not None and self.roots.get(root.value) is root
        known = self.recall(root.value, index) if own else None
        if known is None:
            known = (
                self.compute(root.node, index)
                if own and root.node is not None
                else self.element(root.value, index)
            )
        self._made(root, index, known)

    def _made(self, root: Root, index: Where, element: Number) -> None:
        if root.storage is not None:
            self.emit(Store(root.storage, self.address(root, index), element))
        if self.roots.get(root.value) is root:
            self.scopes[-1].known[root.value, index] = element

    def made_number(self, root: Root, number: Register) -> None:
        """Take note of a number that a root has made for the whole program."""
        self.depth_of[number.name] = 0
        self._made(root, (), number)

    def _guard(self, root: Root, values: Where) -> None:
        assert root.guard is not None
        number, expected = root.guard
        self.emit(Guard(number, self.element(root.value, ()), expected))

    def _reduce(self, root: Root, values: Where) -> None:
        assert root.node is not None and isinstance(root.node.op, Reduction)
        self._accumulate(root, values, self.element(root.node.inputs[0], root.operand_index(values)))

    def _contract(self, root: Root, values: Where) -> None:
        assert root.node is not None
        node = root.node
        x, y = [
            self.element(value, tuple([values[root.letters[letter]] for letter in letters]))
            for value, letters in zip(node.inputs, (node.params["x"], node.params["y"]), strict=True)
        ]
        product = self.function("multiply", (x, y), root.value.dtype)
        if root.first_reduced() == len(root.axes):
            self._made(root, root.result_index(values), product)
        else:
            self._accumulate(root, values, product)

    def _accumulate(self, root: Root, values: Where, element: Number) -> None:
        if root in self.accumulators:
            (register,) = self.accumulators[root]
            total = self._combined(root, register, element)
            self.emit(Assign(register, total))
            return
        self._combine_into(root, root.result_index(values), element)

    def _combine_into(self, root: Root, index: Where, element: Number) -> None:
        assert root.storage is not None
        address = self.address(root, index)
        before = Register(self.fresh("s"), root.value.dtype)
        self.emit(Load(before, root.storage, address))
        self.emit(Store(root.storage, address, self._combined(root, before, element)))

    def _combined(self, root: Root, before: Number, element: Number) -> Number:
        assert root.node is not None
        name, body = COMBINE[monoid_of(root.node)]
        return self._computed(name, body, (before, element), root.value.dtype, here=True, reassociate=True)

    def _argreduce(self, root: Root, values: Where) -> None:
        """The first greatest element, or the first NaN: a NaN beats any number and is beaten by nothing."""
        assert root.node is not None and isinstance(root.node.op, Reduction)
        x = self.element(root.node.inputs[0], root.operand_index(values))
        best, place = self.accumulators[root]
        greater = "greater" if root.node.op.monoid == "argmax" else "less"
        better = self.function(greater, (x, best), BOOL, here=True)
        if x.dtype.kind == "f":
            is_nan = self.function("not_equal", (x, x), BOOL)
            was_number = self.function("equal", (best, best), BOOL, here=True)
            takes = self.function("bitwise_and", (is_nan, was_number), BOOL, here=True)
            better = self.function("bitwise_or", (better, takes), BOOL, here=True)
        self.emit(Assign(best, self.function("where", (better, x, best), x.dtype, here=True)))
        here = Index(values[-1])
        self.emit(Assign(place, self.function("where", (better, here, place), INT64, here=True)))

    def _scan(self, root: Root, values: Where) -> None:
        assert root.node is not None and isinstance(root.node.op, Cumulative)
        op, axis = root.node.op, root.node.params["axis"]
        index = root.result_index(values)
        elements = [self.element(value, index) for value in root.node.inputs]
        low, _ = interval(values[axis])
        if low == 0:
            result = self.formula(op.first, elements, root.node)
        else:
            step = 1 if root.node.params["reverse"] else -1
            before = tuple([p + step if k == axis else p for k, p in enumerate(index)])
            if root in self.accumulators:
                previous: Number = self.accumulators[root][0]
            else:
                assert root.storage is not None
                previous = Register(self.fresh("s"), root.value.dtype)
                self.emit(Load(previous, root.storage, self.address(root, before)))
            result = self.formula(op.step, [previous, *elements], root.node)
        if root in self.accumulators:
            self.emit(Assign(self.accumulators[root][0], result))
        if root.storage is not None:
            self.emit(Store(root.storage, self.address(root, index), result))

    def _scatter(self, root: Root, values: Where) -> None:
        assert root.node is not None and root.storage is not None
        base, v, *indices = root.node.inputs
        op: Any = root.node.op
        index = root.operand_index(values)
        element = self.element(v, index)
        position = self.positions(op.target, index, base.shape, indices, root.node.params)
        address = flat(position, base.shape)
        if op.combine == "add":
            before = Register(self.fresh("s"), root.value.dtype)
            self.emit(Load(before, root.storage, address))
            element = self.function("add", (before, element), root.value.dtype, here=True)
        self.emit(Store(root.storage, address, element))

    def _join(self, root: Root, values: Where) -> None:
        assert root.node is not None and root.storage is not None
        storage, axis = root.storage, root.node.params["axis"]

        def copy(piece: Value, start: int) -> None:
            def store(index: Where) -> None:
                place = tuple([p + start if k == axis else p for k, p in enumerate(index)])
                self.emit(Store(storage, flat(place, root.shape), self.element(piece, index)))

            self.over(piece.shape, store)

        for piece, start in zip(root.node.inputs, starts(root.node), strict=True):
            copy(piece, start)

    def _copy_base(self, root: Root) -> None:
        """Give a scatter its base to write into, unless it writes into the base itself."""
        if root.in_place_of is not None:
            return
        assert root.node is not None and root.storage is not None
        base = root.node.inputs[0]
        storage = root.storage
        before, self.current = self.current, root
        self.over(
            base.shape,
            lambda index: self.emit(Store(storage, flat(index, base.shape), self.element(base, index))),
        )
        self.current = before

    def _call(self, root: Root, values: Where) -> None:
        emit_call(self, root, values)

    def _control(self, root: Root, values: Where) -> None:
        emit_control(self, root)

    def _nothing(self, root: Root, values: Where) -> None:
        """What stands is made by another root."""

    # Accumulators

    def _begin(self, root: Root, level: int) -> None:
        """Declare what the reduced loops accumulate into."""
        if root.kind == "argreduce":
            assert root.node is not None
            dtype = root.node.inputs[0].dtype
            best, place = Register(self.fresh("a"), dtype), Register(self.fresh("a"), INT64)
            least = identity("maximum" if root.node.op.monoid == "argmax" else "minimum", dtype)  # type: ignore[attr-defined]
            self.emit(Declare(best, least))
            self.emit(Declare(place, const(0, INT64)))
            self.accumulators[root] = (best, place)
        elif root.kind == "blas":
            self._clear(root, level)
        elif root.kind in ("reduce", "contract"):
            assert root.node is not None
            start = identity(monoid_of(root.node), root.value.dtype)
            if (
                start.dtype.kind == "f"
                and monoid_of(root.node) == "add"
                and any(not axis.extent for axis in root.axes)
            ):
                start = const(0, root.value.dtype)
            if root.trailing_reduced() == level:
                register = Register(self.fresh("a"), root.value.dtype)
                self.emit(Declare(register, start))
                self.accumulators[root] = (register,)
            else:
                assert root.storage is not None
                storage = root.storage
                outer = tuple(self.values[root])
                kept = [axis for axis in root.axes[level:] if axis.position is not None]
                index = list(root.result_index(outer))

                def store(inner: Where) -> None:
                    for axis, position in zip(kept, inner, strict=True):
                        assert axis.position is not None
                        index[axis.position] = position
                    self.emit(Store(storage, self.address(root, tuple(index)), start))

                self.over(tuple(axis.extent for axis in kept), store)

    def _clear(self, root: Root, level: int) -> None:
        """Set to zero what products in the loops from `level` on add to."""
        assert root.storage is not None
        storage = root.storage
        outside = {axis.position for axis in root.axes[:level]}
        index = list(root.result_index(tuple(self.values[root])))
        inside = [k for k in range(root.value.ndim) if k not in outside]

        def store(inner: Where) -> None:
            for k, position in zip(inside, inner, strict=True):
                index[k] = position
            self.emit(Store(storage, self.address(root, tuple(index)), const(0, root.value.dtype)))

        self.over(tuple(root.shape[k] for k in inside), store)

    def _begin_partial(self, root: Root) -> None:
        before, self.current = self.current, root
        register = Register(self.fresh("a"), root.value.dtype)
        self.current = before
        assert root.node is not None
        self.emit(Declare(register, identity(monoid_of(root.node), root.value.dtype)))
        self.accumulators[root] = (register,)

    def _combine(self, root: Root) -> None:
        """Add what the innermost loops have accumulated to the buffer."""
        registers = self.accumulators.pop(root, None)
        if registers is not None:
            self._combine_into(root, root.result_index(tuple(self.values[root])), registers[0])

    def _finish(self, root: Root) -> None:
        if root not in self.accumulators:
            return
        register = self.accumulators.pop(root)[-1]
        index = root.result_index(tuple(self.values[root]))
        final = Register(self.fresh("t"), register.dtype)
        self.emit(Compute(final, "identity", None, (register,)))
        self.depth_of[final.name] = len(self.scopes) - 1
        self._made(root, index, final)
