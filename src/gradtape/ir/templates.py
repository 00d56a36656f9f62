"""Recipes: what a function appends to the graph, to be appended again to other values of the same types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from gradtape.ir.builder import emit_all, here
from gradtape.ir.graph import Literal, Value, extract, single
from gradtape.ir.op import Op
from gradtape.ir.types import Aval


class Step(NamedTuple):
    """One node.

    Attributes
    ----------
    op : Op
        What it applies.
    pick : callable or None
        Takes the list of all values so far to the tuple of the node's inputs; None if these are the recipe's own.
    params : dict
        Its parameters.
    types : tuple of Aval
        What the op infers for the outputs.
    avals : tuple of Aval
        What the outputs are: they may be weak where the op does not know it.
    """

    op: Op
    pick: Callable[[list[Value]], tuple[Value, ...]] | None
    params: dict[str, Any]
    types: tuple[Aval, ...]
    avals: tuple[Aval, ...]


class Recipe:
    """A piece of the graph without the values that it began with.

    Parameters
    ----------
    literals : sequence of Literal
        The numbers in it.
    steps : sequence of Step
        Its nodes, in topological order.
    places : sequence of int
        Where the results stand among all values: inputs, literals, outputs of the steps.
    """

    __slots__ = ("_literals", "_only", "_places", "_steps")

    def __init__(self, literals: Sequence[Literal], steps: Sequence[Step], places: Sequence[int]) -> None:
        self._literals = tuple(literals)
        self._steps = tuple(steps)
        self._places = tuple(places)
        alone = len(steps) == 1 and steps[0].pick is None and not literals
        self._only = steps[0] if alone else None

    def __call__(self, *inputs: Value) -> Value:
        """Return the only result, computed from these inputs."""
        if self._only is None:
            return self._values(inputs)[self._places[0]]
        op, _, params, types, avals = self._only
        return single(op, inputs, params, here.site, types, avals[0])

    def results(self, inputs: Sequence[Value]) -> list[Value]:
        """Return the results, computed from these inputs."""
        values = self._values(inputs)
        return [values[place] for place in self._places]

    def _values(self, inputs: Sequence[Value]) -> list[Value]:
        values = [*inputs, *self._literals]
        site = here.site
        for op, pick, params, types, avals in self._steps:
            operands = tuple(inputs) if pick is None else pick(values)
            if len(avals) == 1:
                values.append(single(op, operands, params, site, types, avals[0]))
            else:
                values += emit_all(op, operands, **params)
        return values


def stand_in(type_: Aval) -> Value:
    """Return a value of which nothing but the type is known: to ask for its numbers is an AttributeError."""
    value = Value(type_)
    del value.data
    return value


def recipe_of(inputs: Sequence[Value], results: Sequence[Value]) -> Recipe | None:
    """Return how `results` are made of `inputs`; None where anything else has gone into them.

    Parameters
    ----------
    inputs : sequence of Value
        Stand-ins, each another.
    results : sequence of Value
        Computed from them.
    """
    nodes, leaves = extract(results, inputs)
    if leaves:
        return None
    literals = list(
        dict.fromkeys(
            value
            for value in (*[value for node in nodes for value in node.inputs], *results)
            if isinstance(value, Literal) and value not in inputs
        )
    )
    numbers = {value: place for place, value in enumerate((*inputs, *literals))}
    steps: list[Step] = []
    for node in nodes:
        outs = node.outs
        places = [numbers[value] for value in node.inputs]
        direct = not steps and not literals and places == list(range(len(inputs))) and len(outs) == 1
        pick = None if direct else _picker(places)
        types = node.op.infer([value.aval for value in node.inputs], node.params)
        steps.append(Step(node.op, pick, node.params, types, tuple([out.aval for out in outs])))
        for out in outs:
            numbers[out] = len(numbers)
    return Recipe(literals, steps, [numbers[value] for value in results])


def _picker(places: Sequence[int]) -> Callable[[list[Value]], tuple[Value, ...]]:
    if len(places) > 1:
        return itemgetter(*places)
    if not places:
        return lambda values: ()
    (place,) = places
    return lambda values: (values[place],)
