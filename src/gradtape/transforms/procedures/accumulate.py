"""Adjoints that a store or an assignment has just taken, and left at zero: what is added to them next is written at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gradtape.ir.graph import Literal, Value, extract, literal
from gradtape.procedures.builder import ProcedureBuilder
from gradtape.procedures.ir import Apply, Assign, Load, Memory, Pointer, Read, Statement, Store, Variable


def empty_sum(variable: Variable) -> Literal:
    """Return the number from which an adjoint is summed in a variable: -0.0, so that the first addition changes nothing, not even signs."""
    return literal(-0.0, variable.type.dtype)


class _Taken(NamedTuple):
    """What a store has taken: the adjoint of an element, and the statement that leaves it at zero."""

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
