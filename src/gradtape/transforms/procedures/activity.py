"""Activity analysis of procedures: the memories and variables that stand on differentiable paths, whatever the order of statements.

With it the analysis of finite values, of those that zeros may be multiplied with.
"""

from __future__ import annotations

import cmath
from collections.abc import Collection, Iterator, Sequence
from typing import TypeAlias

from gradtape.ir.body import Body
from gradtape.ir.graph import Node, Value, extract, number_of
from gradtape.ir.types import is_inexact
from gradtape.procedures.ir import (
    Apply,
    Assign,
    Content,
    Load,
    Memory,
    Pointer,
    Procedure,
    Read,
    Span,
    Statement,
    Store,
    Variable,
)
from gradtape.procedures.traversal import roots
from gradtape.statements import walk
from gradtape.transforms.activity import active_values, differentiable_inputs

Location: TypeAlias = Memory | Variable
"""What holds numbers."""


def location_of(content: Content) -> Content | Memory:
    """Return the memory of a pointer; a value as it is."""
    return content.memory if isinstance(content, Pointer) else content


class Activity:
    """The locations and values of a procedure that depend on its active parameters, and, if results are seeded, on which these depend.

    Parameters
    ----------
    procedure : Procedure
    active : sequence of bool
        By parameter: whether it is a source of the derivative.
    seeded : sequence of bool, optional
        By result: whether it is a target; without this, all inexact results are.

    Attributes
    ----------
    locations : set of Memory or Variable
        Those that have a shadow: a tangent or a cotangent. Variables that hold pointers are not among them; their memory is.
    values : set of Value
        Active values, leaves and results of nodes.
    """

    def __init__(
        self, procedure: Procedure, active: Sequence[bool], seeded: Sequence[bool] | None = None
    ) -> None:
        self._statements = list(walk(procedure.body))
        self._nodes, _ = extract(roots(procedure), stop=lambda value: not value.is_made)
        sources = {
            location_of(content)
            for content, flag in zip(procedure.parameters, active, strict=True)
            if flag and is_inexact(content.dtype)
        }
        self.locations, self.values = self._varied(sources)
        if seeded is not None:
            targets = {
                location_of(content)
                for content, flag in zip(procedure.results, seeded, strict=True)
                if flag and is_inexact(content.dtype)
            }
            locations, values = self._useful(targets)
            self.locations &= locations
            self.values &= values

    def _varied(self, sources: Collection[Content | Memory]) -> tuple[set[Location], set[Value]]:
        """Return what depends on the sources, by a fixed point over the locations."""
        locations: set[Location] = {x for x in sources if isinstance(x, Memory)}
        parameters = {x for x in sources if isinstance(x, Value)}
        while True:
            leaves = {leaf for leaf, location in loads(self._statements) if location in locations}
            values = active_values(self._nodes, parameters | leaves)
            varying = {location for value, location in stores(self._statements) if value in values}
            for apply in self._applies():
                input_varies = [
                    (operand.pointer.memory in locations) if isinstance(operand, Span) else operand in values
                    for operand in apply.inputs
                ]
                depends = outputs_that_vary(apply.graph, input_varies)
                varying |= {
                    span.pointer.memory for span, flag in zip(apply.outputs, depends, strict=True) if flag
                }
            if varying <= locations:
                return locations, values
            locations |= varying

    def _useful(self, targets: Collection[Content | Memory]) -> tuple[set[Location], set[Value]]:
        """Return on what the targets depend."""
        locations: set[Location] = {x for x in targets if isinstance(x, Memory)}
        results = {x for x in targets if isinstance(x, Value)}
        while True:
            stored = {value for value, location in stores(self._statements) if location in locations}
            useful: set[Location] = set()
            for apply in self._applies():
                output_matters = [span.pointer.memory in locations for span in apply.outputs]
                for operand, flag in zip(
                    apply.inputs, inputs_that_matter(apply.graph, output_matters), strict=True
                ):
                    if flag and isinstance(operand, Span):
                        useful.add(operand.pointer.memory)
                    elif flag and isinstance(operand, Value):
                        stored.add(operand)
            values = useful_values(self._nodes, results | stored)
            useful |= {location for leaf, location in loads(self._statements) if leaf in values}
            if useful <= locations:
                return locations, values
            locations |= useful

    def _applies(self) -> Iterator[Apply]:
        return (statement for statement in self._statements if isinstance(statement, Apply))


class FiniteValues:
    """The values that are finite if the parameters are, unless numbers become too large.

    A variable or a memory may hold infinite numbers if a value that may be infinite is stored in it anywhere.
    """

    def __init__(self, procedure: Procedure) -> None:
        self._finite: dict[Value, bool] = {}
        statements = list(walk(procedure.body))
        nodes, _ = extract(roots(procedure), stop=lambda value: not value.is_made)
        infinite: set[Location] = set()
        while True:
            self._finite = {leaf: location not in infinite for leaf, location in loads(statements)}
            self._enter(nodes)
            with_infinite_values = {
                location for value, location in stores(statements) if not self.is_finite(value)
            }
            for apply in statements:
                if isinstance(apply, Apply) and not self._has_finite_results(apply, infinite):
                    with_infinite_values |= {span.pointer.memory for span in apply.outputs}
            if with_infinite_values <= infinite:
                return
            infinite |= with_infinite_values

    def is_finite(self, value: Value) -> bool:
        """Return whether a value is finite, of the procedure or computed from its values."""
        finite = self._finite
        if value.is_made and value not in finite:
            self._enter(extract([value], stop=lambda x: not x.is_made or x in finite)[0])
        return self._is_known_as_finite(value)

    def _is_known_as_finite(self, value: Value) -> bool:
        number = number_of(value)
        return self._finite.get(value, True) if number is None else cmath.isfinite(number)

    def _has_finite_results(self, apply: Apply, infinite: Collection[Location]) -> bool:
        return all(node.op.is_finite(node) for node in apply.graph.nodes) and all(
            x.pointer.memory not in infinite if isinstance(x, Span) else self.is_finite(x)
            for x in apply.inputs
        )

    def _enter(self, nodes: list[Node]) -> None:
        """Enter the outputs of nodes in topological order."""
        finite = self._finite
        for node in nodes:
            is_finite = node.op.is_finite(node) and all(map(self._is_known_as_finite, node.inputs))
            for out in node.outs:
                finite[out] = is_finite or not is_inexact(out.dtype)


def outputs_that_vary(graph: Body, active: Sequence[bool]) -> list[bool]:
    """Return which outputs of a graph depend on its active inputs."""
    values = active_values(graph.nodes, {x for x, flag in zip(graph.inputs, active, strict=True) if flag})
    return [output in values and is_inexact(output.dtype) for output in graph.outputs]


def inputs_that_matter(graph: Body, output_matters: Sequence[bool]) -> list[bool]:
    """Return on which inputs of a graph the wanted outputs depend by a differentiable path."""
    values = useful_values(
        graph.nodes, {x for x, flag in zip(graph.outputs, output_matters, strict=True) if flag}
    )
    return [x in values and is_inexact(x.dtype) for x in graph.inputs]


def useful_values(nodes: Sequence[Node], targets: Collection[Value]) -> set[Value]:
    """Return the values with a differentiable path to a target."""
    useful = set(targets)
    for node in reversed(nodes):
        if any(out in useful and is_inexact(out.dtype) for out in node.outs):
            useful.update(differentiable_inputs(node))
    return useful


def loads(statements: Sequence[Statement]) -> Iterator[tuple[Value, Location]]:
    """Yield the inexact values that are loaded or read, and from where."""
    for statement in statements:
        if isinstance(statement, Load) and is_inexact(statement.out.dtype):
            yield statement.out, statement.pointer.memory
        elif (
            isinstance(statement, Read)
            and isinstance(statement.out, Value)
            and is_inexact(statement.out.dtype)
        ):
            yield statement.out, statement.variable


def stores(statements: Sequence[Statement]) -> Iterator[tuple[Value, Location]]:
    """Yield the inexact values that are stored or assigned, and where."""
    for statement in statements:
        if isinstance(statement, Store) and is_inexact(statement.value.dtype):
            yield statement.value, statement.pointer.memory
        elif (
            isinstance(statement, Assign)
            and isinstance(statement.value, Value)
            and is_inexact(statement.value.dtype)
        ):
            yield statement.value, statement.variable
