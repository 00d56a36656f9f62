"""Elements as statements: the element interpreter that emits what computes a number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, Final

from gradtape.errors import InternalError
from gradtape.ir.budget import spend
from gradtape.ir.graph import Graph, Literal, Node, Value, extract
from gradtape.ir.types import BOOL, INT64, aval
from gradtape.ir.varying import is_varying, lengths_vary
from gradtape.kinds.elementwise import Elementwise
from gradtape.loops.affine import Position, Var, affine, flat
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
    Store,
    Wrap,
    const,
)
from gradtape.lower.building.context import BuildContext, LoweredBody
from gradtape.lower.building.folding import NO_PARAMS, folded, padding
from gradtape.lower.schedule.element_interpreter import ElementInterpreter, Test, Where
from gradtape.lower.schedule.fusion import shared_levels
from gradtape.lower.schedule.nests import LoopNest
from gradtape.lower.schedule.operands import part_of
from gradtape.lower.schedule.order import Schedule
from gradtape.ops.core.elementwise.logic import bitwise_and, greater_equal, less
from gradtape.ops.core.elementwise.select import where

UNROLLED: Final = 8
"""Elements up to which a copy is written out: a nest costs the compiler 4 ms."""


class LoopScope:
    """An open loop: where statements go, and the numbers that are known in each of its iterations."""

    __slots__ = ("known", "statements")

    def __init__(self, statements: list[Statement]) -> None:
        self.statements = statements
        self.known: dict[tuple[Value, Where], Number] = {}


class ElementBuilder(ElementInterpreter[Number]):
    """Emits the statements that compute elements, each as far out of the loops as what it needs allows.

    Parameters
    ----------
    plan : Schedule
        The nests, and where their values are.
    context : BuildContext
        What the builder shares with those of other bodies.

    Attributes
    ----------
    body : list of Statement
        What was emitted.
    scratch : list of Buffer
        The memory that it needs besides that of the schedule.
    notes : list of str
        Why loops have their form.
    scopes : list of LoopScope
        The program and the loops that are open, outermost first.
    depth_of : dict of str to int
        For registers and loop variables, the scope in which they are defined.
    current : LoopNest or None
        The nest that is being emitted.
    """

    def __init__(self, plan: Schedule, context: BuildContext) -> None:
        super().__init__(plan.by_value)
        self.plan = plan
        self.context = context
        self.body: list[Statement] = []
        self.scratch: list[Buffer] = []
        self.notes: list[str] = []
        self.scopes = [LoopScope(self.body)]
        self.depth_of: dict[str, int] = {}
        self.current: LoopNest | None = None
        self._node: Node | None = None

    # The element interpreter

    def lookup(self, value: Value, index: Where) -> Number | None:
        key = (value, index)
        for scope in reversed(self.scopes):
            found = scope.known.get(key)
            if found is not None:
                return found
        return None

    def memoise(self, value: Value, index: Where, element: Number) -> None:
        spend(1)
        self.scopes[self._depth(element)].known[value, index] = element

    def number(self, value: Literal) -> Number:
        assert value.data is not None
        return const(value.data, value.dtype)

    def zero(self, value: Value) -> Number:
        return padding(value.dtype)

    def read_nest(self, nest: LoopNest, index: Where) -> Number:
        buffer = self.plan.storage[nest].buffer
        if buffer is None:
            raise InternalError(
                f"{nest.value!r} is read at {index} where it is not at hand",
                where=nest.value.node and nest.value.node.site,
            )
        assert self.current is not None
        placements = self.plan.placements
        shared = shared_levels(placements[nest], placements[self.current])
        return self._load(buffer, self.address(nest, index), shared)

    def read_input(self, value: Value, index: Where) -> Number:
        return self._load(self.plan.sources[value], flat(index, value.shape), 0)

    def _load(self, buffer: Buffer, address: Position, complete: int) -> Number:
        depth = max(self._position_depth(address), min(complete, len(self.scopes) - 1))
        target = Register(self.fresh("t"), buffer.dtype)
        self.depth_of[target.name] = depth
        self.scopes[depth].statements.append(Load(target, buffer, address))
        return target

    def apply(self, node: Node, args: list[Number], index: Where) -> Number:
        assert isinstance(node.op, Elementwise)
        self._node = node
        result = self.function(node.op, tuple(args), node.out.dtype, params=node.params)
        self._node = None
        return result

    def function(
        self,
        row: Elementwise,
        args: tuple[Number, ...],
        dtype: Dtype,
        *,
        params: Mapping[str, Any] = NO_PARAMS,
        here: bool = False,
    ) -> Number:
        """Apply a row to numbers; `here` keeps it in the innermost loop, for what accumulators make."""
        known = folded(row, args, dtype, params)
        name = "identity" if row.body is None else row.name
        return self.computed(name, row.body, args, dtype, here) if known is None else known

    def computed(
        self,
        name: str,
        body: Any,
        args: tuple[Number, ...],
        dtype: Dtype,
        here: bool = False,
        reassociate: bool = False,
    ) -> Number:
        """Emit an instruction where its arguments are known; `here` keeps it in the innermost loop."""
        depth = len(self.scopes) - 1 if here else max([self._depth(arg) for arg in args], default=0)
        target = Register(self.fresh("t"), dtype)
        self.depth_of[target.name] = depth
        self.scopes[depth].statements.append(Compute(target, name, body, args, reassociate))
        return target

    def wrapped(self, element: Number, extent: int, is_checked: bool) -> Position:
        depth = self._depth(element)
        target = Register(self.fresh("k"), INT64)
        self.depth_of[target.name] = depth
        self.scopes[depth].statements.append(Wrap(target, element, extent, is_checked))
        return affine(Var(target.name, 0, max(extent - 1, 1)))

    def select(self, tests: Sequence[Test], element: Number, value: Value) -> Number:
        return self.function(where, (self._holds(tests), element, self.zero(value)), value.dtype)

    def _holds(self, tests: Sequence[Test]) -> Number:
        holds: Number | None = None
        for expression, low, high in tests:
            for compare, bound in ((greater_equal, low), (less, high)):
                test = self.function(compare, (Index(expression), const(bound, INT64)), BOOL)
                holds = test if holds is None else self.function(bitwise_and, (holds, test), BOOL)
        assert holds is not None
        return holds

    def gathered(self, node: Node, element: Number, index: Where) -> Number:
        return element

    def choose(self, test: Test, element: Number, other: Number, value: Value) -> Number:
        return self.function(where, (self._holds([test]), element, other), value.dtype)

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
            if inner.op.is_formula:
                from_value[inner.out] = self.formula(inner.op.body, operands, inner)
            else:
                from_value[inner.out] = self.function(
                    inner.op, tuple(operands), inner.out.dtype, params=inner.params, here=True
                )
        return self.number(result) if isinstance(result, Literal) else from_value[result]

    # Places

    def memory_of(self, value: Value) -> Buffer:
        """Return the buffer that holds the whole of a value."""
        nest = self.nests.get(value)
        if nest is None:
            return self.plan.sources[value]
        buffer = self.plan.storage[nest].buffer
        assert buffer is not None
        return buffer

    def place_of(self, value: Value) -> tuple[Buffer, int]:
        """Return the buffer that holds the whole of a value, alone or among others, and where it begins."""
        base, start = part_of(value, self.nests)
        return self.memory_of(base), start

    def address(self, nest: LoopNest, index: Where) -> Position:
        """Return the position of an element of a nest's value in its memory."""
        axes = self.plan.storage[nest].axes
        return flat(tuple([index[axis] for axis in axes]), tuple([nest.shape[axis] for axis in axes]))

    def new_scratch(self, dtype: Dtype, size: int) -> Buffer:
        """Return memory that the schedule does not know of."""
        buffer = Buffer(self.fresh("m"), dtype, size, "scratch")
        self.scratch.append(buffer)
        return buffer

    # Statements

    def emit(self, statement: Statement) -> None:
        """Append a statement to the innermost loop."""
        self.scopes[-1].statements.append(statement)

    def emit_result(self, nest: LoopNest, index: Where, element: Number) -> None:
        """Store an element that a nest has made, where it has memory, and take note of it."""
        buffer = self.plan.storage[nest].buffer
        if buffer is not None:
            self.emit(Store(buffer, self.address(nest, index), element))
        if self.nests.get(nest.value) is nest:
            self.scopes[-1].known[nest.value, index] = element

    def emit_final(self, nest: LoopNest, register: Register) -> None:
        """Let the program read the last number of an accumulator, which is the value of a nest."""
        final = Register(self.fresh("t"), register.dtype)
        self.emit(Compute(final, "identity", None, (register,)))
        self.emit_number(nest, final)

    def emit_number(self, nest: LoopNest, number: Register) -> None:
        """Let the program read a number that is the value of a nest."""
        self.depth_of[number.name] = 0
        self.emit_result(nest, (), number)

    def lower_body(self, graph: Graph, carried: Mapping[int, int]) -> LoweredBody:
        """Lower the body of a loop or a branch.

        Parameters
        ----------
        graph : Graph
            The body.
        carried : mapping of int to int
            The outputs that become inputs of the next iteration, by these inputs.
        """
        lowered = self.context.lower_body(graph, carried, f"{self.fresh('b')}_", self.context.of_body())
        self.scratch.extend(lowered.scratch)
        self.notes.extend(f"in the body: {note}" for note in lowered.notes)
        return lowered

    def fresh(self, prefix: str) -> str:
        """Return a name that is not in use."""
        name = f"{prefix}{next(self.context.names)}"
        maker = self.current.node if self._node is None and self.current is not None else self._node
        if maker is not None:
            self.context.makers[name] = maker
        return name

    def over(self, shape: tuple[int, ...], store: Callable[[Where], None], before: Where = ()) -> None:
        """Emit loops over a shape around what `store` emits at each position."""
        if 0 in shape:
            return
        if not shape:
            store(before)
            return
        if prod(shape) <= (1 if lengths_vary() or any(map(is_varying, shape)) else UNROLLED):
            for index in product(*map(range, shape)):
                store((*before, *index))
            return
        if shape[0] == 1:
            self.over(shape[1:], store, (*before, 0))
            return
        var = Var(self.fresh("i_"), 0, shape[0] - 1)
        self.depth_of[var.name] = len(self.scopes)
        statement = For(var)
        self.scopes.append(LoopScope(statement.body))
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
