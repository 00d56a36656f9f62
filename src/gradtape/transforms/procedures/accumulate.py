"""Accumulation of adjoints: what is added after a store has left zero is written at once, and outer products are summed many at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from gradtape.ir.body import Body
from gradtape.ir.graph import Literal, Value, extract, literal
from gradtape.ir.types import INT64, aval
from gradtape.procedures.builder import ProcedureBuilder
from gradtape.procedures.ir import (
    Apply,
    Assign,
    Load,
    Memory,
    Pointer,
    Read,
    Span,
    Statement,
    Store,
    Variable,
)
from gradtape.records import record

MOST_DEFERRED: Final = 64
"""Products whose factors are kept, to be summed as one product of matrices."""

SOME_DEFERRED: Final = 16
"""As many where their number is not known: the last sum takes as long for one as for all."""

LEAST_SUM: Final = 64
"""Elements of a sum from which it is worth it."""

LEAST_DEFERRED: Final = 4
"""Fewer are added one by one."""


def empty_sum(variable: Variable) -> Literal:
    """Return the number from which an adjoint is summed in a variable: -0.0, so that the first addition changes nothing, not even signs."""
    return literal(-0.0, variable.type.dtype)


class _Taken(NamedTuple):
    """The result of reversing a store: the adjoint of an element, and the statement that leaves it at zero."""

    pointer: Pointer
    key: object
    part: Value
    zero: Statement
    block: list[Statement]
    is_alone: bool


class Accumulator:
    """The adjoints that are known to be zero at a place in the reverse of a block.

    An accumulation ``p[i] = p[i] + x`` takes the adjoint of ``p[i]`` and adds it again: nothing has to be done, whatever is added to other
    elements in between, since sums may be reordered.
    """

    def __init__(self) -> None:
        self._elements: dict[Memory, _Taken] = {}
        self._variables: dict[Variable, tuple[Value, Statement, list[Statement]]] = {}

    def take(self, build: ProcedureBuilder, shadow: Pointer, index: Value) -> Value:
        """Append what takes the adjoint of an element; return it."""
        part = build.load(shadow, index)
        zero = Store(shadow, index, literal(0.0, shadow.dtype))
        build.append(zero)
        self._elements[shadow.memory] = _Taken(shadow, structure(index), part, zero, build.current, True)
        return part

    def add(self, build: ProcedureBuilder, shadow: Pointer, index: Value, part: Value) -> None:
        """Append what adds to the adjoint of an element."""
        taken = self._elements.get(shadow.memory)
        if taken is not None:
            if taken.pointer is shadow and taken.key == structure(index):
                del self._elements[shadow.memory]
                if part is taken.part:
                    _remove(taken.zero, taken.block)
                    return
                if taken.is_alone:
                    _remove(taken.zero, taken.block)
                    build.store(shadow, index, part)
                    return
            else:
                self._elements[shadow.memory] = taken._replace(is_alone=False)
        build.store(shadow, index, build.load(shadow, index) + part)

    def take_from_variable(self, build: ProcedureBuilder, variable: Variable) -> Value:
        """Append what takes the adjoint of a variable; return it."""
        part: Value = build.read(variable)
        build.assign(variable, empty_sum(variable))
        self._variables[variable] = part, build.current[-1], build.current
        return part

    def add_to_variable(self, build: ProcedureBuilder, variable: Variable, part: Value) -> None:
        """Append what adds to the adjoint of a variable."""
        taken = self._variables.pop(variable, None)
        if taken is not None:
            held, zero, block = taken
            if held is part:
                _remove(zero, block)
            else:
                build.assign(variable, part)
        else:
            build.assign(variable, build.read(variable) + part)

    def forget(self, steps: Iterable[Statement]) -> None:
        """Forget what statements of inner blocks read or write."""
        for step in steps:
            if isinstance(step, Load | Store):
                self._elements.pop(step.pointer.memory, None)
            elif isinstance(step, Read | Assign):
                self._variables.pop(step.variable, None)
            elif isinstance(step, Apply):
                self._elements.clear()


def _remove(zero: Statement, block: list[Statement]) -> None:
    """Let the adjoint that was taken stay where it is."""
    for position, statement in enumerate(block):
        if statement is zero:
            del block[position]
            return
    raise AssertionError("the statement is in its block")


def structure(value: Value) -> object:
    """Return what equal expressions have in common."""
    keys: dict[Value, object] = {}
    nodes, _ = extract([value], stop=lambda x: not x.is_made)

    def key(x: Value) -> object:
        if isinstance(x, Literal) and x.data is not None:
            return (x.dtype.str, x.data.item())
        return keys.get(x, x)

    for node in nodes:
        made = (node.op, tuple([key(x) for x in node.inputs]))
        for out in node.outs:
            keys[out] = (made, out.index) if not node.params else out
    return key(value)


@record
class DeferredSum:
    """A sum of products over the iterations of a loop, such as that of outer products: a product of the matrices of their factors.

    It takes less time than the products: the sum is read and written once for many of them.

    Attributes
    ----------
    product : Body
        Of the stacked factors, along whose leading axis it sums.
    stacks : list of Pointer
        The factors that wait.
    out : Pointer
        An array for the result.
    total : Span
        To which it is added.
    waiting : Variable
        How many wait.
    """

    product: Body
    stacks: list[Pointer]
    out: Pointer
    total: Span
    waiting: Variable

    def append(self, build: ProcedureBuilder, factors: Iterable[Span]) -> None:
        """Append what keeps the factors of a product, and adds all that wait once there are enough."""
        number = build.read(self.waiting)
        for stack, factor in zip(self.stacks, factors, strict=True):
            size = factor.aval.size
            with build.loop(size) as i:
                build.store(stack, number * size + i, build.load(factor.pointer, factor.offset + i))
        build.assign(self.waiting, number + 1)
        with build.branch(number + 1 >= self._most):
            self._add(build)

    def finish(self, build: ProcedureBuilder) -> None:
        """Append what adds the products that still wait."""
        number = build.read(self.waiting)
        with build.branch(number > 0):
            for stack, stacked in zip(self.stacks, self.product.inputs, strict=True):
                size = stacked.size // self._most
                with build.loop((self._most - number) * size) as i:
                    build.store(stack, number * size + i, 0.0)
            self._add(build)

    @property
    def _most(self) -> int:
        return self.product.inputs[0].shape[0]

    def _add(self, build: ProcedureBuilder) -> None:
        spans = [
            Span(stack, literal(0, INT64), aval(stacked.shape, stacked.dtype))
            for stack, stacked in zip(self.stacks, self.product.inputs, strict=True)
        ]
        result = Span(self.out, literal(0, INT64), self.total.aval)
        build.append(Apply(self.product, tuple(spans), (result,)))
        total = self.total
        with build.loop(total.aval.size) as i:
            before = build.load(total.pointer, total.offset + i)
            build.store(total.pointer, total.offset + i, before + build.load(self.out, i))
        build.assign(self.waiting, 0)
