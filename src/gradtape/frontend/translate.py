"""Translation of a function with loops to a procedure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradtape.errors import UnsupportedCodeError
from gradtape.frontend.builder import TranslationBuilder
from gradtape.frontend.calls import attribute, call
from gradtape.frontend.interpreter import Interpreter
from gradtape.frontend.loops.statements import for_loop, while_loop
from gradtape.frontend.values import (
    MISSING,
    Conflict,
    is_concrete_or_traced,
    is_number,
    refuse,
    settled,
    shown,
)
from gradtape.ir.builder import here
from gradtape.ir.graph import Value, literal
from gradtape.ir.site import Site
from gradtape.ir.types import Aval, Shape, aval
from gradtape.kinds.operands import as_value, check_dtype
from gradtape.procedures.arrays.nests import is_order_known, memory_order, span_of_strides, store
from gradtape.procedures.arrays.view import ArrayView, Expression, Loads
from gradtape.procedures.ir import Allocate, Content, Memory, Pointer, Procedure, Statement
from gradtape.procedures.traversal import stored
from gradtape.statements import walk
from gradtape.trees import TreeSpec, flatten, unflatten


@dataclass
class Translation:
    """A function as a procedure.

    Attributes
    ----------
    procedure : Procedure
        What the function computes.
    leaves : tuple of int
        The leaves of the arguments that are parameters, by position among all leaves.
    captured : tuple
        The arrays from globals and closures that are further parameters, after the arguments.
    result : object
        What the function returns: containers whose leaves are result numbers, as ints, or constants that are no ints.
    mutated : dict of int to int
        The result number of the new contents of each argument leaf that the function writes.
    notes : list of tuple
        What was read from outside and taken for constant: where (a namespace, a cell or an object), under which name, and the value.
        A note without a place is a remark.
    orders : dict of int to tuple of int
        Of results that NumPy would not have in C order: the axes from the slowest to the fastest; ``()`` where nobody knows.
    """

    procedure: Procedure
    leaves: tuple[int, ...]
    captured: tuple[Any, ...] = ()
    result: Any = None
    mutated: dict[int, int] = field(default_factory=dict)
    notes: list[tuple[Any, str, Any]] = field(default_factory=list)
    orders: dict[int, tuple[int, ...]] = field(default_factory=dict)


def translate(
    function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any] | None = None
) -> Translation:
    """Translate a function to a procedure.

    Parameters
    ----------
    function : callable
        A function of Python, or one that Numba compiles.
    arguments : tuple
        The positional arguments. `Aval` leaves stand for numbers and arrays that are not known; all else is constant.
    keywords : dict of str to object, optional
        The arguments by keyword.

    Returns
    -------
    Translation
        The procedure, and how arguments and results belong to it.

    Raises
    ------
    UnsupportedCodeError
        For code that cannot be translated; it names the line, the reason and the remedy.

    Examples
    --------
    >>> from gradtape.ir.types import FLOAT64, aval
    >>> def total(x, n):
    ...     s = 0.0
    ...     for i in range(n):
    ...         s += x[i] ** 2
    ...     return s
    >>> total.__module__ = "__main__"  # functions of gradtape's own modules are not translated
    >>> translated = translate(total, (aval((3,), FLOAT64), 2))
    >>> translated.procedure.result_types, translated.result
    ((f64[],), 0)
    """
    return translate_leaves(function, *flatten((tuple(arguments), keywords or {})))


def translate_leaves(
    function: Callable[..., Any],
    leaves: Sequence[Any],
    spec: TreeSpec,
    strides: Sequence[Shape | None] | None = None,
    strides_of: Callable[[Any], Shape | None] = lambda array: None,
) -> Translation:
    """Translate a function to a procedure, as `translate` does, for arguments that are flattened already.

    Objects of the user's classes are containers because they hold arrays: with `Aval` in them they would be leaves.

    Parameters
    ----------
    function : callable
        A function of Python, or one that Numba compiles.
    leaves : sequence
        The leaves of ``(arguments, keywords)``. Those that are `Aval` are not known.
    spec : TreeSpec
        The structure.
    strides : sequence of tuple of int or None, optional
        For each leaf the strides, in elements, of an array that is not C-contiguous, or ``()`` where they are not known: they decide
        which reshapes are views.
    strides_of : callable, optional
        Returns the same of an array that the code reads from outside.
    """
    before, builder = here.site, here.builder
    strides = [None] * len(leaves) if strides is None else strides
    try:
        translator = _Translator(function, [None] * len(leaves), strides_of)
        translation = translator.translate(leaves, spec)
        build = translator.build
        if build.reads_order and (
            build.loses_order or any(strides_of_leaf is not None for strides_of_leaf in strides)
        ):
            translator = _Translator(function, strides, strides_of)
            translator.build.keeps_order = True
            translation = translator.translate(leaves, spec)
        elif any(strides_of_leaf is not None for strides_of_leaf in strides):
            translation.orders.update(dict.fromkeys(range(len(translation.procedure.result_types)), ()))
        return translation
    except RecursionError:
        name = getattr(function, "__name__", "the function")
        raise UnsupportedCodeError(
            f"{name} calls functions inside each other too deeply", where=here.site
        ) from None
    finally:
        here.site, here.builder = before, builder


class _Translator:
    """The state of one translation."""

    def __init__(
        self, function: Any, strides: Sequence[Shape | None], strides_of: Callable[[Any], Shape | None]
    ) -> None:
        self.strides = strides
        self.strides_of = strides_of
        python = getattr(function, "py_func", function)
        code = getattr(python, "__code__", None)
        name = getattr(python, "__name__", "f")
        self.name = name if name.isidentifier() else "f"
        self.function = function
        here.builder = self.build = TranslationBuilder(self.name)
        here.site = None if code is None else Site(code.co_filename, code.co_firstlineno, name)
        self.interpreter = Interpreter(self.build, self.capture)
        self.interpreter.for_loop = for_loop
        self.interpreter.while_loop = while_loop
        self.interpreter.call = call
        self.interpreter.attribute = attribute
        self.captured: dict[int, tuple[Any, Any]] = {}
        self.views: list[ArrayView] = []
        self.results: list[Content] = []
        self.orders: dict[int, tuple[int, ...]] = {}
        self.types: list[Aval] = []

    def translate(self, leaves: Sequence[Any], spec: TreeSpec) -> Translation:
        positions = [position for position, leaf in enumerate(leaves) if isinstance(leaf, Aval)]
        parameters = {
            position: self.laid_out(self.parameter(f"x{position}", leaves[position]), self.strides[position])
            for position in positions
        }
        entered = list(self.build.start)
        arguments = [parameters.get(position, leaf) for position, leaf in enumerate(leaves)]
        args, kwargs = unflatten(spec, arguments)
        abstract = tuple(map(self.interpreter_value, args))
        named = {name: self.interpreter_value(argument) for name, argument in kwargs.items()}
        result = call(self.interpreter, self.function, abstract, named)
        if result is MISSING or isinstance(result, Conflict):
            refuse("the function returns different kinds of objects on different paths")
        result = self.result(self.interpreter.plain(result, by_item=True))
        mutated = self.mutated(parameters, entered)
        self.copy_written()
        procedure = self.build.finish(self.results, self.types)
        return Translation(
            procedure,
            tuple(positions),
            tuple([array for array, _ in self.captured.values()]),
            result,
            mutated,
            self.interpreter.noted,
            self.orders,
        )

    def interpreter_value(self, argument: Any) -> Any:
        """Return an argument as an abstract value: lists become lists of the interpreter."""
        if isinstance(argument, list):
            list_value = self.interpreter.new_list([self.interpreter_value(item) for item in argument])
            self.interpreter.arguments.add(list_value)
            return list_value
        if type(argument) is tuple:
            return tuple([self.interpreter_value(item) for item in argument])
        if is_concrete_or_traced(argument):
            return self.capture(argument, "constant")
        return argument

    def parameter(self, name: str, type_: Aval) -> Value | ArrayView:
        """Add a parameter: a number, or an array."""
        build = self.build
        if not type_.shape:
            value = Value(type_)
            value.name = build.unique(name)
            build.parameters.append(value)
            build.types.append(type_)
            return value
        pointer = build.array(name, type_.shape, type_.dtype)
        view = ArrayView.of_pointer(build, pointer, type_.shape)
        self.views.append(view)
        return view

    def laid_out(self, parameter: Any, strides: Shape | None) -> Any:
        """Return an array argument in memory that has the strides of the argument; the parameter itself is C-contiguous."""
        if strides is None or not isinstance(parameter, ArrayView):
            return parameter
        if not strides and parameter.ndim:
            self.build.unknown_orders.add(parameter.pointer.memory)
            return parameter
        first, size = span_of_strides(parameter.aval.shape, strides)
        with self.build.at_start():
            pointer = self.build.allocate(parameter.pointer.name, size, parameter.dtype)
            view = ArrayView(self.build, pointer, first, parameter.shape, strides, parameter.writable)
            store(view, parameter)
        return view

    def capture(self, array: Any, name: str) -> Any:
        """Return an array from outside, or a traced number, as a parameter."""
        entry = self.captured.get(id(array))
        if entry is None:
            if issubclass(type(array), np.ndarray):  # a traced array says that it is one
                if not array.shape:
                    return array[()]
                type_ = aval(array.shape, check_dtype(array.dtype, name))
            else:
                type_ = aval(array.value.shape, array.value.dtype)
            parameter = self.parameter(name, type_)
            if isinstance(parameter, ArrayView):
                parameter.writable = False
                strides = self.strides_of(array)
                self.build.loses_order |= strides is not None
                parameter = self.laid_out(parameter, strides if self.build.keeps_order else None)
            entry = self.captured[id(array)] = (array, parameter)
        return entry[1]

    # Results

    def result(self, value: Any) -> Any:
        """Return what the function returns with result numbers for numbers and arrays."""
        value = settled(value)
        if isinstance(value, Expression):
            if value.ndim == 0:
                return self.add(value.element((), Loads()))
            return self.add_array(value)
        if isinstance(value, Value):
            return self.add(value)
        if type(value) is int:
            return self.add(literal(value))
        if isinstance(value, np.generic):
            return self.add(as_value(value))
        if isinstance(value, tuple):
            items = [self.result(item) for item in value]
            return tuple(items) if type(value) is tuple else type(value)._make(items)  # type: ignore[attr-defined]
        if isinstance(value, list):
            return [self.result(item) for item in value]
        if value is None or is_number(value) or isinstance(value, str):
            return value
        refuse(f"{shown(value)} is returned", "return numbers, arrays and tuples of these")

    def add(self, value: Value) -> int:
        self.results.append(value)
        self.types.append(value.aval)
        return len(self.results) - 1

    def add_array(self, array: Expression) -> int:
        """Add an array to the results: the memory that it fills, or a copy."""
        type_ = array.aval
        if isinstance(array, ArrayView) and self.fills_memory(array):
            pointer = array.pointer
        else:
            pointer = self.build.allocate("result", type_.size, type_.dtype)
            store(ArrayView.of_pointer(self.build, pointer, type_.shape), array)
        self.results.append(pointer)
        self.types.append(type_)
        if type_.ndim > 1:
            self.note_order(array)
        return len(self.results) - 1

    def note_order(self, array: Expression) -> None:
        """Note the order of an array that is returned, which is that of NumPy's if this translation keeps it."""
        number = len(self.results) - 1
        if not is_order_known(array) or (self.build.loses_order and not self.build.keeps_order):
            self.orders[number] = ()
        elif list(order := memory_order(array, "K")) != list(range(array.ndim)):
            self.orders[number] = tuple(order)

    def fills_memory(self, array: ArrayView) -> bool:
        """Return whether an array is the whole of a memory that the procedure allocates outermost, and is no result yet."""
        if array.offset != 0 or not array.is_contiguous or array.pointer in self.results:
            return False
        for statement in (*self.build.start, *self.build.body):
            if isinstance(statement, Allocate) and statement.out is array.pointer:
                size = statement.size.data
                return size is not None and int(size) == array.aval.size
        return False

    def mutated(self, parameters: dict[int, Any], entered: Sequence[Statement]) -> dict[int, int]:
        """Add the new contents of arguments that are written, other than on entry, to the results."""
        later = [statement for statement in self.build.start if statement not in entered]
        written = {pointer.memory for pointer in stored((*later, *self.build.body))}
        copies = {}
        for position, view in parameters.items():
            if isinstance(view, ArrayView) and view.pointer.memory in written:
                copy = ArrayView(self.build, view.pointer, view.offset, view.shape, view.strides)
                copies[position] = self.add_copy(copy)
        return copies

    def add_copy(self, view: ArrayView) -> int:
        type_ = view.aval
        pointer = self.build.allocate("result", type_.size, type_.dtype)
        store(ArrayView.of_pointer(self.build, pointer, type_.shape), view)
        self.results.append(pointer)
        self.types.append(type_)
        return len(self.results) - 1

    def copy_written(self) -> None:
        """Let what is written be a copy of the parameter instead of the parameter."""
        build = self.build
        statements = list(walk((*build.start, *build.body)))
        written = {pointer.memory for pointer in stored(statements)}
        for view in self.views:
            pointer = view.pointer
            if pointer.memory not in written:
                continue
            position = build.parameters.index(pointer)
            entry = Pointer(pointer.name, Memory(f"{pointer.name}.entry", pointer.dtype))
            build.parameters[position] = entry
            before, build.start[:] = list(build.start), []
            with build.at_start():
                size = view.aval.size
                build.append(Allocate(pointer, as_value(np.int64(size))))
                with build.loop(size) as index:
                    build.store(pointer, index, build.load(entry, index))
            build.start.extend(before)
