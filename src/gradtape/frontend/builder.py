"""The builder of translations: it remembers pointers, joins alias classes, and forgets what a discarded pass has appended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.types import Aval
from gradtape.kinds.operands import as_value, beside, check_dtype
from gradtape.ops.core.elementwise.cast import convert_number
from gradtape.ops.core.elementwise.mixed_comparisons import fits
from gradtape.procedures.arrays import index_arithmetic as ix
from gradtape.procedures.builder import Number, ProcedureBuilder
from gradtape.procedures.hoisting import hoist_allocations
from gradtape.procedures.ir import (
    Content,
    Dtype,
    Memory,
    Pointer,
    Procedure,
    Statement,
    Variable,
)
from gradtape.procedures.rewrite import Rewriter


class TranslationBuilder(ProcedureBuilder):
    """A builder for procedures that are translated from code.

    Attributes
    ----------
    pointed : list of Variable
        The variables that hold pointers.
    counts : Bounds
        What is known of integers where statements are appended.
    copied : list of (Pointer, Pointer)
        Arrays that may be one in Python and are two here, since the contents of one were copied to the other.
    on_write : callable or None
        Called with the pointer of each store while there are such arrays.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._serials: dict[Pointer, int] = {}
        self._allocated: set[Pointer] = set()
        self._joined: dict[Memory, Memory] = {}
        self.pointed: list[Variable] = []
        self.number_types: dict[Value, frozenset[tuple[Any, bool]]] = {}
        """The dtypes and weaknesses of numbers whose class depends on the iteration, or on the branch."""
        self.counts: ix.Bounds = ix.Bounds()
        self.copied: list[tuple[Pointer, Pointer]] = []
        self.on_write: Callable[[Pointer], None] | None = None

    def store(self, pointer: Pointer, index: Number, value: Number) -> None:
        if self.copied and self.on_write is not None:
            self.on_write(pointer)
        value = as_value(beside(value, pointer.dtype))
        if value.aval.weak and value.dtype.kind == "f" and pointer.dtype.kind in "iu":
            value = convert_number(value, pointer.dtype)
        super().store(pointer, index, value)

    def check_fit(self, number: Value, dtype: np.dtype[Any]) -> None:
        """Append the check that a Python number fits an integer dtype, unless its bounds show it.

        In an array computation it may be one of the inputs, or computed from them.
        """
        if self.array_inputs:
            outside = Rewriter()
            outside.becomes.update(self.array_inputs)
            number = outside.value(number)
        limits = np.iinfo(dtype)
        if number.dtype.kind == "i":
            most = min(limits.max, np.iinfo(number.dtype).max)
            least = ix.lowest(number, self.counts)
            room = ix.lowest(ix.subtract(most, number), self.counts)
            if least is not None and least >= limits.min and room is not None and room >= 0:
                return
        self.check(fits(number, dtype), "OverflowError", f"Python integer out of bounds for {dtype}")

    def note_copy(self, copy: Pointer, original: Pointer) -> None:
        self.copied.append((copy, original))

    @contextmanager
    def binding(self) -> Iterator[None]:
        """Let stores inside bind names to copies: they are no writes of the code's."""
        before, self.on_write = self.on_write, None
        try:
            yield
        finally:
            self.on_write = before

    def array(self, name: str, shape: Sequence[int], dtype: Any = np.float64) -> Pointer:
        return self._remember(super().array(name, shape, dtype))

    def allocate(
        self,
        name: str,
        size: Number,
        dtype: Dtype | type = np.float64,
        zero: bool = False,
        memory: Memory | None = None,
    ) -> Pointer:
        check_dtype(np.dtype(dtype), "dtype")  # arrays of objects, of texts
        pointer = self._remember(super().allocate(name, size, dtype, zero, memory))
        self._allocated.add(pointer)
        return pointer

    def read(self, variable: Variable) -> Any:
        content = super().read(variable)
        return self._remember(content) if isinstance(content, Pointer) else content

    def _remember(self, pointer: Pointer) -> Pointer:
        self._serials[pointer] = len(self._serials)
        return pointer

    def is_newer(self, pointer: Pointer, first: int) -> bool:
        """Return whether a pointer may name an array that was allocated since there were `first` pointers."""
        if pointer in self._allocated:
            return self._serials[pointer] >= first
        return any(
            other.memory is pointer.memory and self._serials[other] >= first for other in self._allocated
        )

    @property
    def next_serial(self) -> int:
        """The serial number of the next pointer."""
        return len(self._serials)

    def joined(self, memory: Memory) -> Memory:
        """Return the memory that a memory has become."""
        while memory in self._joined:
            memory = self._joined[memory]
        return memory

    def unify(self, first: Memory, second: Memory) -> None:
        """Let two memories be one: a variable may point into either."""
        first, second = self.joined(first), self.joined(second)
        if first is second:
            return
        if first in self.unknown_orders or second in self.unknown_orders:
            self.unknown_orders |= {first, second}
        self._joined[second] = first
        for pointer in self._serials:
            if pointer.memory is second:
                pointer.memory = first
        for variable in self.pointed:
            if variable.type is second:
                variable.type = first

    @contextmanager
    def assuming(self, condition: Any) -> Iterator[None]:
        """Let a condition be known to hold inside."""
        count = len(self.counts.assumed)
        self.assume(condition)
        try:
            yield
        finally:
            del self.counts.assumed[count:]

    def assume(self, condition: Any) -> None:
        """Let a condition be known to hold to the end of the block."""
        if isinstance(condition, Value):
            self.counts.assumed.extend(ix.implied(condition, self.counts))

    def mark(self) -> int:
        """Return how much stands before all other statements, for `forget`."""
        return len(self.start)

    def forget(self, mark: int) -> None:
        """Remove what was put before all other statements since a mark."""
        del self.start[mark:]

    @contextmanager
    def own_start(self, body: list[Statement]) -> Iterator[None]:
        """Let what is put before all other statements stand at the beginning of a block: that of a parallel loop."""
        outer, self.start = self.start, []
        try:
            yield
        finally:
            body[:0] = self.start
            self.start = outer

    def finish(self, results: Sequence[Content], result_types: Sequence[Aval] | None = None) -> Procedure:
        self.start += hoist_allocations(self.body)
        return super().finish(results, result_types)
