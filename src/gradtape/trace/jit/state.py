"""The state of a compiled function: inputs for the variables that it reads, outputs for those that it assigns to."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from gradtape.ir.graph import Node, Value, constant
from gradtape.ir.op import NDArray
from gradtape.ir.types import INTP
from gradtape.ops.core.elementwise.cast import identity, stop_gradient
from gradtape.ops.core.indexing import put_add, put_row, update_row
from gradtape.trace.jit.guards import Trace
from gradtape.trace.jit.signature import as_input
from gradtape.trace.variables.content import Content
from gradtape.trace.variables.locks import changing
from gradtape.trace.variables.scatter import LARGE, How, check_places
from gradtape.trace.variables.variable import Variable

Compute: TypeAlias = Callable[[Sequence[NDArray]], list[NDArray]]
"""Computes the outputs of a program."""


@dataclass(frozen=True)
class Assignment:
    """The changes of a variable by outputs of a program.

    Attributes
    ----------
    variable : weakref.ref
        Which.
    steps : tuple of {"add", "set"}
        The operation of each pair of outputs, rows and their indices. Without steps there is one output, the new content.
    """

    variable: weakref.ref[Variable]
    steps: tuple[How, ...]

    def taken(self, outputs: Iterator[NDArray]) -> list[NDArray]:
        """Take the outputs of this assignment from an iterator."""
        return [next(outputs) for _ in range(2 * len(self.steps) or 1)]

    def check(self, arrays: Sequence[NDArray]) -> None:
        """Raise IndexError where an index is out of bounds."""
        variable = self.variable()
        for indices in arrays[1::2] if variable is not None else ():
            check_places(variable.shape[0], indices)  # type: ignore[union-attr]

    def carry_out(self, arrays: Sequence[NDArray]) -> None:
        """Change the variable."""
        variable = self.variable()
        if variable is None:
            return
        if not self.steps:
            variable.store(arrays[0])
            return
        for how, rows, indices in zip(self.steps, arrays[::2], arrays[1::2], strict=True):
            variable.change_rows(constant(rows), constant(indices), how)


@dataclass(frozen=True)
class State:
    """The variables of one specialisation.

    Attributes
    ----------
    read : tuple of weakref.ref
        The variables whose contents are inputs, after the arguments.
    assigned : tuple of Assignment
        The changes by the last outputs.
    count : int
        The number of these outputs.
    places : tuple of int
        The numbers of the locks of variables that are assigned to, in ascending order, which excludes deadlocks.
    """

    read: tuple[weakref.ref[Variable], ...]
    assigned: tuple[Assignment, ...]
    count: int
    places: tuple[int, ...]

    def run(
        self,
        compute: Compute,
        arrays: Sequence[NDArray],
        draw: Callable[[Sequence[NDArray]], list[NDArray]] | None = None,
    ) -> list[NDArray]:
        """Run a program on the present contents, store the new ones, and return the outputs.

        Parameters
        ----------
        compute : callable
            The program, or another way to compute what it does.
        arrays : sequence of ndarray
            Its inputs, without random numbers and the contents of variables.
        draw : callable, optional
            Draws the random numbers, given the other inputs.
        """
        if not self.read:
            return compute(arrays if draw is None else [*arrays, *draw(arrays)])
        # Calls that assign to the same variables run one after the other.
        locks = [changing[position] for position in self.places]
        for lock in locks:
            lock.acquire()
        try:
            return self._run(compute, arrays, draw)
        finally:
            for lock in locks:
                lock.release()

    def _run(
        self,
        compute: Compute,
        arrays: Sequence[NDArray],
        draw: Callable[[Sequence[NDArray]], list[NDArray]] | None,
    ) -> list[NDArray]:
        drawn = [] if draw is None else draw([*arrays, *self._contents()])
        # No name refers to the contents afterwards, so assignments of rows happen in place.
        outputs = compute([*arrays, *drawn, *self._contents()])
        state_outputs = iter(outputs[len(outputs) - self.count :])
        changes = [(assignment, assignment.taken(state_outputs)) for assignment in self.assigned]
        for assignment, new_contents in changes:
            assignment.check(new_contents)
        for assignment, new_contents in changes:
            assignment.carry_out(new_contents)
        return outputs

    def _contents(self) -> list[NDArray]:
        return [as_input(variable.data_now()) for variable in _alive(self.read)]

    def reads(self) -> list[Value]:
        """Return the contents of the variables, as reads that tapes and traces record."""
        return [variable.value for variable in _alive(self.read)]

    def alive(self) -> bool:
        """Return whether all of the variables still exist."""
        return all(variable() is not None for variable in self.read)

    def is_recorded(self) -> bool:
        """Return whether an enclosing tape or trace would record a read of one of them."""
        return any(variable.is_recorded for variable in _alive(self.read))


def state_of(trace: Trace) -> tuple[State, list[Value]]:
    """Return the variables of a trace, and the values to be assigned to them."""
    met = [content for content in trace.contents.values() if content.input is not None]
    assigned, stored = [], []
    for content in met:
        if content.assigned:
            steps = _changed_rows(content)
            assigned.append(Assignment(content.variable, tuple(how for how, *_ in steps)))
            stored += [value for _, *pair in steps for value in pair] if steps else [content.value]
    changed = [
        serial for serial, content in trace.contents.items() if content.input is not None and content.assigned
    ]
    lock_positions = tuple(sorted({serial % len(changing) for serial in changed}))
    return State(
        tuple(content.variable for content in met), tuple(assigned), len(stored), lock_positions
    ), stored


def _changed_rows(content: Content) -> list[tuple[How, Value, Value]]:
    """Return operation, rows and indices of each change of a large content, if it was changed by rows; else nothing."""
    steps: list[tuple[How, Value, Value]] = []
    value = content.value
    if value.size * value.dtype.itemsize < LARGE:
        return []
    while value is not content.input:
        node = value.node
        if node is not None and (node.op is stop_gradient or node.op is identity):
            value = node.inputs[0]
        elif node is not None and (node.op is put_add or node.op is put_row) and len(node.inputs) == 3:
            steps.append(("add" if node.op is put_add else "set", *node.inputs[1:]))
            value = node.inputs[0]
        elif node is not None and node.op is update_row and _are_few_rows(node):
            start, step, rows = node.params["starts"][0], node.params["strides"][0], node.inputs[1]
            indices = constant(start + step * np.arange(rows.shape[0], dtype=INTP))
            steps.append(("set", rows, indices))
            value = node.inputs[0]
        else:
            return []
    return steps[::-1]


def _are_few_rows(node: Node) -> bool:
    """Return whether an update writes whole rows, and at most half of them."""
    shape, rows = (value.shape for value in node.inputs)
    return 2 * rows[0] <= shape[0] and rows[1:] == shape[1:] and set(node.params["strides"][1:]) <= {1}


def variables_made(trace: Trace) -> list[weakref.ref[Any]]:
    """Return the variables that the traced function created."""
    return [content.variable for content in trace.contents.values() if content.input is None]


def any_alive(variables: Sequence[weakref.ref[Any]]) -> bool:
    """Return whether one of these variables is still referenced."""
    if all(variable() is None for variable in variables):
        return False
    gc.collect()  # objects that only a cycle refers to are freed
    return any(variable() is not None for variable in variables)


def _alive(variables: Sequence[weakref.ref[Variable]]) -> list[Variable]:
    return [variable_alive for variable in variables if (variable_alive := variable()) is not None]
