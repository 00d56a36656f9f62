"""From placed roots to loops: the second walk, which emits what the first one explored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ..errors import LoweringError
from ..ir.graph import Literal, Node, Value, extract
from ..ir.types import BOOL, INT64, aval
from ..kinds.cumulative import Cumulative
from ..kinds.elementwise import Elementwise, Instruction
from ..kinds.join import starts
from ..kinds.reduction import Reduction
from ..kinds.registry import ROWS
from ..loops.affine import Position, Var, affine, interval
from ..loops.ir import (
    Assign,
    Buffer,
    Compute,
    Const,
    Declare,
    Dtype,
    For,
    Guard,
    Index,
    Load,
    Number,
    Register,
    Statement,
    Store,
    Wrap,
    const,
)
from .calls import emit_call
from .placement import Block, Loop, shared_levels
from .roots import Root
from .walk import Test, Walker, Where

COMBINE: Final = {
    "add": ("add", Instruction(real="fadd", signed="add", unsigned="add", boolean="or")),
    "multiply": ("multiply", Instruction(real="fmul", signed="mul", unsigned="mul", boolean="and")),
    "maximum": ("maximum", Instruction("llvm.maximum", "llvm.smax", "llvm.umax", "or")),
    "minimum": ("minimum", Instruction("llvm.minimum", "llvm.smin", "llvm.umin", "and")),
    "or": ("logical_or", Instruction(boolean="or")),
    "and": ("logical_and", Instruction(boolean="and")),
}
"""By monoid: the row and the instruction that combine; extrema hand NaN on, as NumPy's do."""


class Scope:
    """One open loop: where statements go and what is known while it turns."""

    __slots__ = ("known", "statements")

    def __init__(self, statements: list[Statement]) -> None:
        self.statements = statements
        self.known: dict[tuple[Value, Where], Number] = {}


class Builder(Walker[Number]):
    """Emits the statements of a placed program."""

    def __init__(self, roots: dict[Value, Root], buffers: dict[Value, Buffer]) -> None:
        super().__init__(roots)
        self.buffers = buffers
        self.body: list[Statement] = []
        self.scopes = [Scope(self.body)]
        self.depth_of: dict[str, int] = {}
        self.values: dict[Root, list[Position]] = {}
        self.accumulators: dict[Root, tuple[Register, ...]] = {}
        self.current: Root | None = None
        self.count = 0
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
            "sort": self._call,
        }

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
                self._begin(root, level)
            if root.kind == "scatter" and level == 0:
                self._copy_base(root)
            if root.carries(level):
                register = Register(self.fresh("a"), root.value.dtype)
                self.emit(Declare(register, const(0, root.value.dtype)))
                self.accumulators[root] = (register,)
        ends = sorted({0, loop.extent, *[end for end in loop.breaks if 0 < end < loop.extent]})
        for low, high in zip(ends, ends[1:], strict=False):
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
            if root.trailing_reduced() == level and root.first_reduced() < level and low == 0:
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
        name, body = COMBINE[monoid(root)]
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

            self._over(piece.shape, store)

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
        self._over(
            base.shape,
            lambda index: self.emit(Store(storage, flat(index, base.shape), self.element(base, index))),
        )
        self.current = before

    def _call(self, root: Root, values: Where) -> None:
        emit_call(self, root)

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
        elif root.kind in ("reduce", "contract"):
            start = identity(monoid(root), root.value.dtype)
            if (
                start.dtype.kind == "f"
                and monoid(root) == "add"
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

                self._over(tuple(axis.extent for axis in kept), store)

    def _begin_partial(self, root: Root) -> None:
        register = Register(self.fresh("a"), root.value.dtype)
        self.emit(Declare(register, identity(monoid(root), root.value.dtype)))
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

    # The walk

    def recall(self, value: Value, index: Where) -> Number | None:
        key = (value, index)
        for scope in reversed(self.scopes):
            found = scope.known.get(key)
            if found is not None:
                return found
        return None

    def remember(self, value: Value, index: Where, element: Number) -> None:
        self.scopes[self._depth(element)].known[value, index] = element

    def number(self, value: Literal) -> Number:
        assert value.data is not None
        return const(value.data, value.dtype)

    def zero(self, value: Value) -> Number:
        return const(0, value.dtype)

    def read_root(self, root: Root, index: Where) -> Number:
        if root.storage is None:
            raise LoweringError(
                f"{root.value!r} is read at {index} where it is not at hand",
                where=root.value.node and root.value.node.site,
            )
        assert self.current is not None
        return self._load(root.storage, self.address(root, index), shared_levels(root, self.current))

    def read_source(self, value: Value, index: Where) -> Number:
        return self._load(self.buffers[value], flat(index, value.shape), 0)

    def _load(self, buffer: Buffer, address: Position, complete: int) -> Number:
        depth = max(self._position_depth(address), min(complete, len(self.scopes) - 1))
        target = Register(self.fresh("t"), buffer.dtype)
        self.depth_of[target.name] = depth
        self.scopes[depth].statements.append(Load(target, buffer, address))
        return target

    def apply(self, node: Node, args: list[Number], index: Where) -> Number:
        assert isinstance(node.op, Elementwise)
        return self._computed(node.op.name, node.op.body, tuple(args), node.out.dtype)

    def function(self, name: str, args: tuple[Number, ...], dtype: Dtype, *, here: bool = False) -> Number:
        """Apply a row to numbers; `here` keeps it in the innermost loop, for what accumulators make."""
        op = ROWS[name]
        assert isinstance(op, Elementwise)
        return self._computed(name, op.body, args, dtype, here)

    def _computed(
        self,
        name: str,
        body: Any,
        args: tuple[Number, ...],
        dtype: Dtype,
        here: bool = False,
        reassociate: bool = False,
    ) -> Number:
        depth = len(self.scopes) - 1 if here else max([self._depth(arg) for arg in args], default=0)
        target = Register(self.fresh("t"), dtype)
        self.depth_of[target.name] = depth
        self.scopes[depth].statements.append(Compute(target, name, body, args, reassociate))
        return target

    def wrapped(self, element: Number, extent: int) -> Position:
        depth = self._depth(element)
        target = Register(self.fresh("k"), INT64)
        self.depth_of[target.name] = depth
        self.scopes[depth].statements.append(Wrap(target, element, extent))
        return affine(Var(target.name, 0, max(extent - 1, 1)))

    def select(self, tests: Sequence[Test], element: Number, value: Value) -> Number:
        return self.function("where", (self._holds(tests), element, self.zero(value)), value.dtype)

    def _holds(self, tests: Sequence[Test]) -> Number:
        holds: Number | None = None
        for expression, low, high in tests:
            for name, bound in (("greater_equal", low), ("less", high)):
                test = self.function(name, (Index(expression), const(bound, INT64)), BOOL)
                holds = test if holds is None else self.function("bitwise_and", (holds, test), BOOL)
        assert holds is not None
        return holds

    def moved(self, node: Node, element: Number, index: Where) -> Number:
        return element

    def choose(self, test: Test, element: Number, other: Number, value: Value) -> Number:
        return self.function("where", (self._holds([test]), element, other), value.dtype)

    def splits(self, test: Test) -> bool:
        return False

    def formula(self, rule: Any, args: Sequence[Number], node: Node) -> Number:
        """Apply a formula over elementwise rows to numbers."""
        from_value: dict[Value, Number] = {Value(_scalar(arg)): arg for arg in args}
        result = rule(*from_value)
        nodes, _ = extract([result], tuple(from_value))
        for inner in nodes:
            assert isinstance(inner.op, Elementwise)
            operands = [self.number(v) if isinstance(v, Literal) else from_value[v] for v in inner.inputs]
            if callable(inner.op.body):
                from_value[inner.out] = self.formula(inner.op.body, operands, inner)
            else:
                from_value[inner.out] = self._computed(
                    inner.op.name, inner.op.body, tuple(operands), inner.out.dtype, here=True
                )
        return self.number(result) if isinstance(result, Literal) else from_value[result]

    # Places

    def memory_of(self, value: Value) -> Buffer:
        """Return the buffer in which the whole of a value stands."""
        root = self.roots.get(value)
        if root is None:
            return self.buffers[value]
        assert root.storage is not None
        return root.storage

    def address(self, root: Root, index: Where) -> Position:
        """Return where an element of a root stands in its storage."""
        return flat(
            tuple([index[axis] for axis in root.stored_axes]),
            tuple([root.shape[axis] for axis in root.stored_axes]),
        )

    def emit(self, statement: Statement) -> None:
        """Append a statement to the innermost loop."""
        self.scopes[-1].statements.append(statement)

    def fresh(self, prefix: str) -> str:
        """Return a name that is not in use."""
        self.count += 1
        return f"{prefix}{self.count}"

    def _over(self, shape: tuple[int, ...], store: Callable[[Where], None], before: Where = ()) -> None:
        """Emit loops over a shape around what `store` emits at each position."""
        if 0 in shape:
            return
        if not shape:
            store(before)
            return
        if shape[0] == 1:
            self._over(shape[1:], store, (*before, 0))
            return
        var = Var(self.fresh("i_"), 0, shape[0] - 1)
        self.depth_of[var.name] = len(self.scopes)
        statement = For(var)
        self.scopes.append(Scope(statement.body))
        self._over(shape[1:], store, (*before, affine(var)))
        self.scopes.pop()
        self.emit(statement)

    def _depth(self, number: Number) -> int:
        if isinstance(number, Register):
            return self.depth_of.get(number.name, len(self.scopes) - 1)
        return self._position_depth(number.position) if isinstance(number, Index) else 0

    def _position_depth(self, position: Position) -> int:
        if isinstance(position, int):
            return 0
        return max([self.depth_of[var.name] for var in position.variables()], default=0)


def flat(index: Where, shape: tuple[int, ...]) -> Position:
    """Return the position in a flat buffer of an index into a shape."""
    address: Position = 0
    for position, extent in zip(index, shape, strict=True):
        address = address * extent + position
    return address


def monoid(root: Root) -> str:
    """Return the name of the monoid of a reduction or contraction."""
    assert root.node is not None
    return (
        root.node.op.monoid
        if isinstance(root.node.op, Reduction)
        else "add"
        if root.value.dtype.kind != "b"
        else "or"
    )


def identity(name: str, dtype: Dtype) -> Const:
    """Return what leaves every number as it is when combined with it."""
    if name in ("add", "or"):
        return const(-0.0 if dtype.kind == "f" else 0, dtype)
    if name in ("multiply", "and"):
        return const(1, dtype)
    if dtype.kind == "f":
        return const(-np.inf if name == "maximum" else np.inf, dtype)
    if dtype.kind == "b":
        return const(name == "minimum", dtype)
    limits = np.iinfo(dtype)
    return const(limits.min if name == "maximum" else limits.max, dtype)


def _scalar(number: Number) -> Any:
    return aval((), number.dtype)
