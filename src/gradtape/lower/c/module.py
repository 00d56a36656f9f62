"""C source files: functions that users call, with the loops and routines that they need, and the header."""

from __future__ import annotations

import functools
import pkgutil
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from gradtape.errors import LoweringError
from gradtape.ir.body import Body
from gradtape.ir.graph import Graph, Value
from gradtape.ir.op import NDArray
from gradtape.ir.printer import identifier
from gradtape.ir.types import part_dtype
from gradtape.loops.ir import RoutineCall
from gradtape.loops.workspace import ALIGNMENT, RESERVED, plan_memory
from gradtape.lower.c.expressions import c_type, constant_text
from gradtape.lower.c.printer import print_c, refused
from gradtape.lower.c.procedures import print_procedure
from gradtape.lower.pipeline import schedule_of
from gradtape.lower.resident.callbacks import site_of_row
from gradtape.passes.rewrite import closed
from gradtape.records import value_record
from gradtape.statements import walk

MOST_CONSTANTS: Final = 100_000
"""Elements of captured arrays that a file spells out."""

INCLUDES: Final = ("math.h", "stdbool.h", "stdint.h", "stdlib.h", "string.h")

_C_WORDS: Final = """
auto break case char const continue default do double else enum extern float for goto if inline int long register restrict return short
signed sizeof static struct switch typedef union unsigned void volatile while bool true false
"""
_CPP_WORDS: Final = """
class new delete this template namespace private public protected operator try catch throw using virtual and or not xor
"""
_MACROS: Final = (
    "NULL NAN INFINITY HUGE_VAL EOF LANES SUM_LANES INT64_MIN INT64_C UINT64_C linux unix i386 workspace"
)
KEYWORDS: Final = frozenset([*_C_WORDS.split(), *_CPP_WORDS.split(), *_MACROS.split()])
"""Words that C or C++ keep for themselves, macros, and the name of the last parameter."""

_MATH: Final = """
acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim floor fma fmax fmin fmod frexp gamma
hypot ilogb isfinite isinf isnan j0 j1 jn ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf nan nearbyint nextafter
nexttoward pow remainder remquo rint round scalbln scalbn signbit signgam sin sinh sqrt tan tanh tgamma trunc y0 y1 yn
"""
_LIBRARY: Final = """
abort abs atexit atof atoi bsearch calloc div exit free getenv labs main malloc memchr memcmp memcpy memmove memset mktemp qsort rand
random realloc select srand strcat strchr strcmp strcpy strlen strtod strtol system index psi reserve
"""
LIBRARY_NAMES: Final = frozenset([*_MATH.split(), *[f"{name}f" for name in _MATH.split()], *_LIBRARY.split()])
"""Functions of the C library and of the folder ``routines``, of which an exported function cannot have the name."""

NOTE: Final = "Do not edit: export it again."

LAPACK: Final = ("cholesky", "eigh", "lu", "qr", "svd")
"""Routines that may be left to LAPACK."""

_PLACE: Final = re.compile(r"\$\{?(T|dtype|letter|triangle|transposed|unit|form)\}?")


@value_record
class Operand:
    """A parameter of a C function.

    Attributes
    ----------
    name : str
        In C.
    place : str
        What it is for the user: ``params['w']``.
    value : Value
        Its type; real numbers of rank 0 that are given are passed by value, all else by its address.
    extents : tuple of str or None
        The extents where they vary: formulas of the lengths.
    """

    name: str
    place: str
    value: Value
    extents: tuple[str, ...] | None = None

    @property
    def is_number(self) -> bool:
        return not self.value.shape and self.value.dtype.kind != "c"

    @property
    def type(self) -> str:
        dtype = self.value.dtype
        return c_type(part_dtype(dtype) if dtype.kind == "c" else dtype)

    def description(self) -> str:
        """Return the line of the header about it."""
        extents = "".join([f"[{extent}]" for extent in self.extents or self.value.shape])
        parts = ", each its real and its imaginary part" if self.value.dtype.kind == "c" else ""
        return f"{self.place}: {self.type}{extents}{parts}".replace("*/", "* /")


@value_record
class CFunction:
    """A function of a C file that users call.

    Attributes
    ----------
    name : str
    title : str
        What it computes, in a line.
    graph : Graph
    parameters, results : tuple of Operand
        The first inputs of the graph, and its outputs.
    hidden : tuple of ndarray
        The last inputs of the graph, which are not parameters: the arrays that the function captures.
    lengths : tuple of (str, str)
        The lengths that vary, which are the first parameters: their names, and what the header says about them.
    """

    name: str
    title: str
    graph: Graph
    parameters: tuple[Operand, ...]
    results: tuple[Operand, ...]
    hidden: tuple[NDArray, ...] = ()
    lengths: tuple[tuple[str, str], ...] = ()

    def prototype(self) -> str:
        """Return the function's head."""
        lengths = [f"int64_t {name}" for name, _ in self.lengths]
        parameters = [
            f"{operand.type} {operand.name}" if operand.is_number else f"const {operand.type} *{operand.name}"
            for operand in self.parameters
        ]
        results = [f"{operand.type} *{operand.name}" for operand in self.results]
        return f"int {self.name}({', '.join([*lengths, *parameters, *results, 'void *workspace'])})"


@value_record
class CFiles:
    """A C program.

    Attributes
    ----------
    source, header : str
    workspace : int
        Bytes that the caller has to give.
    libraries : tuple of str
        What it is linked with, as options of the compiler.
    """

    source: str
    header: str
    workspace: int
    libraries: tuple[str, ...]


def c_text(parts: Iterable[str]) -> str:
    """Return a C file of these functions and constants, without its head."""
    includes = "\n".join([f"#include <{name}>" for name in INCLUDES])
    return "\n\n".join([includes, *parts]) + "\n"


class CModule:
    """A C file under construction: functions and constants by name, each after those that it calls.

    Parameters
    ----------
    blas : bool
        Whether products of large matrices are left to BLAS, and decompositions to LAPACK.
    prefix : str
        Of the names of inner functions.
    """

    def __init__(self, blas: bool = False, prefix: str = "") -> None:
        self.prefix = prefix
        self.parts: dict[str, str] = {}
        self.routines = {"gemm": "gemm_blas", **{name: f"{name}_lapack" for name in LAPACK}} if blas else {}
        self.libraries: tuple[str, ...] = ("-lm",)
        self._names: dict[Any, str] = {}

    def text(self) -> str:
        """Return the file without its head."""
        return c_text(self.parts.values())

    def helper(self, file: str, /, **places: str) -> str:
        """Add the functions of a file of the folder ``routines``, for the values of its places; return the name of the last one."""
        text = _PLACE.sub(lambda match: places[match[1]], _routine(file))
        self.parts.setdefault(text, text)
        if file in self.routines.values():
            needed = ("-lblas",) if file == self.routines["gemm"] else ("-llapack", "-lblas")
            self.libraries = ("-lm", *sorted({*self.libraries[1:], *needed}, reverse=True))
        names: list[str] = re.findall(r"^(?:static [^(\n]*?|#define )(\w+)\(", text, re.MULTILINE)
        return names[-1]

    def add_function(self, function: CFunction) -> int:
        """Add a function, and return the bytes of workspace that it needs."""
        graph = closed(function.graph)
        program = schedule_of(graph)
        for statement in walk(program.body):
            if isinstance(statement, RoutineCall) and statement.library == "python":
                raise refused(statement.function, "python", site_of_row(graph.nodes, statement.function))
        offsets, workspace = plan_memory(program)
        workspace += (ALIGNMENT if offsets else 0) - RESERVED
        captured = [value.data for value in graph.constants() if value.data is not None]
        constants = [self._constant(function.name, array) for array in (*function.hidden, *captured)]
        loops = f"{function.name}_loops"
        self.parts[loops] = print_c(program, loops, offsets, self.helper, self.routines, self.procedure)
        arguments = [
            f"&{operand.name}" if operand.is_number else operand.name for operand in function.parameters
        ]
        results = [operand.name for operand in function.results]
        place = "workspace"
        if offsets:
            place = f"(char *)workspace + ({ALIGNMENT} - (uintptr_t)workspace % {ALIGNMENT}) % {ALIGNMENT}"
        call = f"return {loops}({', '.join([*arguments, *constants, *results, place])});"
        self.parts[function.name] = f"{function.prototype()}\n{{\n    {call}\n}}"
        return workspace

    def procedure(self, reference: Any) -> str:
        """Add the function of a procedure; return its name."""
        name = self._names.get(reference)
        if name is None:
            (wish,) = c_names([identifier(reference.name)])
            name = self._names[reference] = f"{self.prefix}{wish}_procedure{len(self._names)}"
            self.parts[name] = print_procedure(reference.procedure, name, self.helper, self.body)
        return name

    def body(self, graph: Body) -> tuple[str, list[str], int]:
        """Add the function of an array computation of a procedure; return its name, those of its constants, and its workspace."""
        program = schedule_of(graph)
        offsets, workspace = plan_memory(program)
        name = f"{self.prefix}body{len(self.parts)}"
        constants = [
            self._constant(name, value.data) for value in graph.constants() if value.data is not None
        ]
        self.parts[name] = print_c(program, name, offsets, self.helper, self.routines, self.procedure)
        return name, constants, workspace - RESERVED

    def _constant(self, prefix: str, array: NDArray) -> str:
        """Add a captured array, flat; return its name."""
        if array.size > MOST_CONSTANTS:
            raise LoweringError(
                f"a captured array of {array.size} elements would have to be spelled out in C",
                why="the function reads it from outside its arguments",
                remedy="make it an argument",
            )
        flat: np.ndarray[Any, Any] = np.ascontiguousarray(array).reshape(-1)
        flat = flat.view(part_dtype(flat.dtype)) if flat.dtype.kind == "c" else flat
        numbers = [constant_text(number, flat.dtype) for number in flat] or ["0"]
        name = f"{prefix}_constant{sum('_constant' in part for part in self.parts)}"
        listed = textwrap.fill(", ".join(numbers), 100, initial_indent="    ", subsequent_indent="    ")
        self.parts[name] = f"static const {c_type(flat.dtype)} {name}[] = {{\n{listed},\n}};"
        return name


@functools.cache
def _routine(file: str) -> str:
    """Return the text of a file of the folder ``routines``; raise FileNotFoundError if there is none."""
    data = pkgutil.get_data("gradtape.lower.c", f"routines/{file}.c")
    assert data is not None
    return data.decode().rstrip()


def print_files(function: CFunction, header: str, blas: bool = False) -> CFiles:
    """Return the source and the header of a function.

    Parameters
    ----------
    function : CFunction
        What is exported.
    header : str
        The name of the header's file.
    blas : bool
        Whether products of large matrices are left to BLAS, and decompositions to LAPACK.

    Raises
    ------
    LoweringError
        For what C does not have.
    """
    module = CModule(blas)
    workspace = module.add_function(function)
    head = f'/* {function.name}: {function.title}.\n * {NOTE} */\n#include "{header}"\n\n'
    text = header_text(function, workspace, module.libraries)
    return CFiles(head + module.text(), text, workspace, module.libraries)


def header_text(function: CFunction, workspace: int | None, libraries: Sequence[str]) -> str:
    """Return the header of a function; without a number of bytes, a function of the lengths returns it."""
    guard = f"{function.name.upper()}_H"
    size = f"{function.name.upper()}_WORKSPACE"
    declared = f"#define {size} {workspace}"
    if workspace is None:
        lengths = [name for name, _ in function.lengths]
        size = f"{function.name}_workspace({', '.join(lengths)})"
    named = [name for name, _ in function.lengths]
    named += [operand.name for operand in (*function.parameters, *function.results)]
    width = max(map(len, named), default=0)
    lines = [
        f"/* {function.name}: {function.title}.",
        " *",
        " * Parameters, whose arrays are contiguous and stored by rows:",
        *[f" *   {name:<{width}}  {text}" for name, text in function.lengths],
        *[f" *   {operand.name:<{width}}  {operand.description()}" for operand in function.parameters],
        " * Results, to which the caller gives memory that overlaps with nothing else:",
        *[f" *   {operand.name:<{width}}  {operand.description()}" for operand in function.results],
        f" *   {'workspace':<{width}}  {size} bytes, aligned as malloc's; one for each thread"
        if workspace != 0
        else f" *   {'workspace':<{width}}  not used: NULL",
        " *",
        " * Returns 0; -1 where an index is out of bounds or a matrix is singular; -2 where there is no memory;",
        *[" * -3 for lengths that it does not take;"][: len(function.lengths)],
        *(
            [
                " * a positive number where the values would take another way through the function than those",
                " * with which it was exported. The results are not to be used then.",
            ]
            if function.graph.guards
            else [" * the results are not to be used then."]
        ),
        f" * Link with {' '.join(libraries)}.",
        f" * {NOTE} */",
    ]
    return "\n".join(
        [
            *lines,
            f"#ifndef {guard}",
            f"#define {guard}",
            "",
            "#include <stdbool.h>",
            "#include <stdint.h>",
            "",
            *([declared, ""] if workspace is not None else []),
            "#ifdef __cplusplus",
            'extern "C" {',
            "#endif",
            "",
            *([f"{workspace_prototype(function)};"] if workspace is None else []),
            f"{function.prototype()};",
            "",
            "#ifdef __cplusplus",
            "}",
            "#endif",
            "",
            "#endif",
            "",
        ]
    )


def workspace_prototype(function: CFunction) -> str:
    """Return the head of the function that says how many bytes of workspace lengths need."""
    lengths = ", ".join([f"int64_t {name}" for name, _ in function.lengths])
    return f"int64_t {function.name}_workspace({lengths})"


def function_name(requested: str) -> str:
    """Return a name in C for an exported function.

    Examples
    --------
    >>> function_name("loss"), function_name("grad(f)"), function_name("sin")
    ('loss', 'grad_f', 'sin_')
    """
    (name,) = c_names([requested])
    return f"{name}_" if name in LIBRARY_NAMES else name


def c_names(requested: Sequence[str]) -> list[str]:
    """Return names in C for names that the user gave: each once, and none that C keeps for itself.

    Examples
    --------
    >>> c_names(["x", "double", "x", "params['w']"])
    ['x', 'double_', 'x_2', 'params_w']
    """
    names: list[str] = []
    for text in requested:
        name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "x"
        name = f"x{name}" if name[0].isdigit() else name
        name = f"{name}_" if name in KEYWORDS else name
        unique, count = name, 1
        while unique in names:
            count += 1
            unique = f"{name}_{count}"
        names.append(unique)
    return names
