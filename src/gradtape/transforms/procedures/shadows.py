"""Shadows: the memories, pointers and variables that hold the tangents or cotangents of others."""

from __future__ import annotations

from collections.abc import Collection

from gradtape.ir.graph import Value
from gradtape.ir.types import Aval
from gradtape.procedures.builder import ProcedureBuilder
from gradtape.procedures.ir import Allocate, Memory, Pointer, Span, Variable
from gradtape.transforms.procedures.activity import Location


class Shadows:
    """The shadows of the active locations of a procedure: of the same dtypes, and as large.

    Parameters
    ----------
    build : ProcedureBuilder
        Of the procedure to which they belong.
    active : collection of Memory or Variable
        What has a shadow.
    suffix : str
        Of their names.
    """

    def __init__(self, build: ProcedureBuilder, active: Collection[Location], suffix: str) -> None:
        self._build = build
        self._active = active
        self._suffix = suffix
        self._memories: dict[Memory, Memory] = {}
        self._pointers: dict[Pointer, Pointer] = {}
        self._variables: dict[Variable, Variable] = {}

    def has(self, location: Memory | Variable | Pointer) -> bool:
        """Return whether there is a shadow; a variable of pointers has one where its memory has."""
        if isinstance(location, Pointer):
            return location.memory in self._active
        if isinstance(location, Variable) and isinstance(location.type, Memory):
            return location.type in self._active
        return location in self._active

    def of(self, pointer: Pointer) -> Pointer:
        """Return the shadow of a pointer."""
        return self._pointers[pointer]

    def of_span(self, span: Span) -> Span:
        return Span(self.of(span.pointer), span.offset, span.aval)

    def memory(self, memory: Memory) -> Memory:
        """Return the shadow of a memory."""
        if memory not in self._memories:
            name = self._build.unique(f"{memory.name}_{self._suffix}")
            self._memories[memory] = Memory(name, memory.dtype)
        return self._memories[memory]

    def variable(self, variable: Variable) -> Variable:
        """Return the shadow of a variable."""
        if variable not in self._variables:
            type_ = variable.type
            self._variables[variable] = Variable(
                self._build.unique(f"{variable.name}_{self._suffix}"),
                self.memory(type_) if isinstance(type_, Memory) else type_,
            )
        return self._variables[variable]

    def add(self, pointer: Pointer) -> Pointer:
        """Return a new shadow of a pointer, which a statement or the caller is to define."""
        memory = self.memory(pointer.memory)
        shadow = Pointer(self._build.unique(f"{pointer.name}_{self._suffix}"), memory)
        self._pointers[pointer] = shadow
        return shadow

    def add_parameter(self, pointer: Pointer, type_: Aval) -> None:
        """Append a parameter that is the shadow of a pointer."""
        self._build.parameters.append(self.add(pointer))
        self._build.types.append(type_)

    def allocate(self, pointer: Pointer, size: Value, zero: bool) -> None:
        """Append the allocation of the shadow of a pointer."""
        self._build.append(Allocate(self.add(pointer), size, zero))
