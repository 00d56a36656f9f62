"""Variables in bodies: variables that are read become consts, those that are assigned become carries and are assigned after the loop."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.errors import ArgumentError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.trace.jit.bodies import BodyInput, Failure
from gradtape.trace.jit.guards import Trace
from gradtape.trace.source.contexts import contexts
from gradtape.trace.variables.variable import Variable


def operand(place: BodyInput) -> Value:
    """Return the operand for a place outside that a body reads."""
    return place.value if isinstance(place, Variable) else place


def contents(variables: Sequence[Variable], caller: str) -> list[Value]:
    """Return the contents of the variables that a body assigns to.

    Raises
    ------
    ArgumentError
        For a variable that a tape records.
    """
    values = []
    for variable in variables:
        value = variable.value
        if any(tag.recording and not isinstance(tag, Trace) for tag in value.tags):
            name = "" if variable.name is None else f" {variable.name!r}"
            raise ArgumentError(
                f"{caller}: the body assigns to the variable{name}, which a tape watches",
                where=here.site,
                why="reading a variable after assigning it would have to be differentiated, which loops do not support",
                remedy="carry its content and assign it after the loop, or create it with trainable=False",
            )
        values.append(value)
    return values


def carry_on(variables: Sequence[Variable], values: Sequence[Value]) -> None:
    """Assign the final values of variables after a loop or branch, and raise the error of a check in it that has failed."""
    for variable, value in zip(variables, values, strict=True):
        if isinstance(variable, Failure) and variable.depth == len(contexts.stack):
            variable.verify(value)
        else:
            variable.rebind(value)
