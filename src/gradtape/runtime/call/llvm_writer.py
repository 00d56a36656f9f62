"""Writing one C function as LLVM IR, instruction by instruction."""

from __future__ import annotations

from typing import Final

__all__ = ["LIKELY", "WORD", "FunctionWriter"]

WORD: Final = 8
LIKELY: Final = '!prof !{!"branch_weights", i32 2000, i32 1}'

_FUNCTIONS: Final = {
    "PyArray_NewFromDescr": "ptr (ptr, ptr, i32, ptr, ptr, ptr, i32, ptr)",
    "PyArray_Scalar": "ptr (ptr, ptr, ptr)",
    "PyDataMem_SetHandler": "ptr (ptr)",
    "PyErr_NoMemory": "ptr ()",
    "PyEval_RestoreThread": "void (ptr)",
    "PyEval_SaveThread": "ptr ()",
    "PyList_New": "ptr (i64)",
    "PyList_SetItem": "i32 (ptr, i64, ptr)",
    "PyLong_AsLongLongAndOverflow": "i64 (ptr, ptr)",
    "PyMem_RawFree": "void (ptr)",
    "PyMem_RawMalloc": "ptr (i64)",
    "PyObject_Vectorcall": "ptr (ptr, ptr, i64, ptr)",
    "PyTuple_New": "ptr (i64)",
    "Py_DecRef": "void (ptr)",
    "Py_IncRef": "void (ptr)",
    "allocate": "ptr (ptr, i64)",
    "raise": "ptr ()",
}
"""Result and parameter types of the C functions that an entry calls."""


class FunctionWriter:
    """The text of a function that grows at its end, and the outside names that the text uses.

    Methods that compute a value return its LLVM name.
    """

    def __init__(self, header: str) -> None:
        self._header = header
        self._slots: list[str] = []
        self._body: list[str] = []
        self._constants: list[str] = []
        self._symbols: set[str] = set()
        self._functions: set[str] = set()
        self._names = 0
        self.block = "start"
        """The label of the basic block that is being written."""

    def text(self) -> str:
        """Everything that was written, after the declarations that it needs."""
        lines = [f'@"gt.{name}" = external global i8' for name in sorted(self._symbols)]
        for name in sorted(self._functions):
            result, parameters = _prototype(name)
            lines.append(f'declare {result} @"gt.{name}"({", ".join(parameters)})')
        lines += [*self._constants, f"{self._header} {{", "start:", *self._slots, *self._body, "}"]
        return "\n".join(lines)

    def emit(self, instruction: str) -> None:
        """Append an instruction."""
        self._body.append(f"  {instruction}")

    def let(self, expression: str) -> str:
        """Append an instruction and return the name of its value."""
        self._names += 1
        self.emit(f"%t{self._names} = {expression}")
        return f"%t{self._names}"

    def new_label(self) -> str:
        """Return a label that is not in use."""
        self._names += 1
        return f"L{self._names}"

    def label(self, name: str) -> None:
        """Begin a basic block."""
        self._body.append(f"{name}:")
        self.block = name

    def require(self, condition: str, otherwise: str = "fallback") -> None:
        """Go on if the condition holds."""
        follow = self.new_label()
        self.emit(f"br i1 {condition}, label %{follow}, label %{otherwise}, {LIKELY}")
        self.label(follow)

    def require_same(self, left: str, right: str) -> None:
        """Go on if two pointers are equal."""
        self.require(self.let(f"icmp eq ptr {left}, {right}"))

    def offset(self, pointer: str, distance: int) -> str:
        """The address so many bytes further on."""
        return self.let(f"getelementptr i8, ptr {pointer}, i64 {distance}") if distance else pointer

    def field(self, kind: str, pointer: str, distance: int) -> str:
        """Load from so many bytes further on."""
        return self.let(f"load {kind}, ptr {self.offset(pointer, distance)}")

    def slot(self, kind: str, align: int = 16, initial: str = "") -> str:
        """Reserve memory on the stack for the length of the call."""
        self._names += 1
        name = f"%t{self._names}"
        self._slots.append(f"  {name} = alloca {kind}, align {align}")
        if initial:
            self._slots.append(f"  store {kind} {initial}, ptr {name}")
        return name

    def stored(self, kind: str, value: str) -> str:
        """Put a value into memory on the stack."""
        slot = self.slot(kind)
        self.emit(f"store {kind} {value}, ptr {slot}")
        return slot

    def pointer_list(self, pointers: list[str]) -> str:
        """Put pointers one after the other into memory on the stack."""
        array = self.slot(f"[{len(pointers)} x ptr]")
        for number, pointer in enumerate(pointers):
            self.emit(f"store ptr {pointer}, ptr {self.offset(array, WORD * number)}")
        return array

    def symbol(self, name: str) -> str:
        """The address of an object of Python's or NumPy's."""
        self._symbols.add(name)
        return f'@"gt.{name}"'

    def function(self, name: str) -> str:
        """The address of a C function of Python's or NumPy's."""
        self._functions.add(name)
        return f'@"gt.{name}"'

    def call(self, function: str, *operands: str) -> str:
        """Call a C function for its result."""
        result, _ = _prototype(function)
        return self.let(f"call {result} {self.function(function)}({_operands(function, operands)})")

    def do(self, function: str, *operands: str) -> None:
        """Call a C function that returns nothing."""
        self.emit(f"call void {self.function(function)}({_operands(function, operands)})")

    def constant(self, name: str, lengths: tuple[int, ...]) -> str:
        """Define an array of int64 that only this function reads."""
        values = ", ".join(f"i64 {length}" for length in lengths)
        self._constants.append(f"@{name} = private constant [{len(lengths)} x i64] [{values}]")
        return f"@{name}"


def _prototype(function: str) -> tuple[str, list[str]]:
    """The result type and the parameter types of a C function."""
    result, _, parameters = _FUNCTIONS[function.split(".")[0]].partition(" ")
    return result, [kind for kind in parameters.strip("()").split(", ") if kind]


def _operands(function: str, operands: tuple[str, ...]) -> str:
    _, parameters = _prototype(function)
    return ", ".join(f"{kind} {operand}" for kind, operand in zip(parameters, operands, strict=True))
