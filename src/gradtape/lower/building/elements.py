"""Elements as statements: the half of the builder that follows values and emits what computes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count, product
from math import prod
from typing import Any, Final

from gradtape.errors import InternalError
from gradtape.ir.budget import spend
from gradtape.ir.graph import Literal, Node, Value, extract
from gradtape.ir.types import BOOL, INT64, aval
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.registry import ROWS
from gradtape.loops.affine import Position, Var, affine
from gradtape.loops.ir import (
    Buffer,
    Compute,
    Dtype,
    For,
    Index,
    Load,
    Number,
    Register,
    Statement,
    Wrap,
    const,
)
from gradtape.lower.schedule.element_interpreter import Test, Walker, Where
from gradtape.lower.schedule.fusion import shared_levels
from gradtape.lower.schedule.nests import Root, flat, part_of

UNROLLED: Final = 8
"""Elements up to which a copy is written out: a nest costs the compiler 4 ms."""


class Scope:
    """One open loop: where statements go and what is known while it turns."""

    __slots__ = ("known", "statements")

    def __init__(self, statements: list[Statement]) -> None:
        self.statements = statements
        self.known: dict[tuple[Value, Where], Number] = {}


class ElementBuilder(Walker[Number]):
    """Emits the statements that compute elements, each as far out of the loops as what it needs allows."""

    def __init__(self, roots: dict[Value, Root], buffers: dict[Value, Buffer]) -> None:
        super().__init__(roots)
        self.buffers = buffers
        self.body: list[Statement] = []
        self.scopes = [Scope(self.body)]
        self.depth_of: dict[str, int] = {}
        self.current: Root | None = None
        self.node: Node | None = None
        self.makers: dict[str, Node] = {}
        self.names = count(1)

    def recall(self, value: Value, index: Where) -> Number | None:
        key = (value, index)
        for scope in reversed(self.scopes):
            found = scope.known.get(key)
            if found is not None:
                return found
        return None

    def remember(self, value: Value, index: Where, element: Number) -> None:
        spend(1)
        self.scopes[self._depth(element)].known[value, index] = element

    def number(self, value: Literal) -> Number:
        assert value.data is not None
        return const(value.data, value.dtype)

    def zero(self, value: Value) -> Number:
        return const(0, value.dtype)

    def read_root(self, root: Root, index: Where) -> Number:
        if root.storage is None:
            raise InternalError(
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
        self.node = node
        result = self._computed(node.op.name, node.op.body, tuple(args), node.out.dtype)
        self.node = None
        return result

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

    def place_of(self, value: Value) -> tuple[Buffer, int]:
        """Return the buffer in which a value stands as a whole, alone or among others, and where it begins."""
        base, start = part_of(value)
        return self.memory_of(base), start

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
        name = f"{prefix}{next(self.names)}"
        maker = self.current.node if self.node is None and self.current is not None else self.node
        if maker is not None:
            self.makers[name] = maker
        return name

    def over(self, shape: tuple[int, ...], store: Callable[[Where], None], before: Where = ()) -> None:
        """Emit loops over a shape around what `store` emits at each position."""
        if 0 in shape:
            return
        if not shape:
            store(before)
            return
        if prod(shape) <= UNROLLED:
            for index in product(*map(range, shape)):
                store((*before, *index))
            return
        if shape[0] == 1:
            self.over(shape[1:], store, (*before, 0))
            return
        var = Var(self.fresh("i_"), 0, shape[0] - 1)
        self.depth_of[var.name] = len(self.scopes)
        statement = For(var)
        self.scopes.append(Scope(statement.body))
        self.over(shape[1:], store, (*before, affine(var)))
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


def _scalar(number: Number) -> Any:
    return aval((), number.dtype)
