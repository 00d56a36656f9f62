"""The state of a compiled function: hidden inputs for the variables that it reads, hidden outputs for those that it assigns to."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..ir.graph import Value
from ..ir.op import NDArray
from ..runtime.program import Program
from .guards import Trace
from .signature import as_input
from .variable import Variable


@dataclass(frozen=True)
class State:
    """The variables of one specialisation.

    Attributes
    ----------
    read : tuple of weakref.ref
        Those whose contents follow the arguments among the program's inputs.
    assigned : tuple of weakref.ref
        Those whose new contents are the program's last outputs.
    """

    read: tuple[weakref.ref[Variable], ...]
    assigned: tuple[weakref.ref[Variable], ...]

    def run(self, program: Program, arrays: Sequence[NDArray]) -> list[NDArray]:
        """Run a program on the present contents, store the new ones, and return the outputs."""
        if not self.read:
            return program.run(arrays)
        outputs = program.run([*arrays, *[as_input(variable.data_now()) for variable in _living(self.read)]])
        if self.assigned:
            for variable, array in zip(_living(self.assigned), outputs[-len(self.assigned) :], strict=True):
                variable.store(array)
        return outputs

    def alive(self) -> bool:
        """Return whether all of the variables still exist."""
        return all(variable() is not None for variable in self.read)

    def followed(self) -> bool:
        """Return whether a tape or trace around would take notice if one of them is read."""
        return any(variable.followed for variable in _living(self.read))


def state_of(trace: Trace) -> tuple[State, list[Value]]:
    """Return the variables that a trace met, and the values to be stored in them."""
    met = [content for content in trace.contents.values() if content.input is not None]
    assigned = [content for content in met if content.assigned]
    state = State(tuple(content.variable for content in met), tuple(content.variable for content in assigned))
    return state, [content.value for content in assigned]


def made_in(trace: Trace) -> list[weakref.ref[Any]]:
    """Return the variables that the traced function made."""
    return [content.variable for content in trace.contents.values() if content.input is None]


def any_alive(variables: Sequence[weakref.ref[Any]]) -> bool:
    """Return whether somebody keeps one of these variables."""
    if all(variable() is None for variable in variables):
        return False
    gc.collect()  # an object in a cycle is nobody's
    return any(variable() is not None for variable in variables)


def _living(variables: Sequence[weakref.ref[Variable]]) -> list[Variable]:
    return [found for variable in variables if (found := variable()) is not None]
