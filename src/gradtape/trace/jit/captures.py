"""Captures: the values from outside that a function reads, found before it is traced, and a copy of the function in which they are inputs.

The walk begins with the function and visits what its code names: closure cells, global names, defaults, attributes, entries of
containers, other functions. Each object becomes a step of the checks (see `capture_steps`). Arrays and floating-point numbers
become hidden inputs: the copy of the function, of the functions that it calls, and of the objects and containers that hold
them, have traced arrays in their place. The user's own objects are not changed, so other threads see nothing of the trace.

Objects that cannot be copied stay as they are, and their arrays and numbers are checked by value.
"""

from __future__ import annotations

import builtins
import enum
import functools
import io
import operator
import os
import random
import sys
import time
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from types import (
    BuiltinFunctionType,
    CellType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import Any, Final

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray
from gradtape.ir.types import aval
from gradtape.kinds.refusals import copy_of, is_labelled
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.capture_steps import Check, Place, Source, Step, reference_to, type_key
from gradtape.trace.jit.guards import Trace
from gradtape.trace.jit.objects import (
    BUILTINS,
    has_foreign_code,
    is_generator,
    is_plain_object,
    is_record,
    is_user_class,
    reads_fields,
)
from gradtape.trace.jit.signature import as_input, layout_of_input
from gradtape.trace.patching.copies import (
    ABSENT,
    ReferenceCopy,
    Substitute,
    closure_of,
    content_of,
    copy_function,
    copy_module,
    copy_object,
    is_filled,
    restore_content,
    set_content,
    slots_of,
)
from gradtape.trace.patching.name_reads import Reads, reads_of
from gradtape.trace.patching.undo import Undo
from gradtape.trace.source.sites import PACKAGE, is_user_file

MOST_STEPS: Final = 4096
"""The number of steps after which objects are checked by identity alone."""

MOST_ITEMS: Final = 64
"""The size up to which the numbers in a container become inputs of their own."""

_PLAIN: Final = (int, float, complex, bool, str, bytes, type(None))
_WRITABLE: Final = (list, dict, set, deque, OrderedDict, defaultdict)
_UNHASHED: Final = frozenset({"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__"})

VARYING_MODULES: Final = frozenset({"datetime", "numpy", "os", "random", "secrets", "time", "uuid"})

_CLOCK = "a clock: the compiled function has the time of the trace"
VARYING_FUNCTIONS: Final[dict[Any, str]] = {
    open: "a file: the compiled function has what was read in the trace",
    input: "what a user types: the compiled function has what was typed in the trace",
    os.urandom: "random bytes: the compiled function has those of the trace",
    **{
        getattr(time, name): _CLOCK
        for name in dir(time)
        if name.startswith(("time", "perf_counter", "monotonic", "process_time", "thread_time"))
        and callable(getattr(time, name))
    },
}
"""Functions whose results differ in each call, with the reason why compiled calls do not repeat them."""

ENVIRONMENT: Final = frozenset({"environ", "environb", "expanduser", "expandvars", "getenv", "getenvb"})
"""Names of the module `os` and of `os.path` by which code reads environment variables."""

_AT_CONSTRUCTION: Final = frozenset(
    {"__init__", "__new__", "__post_init__", "__init_subclass__", "__class_getitem__", "__repr__", "__del__"}
)


class CaptureWalk:
    """A walk over the captures of a function.

    Parameters
    ----------
    trace : Trace
        The tag of the arrays that stand for hidden inputs.
    leaves : sequence
        The arguments of the call, flattened.
    substitutes : bool
        Whether arrays and numbers become inputs; else they are checked by value.
    varying : set of str
        The names of integers that have changed between calls; they become inputs.

    Attributes
    ----------
    steps : list of Step
        The reads, with their checks.
    inputs : list of int
        The steps whose objects are hidden inputs.
    arrays : list of Array
        The traced arrays that stand for the hidden inputs.
    unrepeatable : dict of str to str
        Names of objects whose effects compiled calls do not repeat, with the reasons.
    generators : list of int
        The steps whose objects are random number generators of NumPy's.
    random : list of Generator or RandomState
        These generators.
    may_draw : bool
        Whether the function may draw random numbers from generators of NumPy's.
    """

    def __init__(
        self,
        trace: Trace,
        leaves: Sequence[Any],
        substitutes: bool = True,
        varying: frozenset[str] = frozenset(),
    ) -> None:
        self.trace = trace
        self.leaves = leaves
        self.substitutes = substitutes
        self.varying = varying
        self.attributes: set[str] = set()
        self.everything = False
        self.asks_types = False
        self.asks = False
        self.reads_records = False
        self.read_attributes: set[str] = set()
        self.write_only: set[int] = set()
        self._begin()

    def _begin(self) -> None:
        self.steps: list[Step] = []
        self.inputs: list[int] = []
        self.arrays: list[Array] = []
        self.contents: list[NDArray] = []
        self.things: list[Any] = []
        self.unrepeatable: dict[str, str] = {}
        self.generators: list[int] = []
        self.random: list[Any] = []
        self.unfollowed: list[Any] = []
        self.may_draw = False
        self.substituted: list[Substitute] = []
        self.uncopied: list[Any] = []
        self.logs: set[str] = set()
        self._read_names: set[str] = set()
        self._written_names: set[str] = set()
        self._stored_names: set[str] = set()
        self._containers: dict[int, set[str]] = {}
        self._functions: list[tuple[FunctionType, FunctionType]] = []
        self._memo: dict[tuple[int, bool], tuple[Any, Any, int]] = {}
        self._cells: dict[int, tuple[CellType, CellType, str]] = {}
        self._namespaces: dict[int, _Namespace] = {}
        self._back: dict[int, tuple[Any, Any]] = {}
        self._classes: dict[tuple[type, bool], dict[str, Any]] = {}

    def function(self, function: Callable[..., Any]) -> Any:
        """Walk over a function and the objects among the arguments; return the copy of the function, and the copies of the leaves."""
        while True:
            known = self._reads_so_far()
            self._begin()
            copy = self.visit(function, Source.FIXED, -1, function, "the function")
            leaves = [
                self.visit(leaf, Source.ARGUMENT, -1, number, f"argument {number}")
                if reads_fields(leaf)
                else leaf
                for number, leaf in enumerate(self.leaves)
            ]
            self._written_names -= self._read_names
            self.logs = self._written_names - self._stored_names
            self.write_only |= {
                number for number, names in self._containers.items() if names <= self._written_names
            }
            if self._reads_so_far() == known:
                for each in self.substituted:
                    each.initial = content_of(each.copy)
                return copy, leaves

    def _reads_so_far(self) -> tuple[Any, ...]:
        """Return what a pass over the captures has to know beforehand."""
        attributes = len(self.attributes), len(self.read_attributes), len(self.write_only)
        return *attributes, self.everything, self.asks_types, self.asks, self.reads_records

    # Steps

    def _step(self, source: Source, parent: int, key: Any, check: Check, expected: Any, name: str) -> int:
        self.steps.append(Step(source, parent, key, check, expected, name))
        return len(self.steps) - 1

    def _add_reads(self, reads: Reads) -> None:
        self.attributes |= reads.attributes
        self.read_attributes |= reads.attributes - reads.appended
        self.asks_types = self.asks_types or reads.asks_types
        self.everything = self.everything or reads.everything
        self.asks = self.asks or reads.asks

    def visit(
        self, thing: Any, source: Source, parent: int, key: Any, name: str, copying: bool = True
    ) -> Any:
        """Append the steps for an object and what is reached from it; return the object that the traced function sees instead."""
        kind = type(thing)
        at = (source, parent, key)
        copying = copying and self.substitutes
        if kind in _PLAIN or thing is Ellipsis or thing is NotImplemented:
            return self._number(thing, kind, at, name, copying)
        if kind in _WRITABLE:
            self._containers.setdefault(id(thing), set()).add(name)
        known = self._memo.get((id(thing), copying))
        if known is not None:
            fixed = source is Source.FIXED
            if not fixed:
                self._step(*at, Check.AS_STEP, known[2], name)
            return known[1]
        if id(thing) in self.write_only and kind in _WRITABLE and source is not Source.FIXED:
            return self._written(thing, at, name, copying)
        if issubclass(kind, np.generic):
            return self._scalar(thing, at, name, copying)
        if issubclass(kind, np.ndarray):
            return self._array(thing, at, name, copying)
        if isinstance(thing, Handle):
            return self._handle(thing, at, name, copying)
        if is_generator(thing):
            return self._generator(thing, at, name)
        if kind is FunctionType:
            return self._function(thing, at, name, copying)
        if kind is MethodType:
            return self._method(thing, at, name, copying)
        if isinstance(thing, type):
            return self._by_identity(thing, at, name, lambda step: self._class(thing, step))
        if isinstance(thing, ModuleType):
            return self._module(thing, at, name, copying)
        if kind in (dict, OrderedDict, defaultdict):
            return self._dict(thing, at, name, copying)
        if kind is list or isinstance(thing, tuple):
            return self._sequence(thing, at, name, copying)
        if kind in (set, frozenset, bytearray, deque, MappingProxyType):
            return self._collection(thing, at, name, copying)
        if isinstance(thing, functools.partial):
            return self._partial(thing, at, name, copying)
        if kind is weakref.ref:
            return self._reference(thing, at, name, copying)
        if kind is BuiltinFunctionType or kind in (
            types.BuiltinMethodType,
            types.MethodWrapperType,
            np.ufunc,
        ):
            return self._builtin(thing, at, name)
        if is_plain_object(thing):
            return self._object(thing, at, name, copying)
        return self._opaque(thing, at, name, copying)

    def _remember(self, thing: Any, copy: Any, step: int, copying: bool) -> Any:
        self._memo[id(thing), copying] = thing, copy, step
        if copy is not thing:
            self._back[id(copy)] = copy, thing
        return copy

    def _by_identity(
        self, thing: Any, at: Place, name: str, inside: Callable[[int], Any] | None = None
    ) -> Any:
        """Check an object by identity."""
        reference = None if isinstance(thing, type | ModuleType) else reference_to(thing)
        if at[0] is Source.FIXED:
            step = self._step(*at, Check.NOTHING, None, name)
        elif reference is None:
            step = self._step(*at, Check.SAME, thing, name)
        else:
            step = self._step(*at, Check.ALIVE, reference, name)
        for copying in (True, False):
            self._memo[id(thing), copying] = thing, thing, step
        if inside is not None and len(self.steps) < MOST_STEPS:
            inside(step)
        return thing

    # Numbers and arrays

    def _input(self, thing: Any, at: Place, name: str, *, weak: bool = False) -> Array:
        form = type_key(thing)
        step = self._step(*at, Check.INPUT, form, name)
        if isinstance(thing, Handle):
            known = thing.value
            value = Value(known.aval, tags=(self.trace,))
        else:
            array = as_input(thing)
            value = Value(aval(array.shape, array.dtype, weak), tags=(self.trace,))
        copy = Array(value)
        copy._contiguous = layout_of_input(thing)
        self.inputs.append(step)
        self.arrays.append(copy)
        self.things.append(thing)
        if weak:
            self._back[id(copy)] = copy, thing
        else:
            self._remember(thing, copy, step, True)
        return copy

    def _number(self, thing: Any, kind: type, at: Place, name: str, copying: bool) -> Any:
        if at[0] is Source.FIXED:
            return thing
        varies = kind is int and name in self.varying
        if copying and not self.asks_types and (kind is float or kind is complex or varies):
            return self._input(thing, at, name, weak=True)
        self._step(*at, Check.SAME, thing, name)
        return thing

    def _scalar(self, thing: Any, at: Place, name: str, copying: bool) -> Any:
        if copying and thing.dtype.kind in "fc" and _is_numeric(thing.dtype):
            return self._input(thing, at, name)
        step = self._step(*at, Check.SAME, thing, name)
        return self._remember(thing, thing, step, copying)

    def _array(self, thing: Any, at: Place, name: str, copying: bool) -> Any:
        if copying and type(thing) is np.ndarray and _is_numeric(thing.dtype):
            return self._input(thing, at, name)
        content = np.array(thing, subok=False) if type(thing) is not np.ndarray else thing.copy()
        step = self._step(*at, Check.CONTENT, content, name)
        return self._remember(thing, thing, step, copying)

    def _handle(self, thing: Handle, at: Place, name: str, copying: bool) -> Any:
        # What a tape has recorded is known to the arrays themselves, not to others with the same numbers.
        if type(thing) is Array and copying and not self.reads_records:
            return self._input(thing, at, name)
        return self._by_identity(thing, at, name)

    def _generator(self, thing: Any, at: Place, name: str) -> Any:
        """Check a random number generator for its type: each call draws from the one that it finds."""
        fixed = at[0] is Source.FIXED
        step = self._step(*at, Check.NOTHING if fixed else Check.TYPE, type(thing), name)
        self.generators.append(step)
        self.random.append(thing)
        self.may_draw = True
        for copying in (True, False):
            self._remember(thing, thing, step, copying)
        return thing

    # Functions

    def _function(self, thing: FunctionType, at: Place, name: str, copying: bool) -> Any:
        """Check a function by identity and code, and walk over its globals, closure and defaults; return its copy."""
        users = is_user_file(thing.__code__.co_filename)
        if thing.__module__ in ("os", "posixpath", "ntpath") and thing.__name__ in ENVIRONMENT:
            self._environment()
        if not users and _encloses_libraries_only(thing):
            return self._by_identity(thing, at, name)
        if at[0] is Source.FIXED:
            step = self._step(*at, Check.NOTHING, None, name)
        else:
            step = self._step(*at, Check.ALIVE, weakref.ref(thing), name)
        label = thing.__name__
        code = thing.__code__
        self._step(
            Source.ATTRIBUTE,
            step,
            "__code__",
            Check.SAME if users else Check.NOTHING,
            code,
            f"the code of {label}",
        )
        if len(self.steps) >= MOST_STEPS:
            return self._remember(thing, thing, step, copying)
        space = thing.__globals__
        copy: Any = thing
        if copying:
            if users:
                space = self._namespace(space).copy
            fresh = tuple([self._cell(cell)[1] for _, cell in closure_of(thing)])
            copy = copy_function(thing, space, fresh)
            self._functions.append((copy, thing))
        self._remember(thing, copy, step, copying)
        reads = reads_of(code)
        if users:
            self._add_reads(reads)
            self._namespace(thing.__globals__).read(reads, copying)
        self._closure(thing, copying, reads)
        self._defaults(thing, copy, step, label, copying)
        return copy

    def _note_use(self, name: str, logs: bool, stores: bool = False) -> None:
        """Note whether code reads a container, or only appends to it."""
        (self._written_names if logs or stores else self._read_names).add(name)
        if stores:
            self._stored_names.add(name)

    def _cell(self, cell: CellType) -> tuple[CellType, CellType, str]:
        known = self._cells.get(id(cell))
        if known is None:
            known = self._cells[id(cell)] = cell, CellType(), ""
        return known

    def _closure(self, thing: FunctionType, copying: bool, reads: Reads) -> None:
        """Walk over the closure variables of a function, and fill the cells of its copy."""
        for variable, cell in closure_of(thing):
            name = f"the closure variable {variable!r} of {thing.__name__}"
            original, copy, label = self._cell(cell)
            self._note_use(label or name, variable in reads.logs, variable in reads.stores)
            try:
                content = original.cell_contents
            except ValueError:
                self._step(Source.CELL, -1, original, Check.ABSENT, None, name)
                continue
            own = (thing.__module__ or "").partition(".")[
                0
            ] == PACKAGE  # whose closure variables are assigned to once
            place: Place = (Source.FIXED, -1, content) if own else (Source.CELL, -1, original)
            if not copying:
                self.visit(content, *place, name, False)
                continue
            if self._cells[id(cell)][2]:
                continue
            self._cells[id(cell)] = original, copy, name
            if variable == "__class__":
                self._by_identity(content, (Source.CELL, -1, original), name)
                copy.cell_contents = content
                continue
            copy.cell_contents = self.visit(content, *place, name)
            self._substitute(original, copy, name)

    def _defaults(
        self, thing: FunctionType, copy: FunctionType, step: int, label: str, copying: bool
    ) -> None:
        """Walk over the defaults and attributes of a function, and set those of its copy."""
        defaults, named = thing.__defaults__, thing.__kwdefaults__
        if not is_user_file(thing.__code__.co_filename):
            if copy is not thing:
                copy.__defaults__, copy.__kwdefaults__ = defaults, named
            return
        if defaults is not None:
            name = f"the defaults of {label}"
            made = self.visit(defaults, Source.ATTRIBUTE, step, "__defaults__", name, copying)
            if copy is not thing:
                copy.__defaults__ = made
        if named is not None:
            name = f"the defaults of {label}"
            made = self.visit(named, Source.ATTRIBUTE, step, "__kwdefaults__", name, copying)
            if copy is not thing:
                copy.__kwdefaults__ = dict(made)
        wanted = [key for key in thing.__dict__ if key in self.attributes and key != "__wrapped__"]
        for key in wanted:
            name = f"the attribute {key!r} of {label}"
            made = self.visit(thing.__dict__[key], Source.FIELD, step, key, name, copying)
            if copy is not thing:
                copy.__dict__[key] = made
        if wanted and copy is not thing:
            self._substitute(
                thing.__dict__, copy.__dict__, f"the function {label}", "the attribute {!r} of " + label
            )

    def _namespace(self, namespace: dict[str, Any]) -> _Namespace:
        known = self._namespaces.get(id(namespace))
        if known is None:
            known = self._namespaces[id(namespace)] = _Namespace(self, namespace)
        return known

    def _method(self, thing: MethodType, at: Place, name: str, copying: bool) -> Any:
        step = self._step(*at, Check.TYPE, MethodType, name)
        function = self.visit(thing.__func__, Source.ATTRIBUTE, step, "__func__", name, copying)
        owner = self.visit(thing.__self__, Source.ATTRIBUTE, step, "__self__", f"self of {name}", copying)
        if function is thing.__func__ and owner is thing.__self__:
            return thing
        return MethodType(function, owner)

    def _partial(self, thing: functools.partial[Any], at: Place, name: str, copying: bool) -> Any:
        step = self._step(*at, Check.TYPE, type(thing), name)
        parts = [
            self.visit(getattr(thing, part), Source.ATTRIBUTE, step, part, f"{name} ({part})", copying)
            for part in ("func", "args", "keywords")
        ]
        function, args, keywords = parts
        if function is thing.func and args is thing.args and keywords is thing.keywords:
            return thing
        return type(thing)(function, *args, **keywords)

    def _reference(self, thing: Any, at: Place, name: str, copying: bool) -> Any:
        target = thing()
        step = self._step(*at, Check.SAME, thing, name)
        if target is None or not copying:
            return self._remember(thing, thing, step, copying)
        made = self.visit(target, Source.REFERENT, step, None, name, copying)
        if made is target:
            return self._remember(thing, thing, step, copying)
        return self._remember(thing, ReferenceCopy(made), step, copying)

    def _builtin(self, thing: Any, at: Place, name: str) -> Any:
        if thing in VARYING_FUNCTIONS:
            self.unrepeatable[name] = VARYING_FUNCTIONS[thing]
        self._note_generator(getattr(thing, "__self__", None))
        return self._by_identity(thing, at, name)

    # Classes, modules and objects

    def _class(self, cls: type, step: int) -> None:
        self._check_class(cls, step, whole=True)

    def _check_class(self, cls: type, step: int, *, whole: bool) -> dict[str, Any]:
        """Check the attributes of a class of the user's, and return those for instances, by name."""
        known = self._classes.get((cls, whole))
        if known is not None:
            return known
        found: dict[str, Any] = {}
        self._classes[cls, whole] = found
        listed = []
        for owner in cls.__mro__:
            if not is_user_class(owner):
                continue
            for name, item in list(vars(owner).items()):
                special = name.startswith("__") and name.endswith("__")
                if name in _UNHASHED or not (special or self.everything or name in self.attributes):
                    continue
                if special and not whole and name in _AT_CONSTRUCTION:
                    continue
                reference = reference_to(item) if not isinstance(item, type) else None
                listed.append((owner, name, item if reference is None else reference, reference is not None))
                if name not in found:
                    found[name] = item
            inherited = {name for base in owner.__mro__[1:] for name in vars(base)}
            absent = (self.attributes if self.asks else self.attributes & inherited) - vars(owner).keys()
            listed += [(owner, name, ABSENT, False) for name in sorted(absent)]
        if is_user_class(type(cls)) and not issubclass(cls, type):
            self._check_class(type(cls), step, whole=True)
        if not listed:
            return found
        self._step(Source.FIXED, -1, cls, Check.CLASS, listed, f"the class {cls.__name__}")
        for owner, name, *_ in listed:  # overridden ones as well, which super() finds
            item = vars(owner).get(name)
            for function in _functions_of(item):
                self._visit_uncopied(function, f"{owner.__name__}.{name}")
            if hasattr(type(item), "__get__") and is_user_class(
                type(item)
            ):  # a descriptor, whose code is run
                self.visit(item, Source.FIXED, -1, item, f"{owner.__name__}.{name}", False)
        for name, item in found.items():
            if whole and not _functions_of(item) and not callable(item) and not name.startswith("__"):
                self.visit(item, Source.FIXED, -1, item, f"{cls.__name__}.{name}", False)
        return found

    def _visit_uncopied(self, function: Any, name: str) -> None:
        """Walk over a function that is not copied: what it reads is checked by value."""
        if (id(function), False) not in self._memo:
            self.visit(function, Source.FIXED, -1, function, name, False)

    def _module(self, thing: ModuleType, at: Place, name: str, copying: bool) -> Any:
        file = getattr(thing, "__file__", None)
        users = thing.__name__ == "__main__" or (file is not None and is_user_file(file))
        if not users or thing.__name__.partition(".")[0] in (PACKAGE, "numpy", "scipy"):
            self._note_functions(thing)
            return self._by_identity(thing, at, name)
        if at[0] is Source.FIXED:
            step = self._step(*at, Check.NOTHING, None, name)
        else:
            step = self._step(*at, Check.SAME, thing, name)
        space = self._namespace(vars(thing))
        copy: Any = thing
        if copying:
            copy = space.module(thing)
        self._remember(thing, copy, step, copying)
        space.attributes(copying)
        return copy

    def _environment(self) -> None:
        """Check the environment variables by value, all of them: which ones are read is known when the code runs."""
        variables: dict[Any, Any] = os.environ._data  # type: ignore[attr-defined] # a dict, of which reads run no code
        if (id(variables), False) in self._memo:
            return
        name = "the environment"
        step = self._step(Source.FIXED, -1, variables, Check.KEYS, (dict, tuple(variables)), name)
        self._memo[id(variables), False] = variables, variables, step
        for key, content in list(variables.items()):
            label = f"the environment variable {os.fsdecode(key)!r}"
            self._step(Source.ENTRY, step, key, Check.SAME, content, label)

    def _note_functions(self, thing: ModuleType) -> None:
        """Note the functions of a library's module whose results differ in each call, and reads of the environment."""
        if thing.__name__ in ("os", "posixpath", "ntpath") and self.attributes & ENVIRONMENT:
            self._environment()
        if thing.__name__ == "numpy" and "random" in self.attributes:
            self._note_functions(np.random)
        if thing.__name__.partition(".")[0] not in VARYING_MODULES:
            return
        for key in self.attributes & vars(thing).keys():
            function = vars(thing)[key]
            if _hashable(function) and function in VARYING_FUNCTIONS:
                self.unrepeatable[f"{thing.__name__}.{key}"] = VARYING_FUNCTIONS[function]
            self._note_generator(getattr(function, "__self__", None))
            self.may_draw = self.may_draw or function is np.random.default_rng

    def _note_generator(self, thing: Any) -> None:
        """Note a generator of which a function is a method."""
        self.may_draw = self.may_draw or is_generator(thing)
        if isinstance(thing, random.Random):
            self.unfollowed.append(thing)

    def _object(self, thing: Any, at: Place, name: str, copying: bool) -> Any:
        """Walk over the attributes and methods of an object that code reads; return a copy of the object with copies of these."""
        cls = type(thing)
        reads_all = self.everything or is_record(cls) or has_foreign_code(cls)
        fields = getattr(thing, "__dict__", {})
        slots = slots_of(cls)
        own = cls.__module__.partition(".")[0] == PACKAGE
        wanted = [key for key in fields if reads_all or own or key in self.attributes]
        wanted_slots = [
            key for key in slots if (reads_all or own or key in self.attributes) and hasattr(thing, key)
        ]
        reference = reference_to(thing)
        fixed = at[0] is Source.FIXED
        step = self._step(*at, Check.NOTHING if fixed else Check.TYPE, cls, name)
        defined = self._check_class(cls, step, whole=False) if not own else {}
        inherited = [
            key
            for key, item in defined.items()
            if key not in fields and not key.startswith("__") and _is_method(item)
        ]
        constants = [
            key
            for key, item in defined.items()
            if key not in fields and not key.startswith("__") and issubclass(type(item), float | np.ndarray)
        ]
        if not wanted and not wanted_slots and not inherited and not constants:
            # Nothing of it is read by name: it is only compared or passed on.
            if not fixed:
                check = self.steps[step]
                if reference is not None:
                    check.check, check.expected = Check.ALIVE, reference
                else:
                    check.check, check.expected = Check.SAME, thing
            if self.asks and hasattr(thing, "__dict__"):
                self._keys(fields, step, name)
            self._hidden(thing, defined, step, name)
            return self._remember(thing, thing, step, copying)
        if (reads_all or self.asks) and hasattr(thing, "__dict__"):
            self._keys(fields, step, name)
        copy = copy_object(thing) if copying else thing
        if not copying and fields:
            self.uncopied.append(fields)
        self._remember(thing, copy, step, copying)
        label = cls.__name__ if name.startswith(("argument", "self of")) else f"{cls.__name__} ({name})"
        for key in (*wanted, *wanted_slots):
            is_field = key in fields
            content = fields[key] if is_field else getattr(thing, key)
            source = Source.FIELD if is_field else Source.ATTRIBUTE
            described = f"the attribute {key!r} of {label}"
            only_written = key in self.attributes and key not in self.read_attributes
            self._note_use(described, only_written and not (own or reads_all))
            made = self.visit(content, source, step, key, described, copying)
            if copying and made is not content:
                if is_field:
                    copy.__dict__[key] = made
                else:
                    object.__setattr__(copy, key, made)
        self._hidden(thing, defined, step, label)
        if copying and hasattr(thing, "__dict__"):
            for key in inherited:
                function = self.visit(defined[key], Source.FIXED, -1, defined[key], f"{cls.__name__}.{key}")
                if function is not defined[key]:
                    copy.__dict__[key] = MethodType(function, copy)
            for key in constants:
                owner = next(base for base in cls.__mro__ if key in vars(base))
                holder = self._step(
                    Source.FIXED, -1, owner, Check.NOTHING, None, f"the class {owner.__name__}"
                )
                copy.__dict__[key] = self.visit(
                    defined[key], Source.ATTRIBUTE, holder, key, f"{owner.__name__}.{key}"
                )
        if copying:
            self._substitute(
                thing, copy, f"an object of the class {cls.__name__}", "the attribute {!r} of " + label
            )
        return copy

    def _hidden(self, thing: Any, defined: dict[str, Any], step: int, label: str) -> None:
        """Check that an object has no attributes of its own which would hide those of its class, and that empty slots stay empty."""
        cls = type(thing)
        if not hasattr(cls, "__getattr__"):
            for key in self.attributes.intersection(slots_of(cls)):
                if not hasattr(thing, key):
                    self._step(
                        Source.ATTRIBUTE, step, key, Check.ABSENT, None, f"the slot {key!r} of {label}"
                    )
        if not hasattr(thing, "__dict__"):
            return
        for key in sorted((self.attributes & defined.keys()) - vars(thing).keys()):
            self._step(Source.FIELD, step, key, Check.ABSENT, None, f"the attribute {key!r} of {label}")

    def _opaque(self, thing: Any, at: Place, name: str, copying: bool) -> Any:
        """Check an object of an unknown kind by identity, and the arrays that it holds by content."""
        if isinstance(thing, operator.attrgetter | operator.methodcaller):
            named = [part for part in thing.__reduce__()[1] if isinstance(part, str)]
            self.attributes |= {word for part in named for word in part.split(".")}
        if (
            isinstance(thing, io.IOBase)
            and not thing.closed
            and thing not in (sys.stdout, sys.stderr, sys.stdin)
        ):
            self.unrepeatable[name] = (
                "a file: reading from it moves on, and the compiled function reads nothing"
            )
        elif _is_iterator(thing):
            self.unrepeatable[name] = "an iterator: it gives each item once, to the trace"
        self._note_generator(thing)
        self.reads_records = self.reads_records or getattr(type(thing), "reads_records", False)
        if type(thing) is type(os.environ):
            self._environment()
        if is_labelled(thing):
            return self._remember(thing, thing, self._step(*at, Check.DATA, copy_of(thing), name), copying)
        if type(thing).__name__ == "Jitted" and getattr(thing, "site", None) is not None:
            return self._jitted(thing, at, name, copying)

        return self._by_identity(thing, at, name, lambda step: self._content(thing, at, step, name))

    def _content(self, thing: Any, at: Place, step: int, name: str) -> None:
        """Check by value the content of an object that is not copied: arrays, functions, what code reads, all of user objects."""
        cls = type(thing)
        home = cls.__module__.partition(".")[0]
        if home == PACKAGE:
            for key in getattr(thing, "_functions_called", ()):
                self.visit(getattr(thing, key), Source.ATTRIBUTE, step, key, f"{key} of {name}", False)
        users = is_user_class(cls)
        if isinstance(thing, enum.Enum) or (home in ("numpy", "builtins", PACKAGE) and not users):
            return
        if users:
            self._check_class(cls, step, whole=False)
        is_operator = cls.__module__ == "scipy.sparse.linalg._interface"  # it computes with all that it holds
        fields = getattr(thing, "__dict__", {})
        if users and fields:
            self._keys(fields, step, name)
        held = [(Source.FIELD, key, item) for key, item in list(fields.items()) if type(key) is str]
        held += [
            (Source.ATTRIBUTE, key, getattr(thing, key))
            for key in slots_of(cls)
            if isinstance(getattr(cls, key, None), types.MemberDescriptorType) and hasattr(thing, key)
        ]
        for source, key, item in held:
            if (
                users
                or key in self.attributes
                or is_operator
                or issubclass(type(item), np.ndarray)
                or type(item) in (FunctionType, MethodType)
            ):
                self.visit(item, source, step, key, f"{name}.{key}", False)
        if isinstance(thing, dict):
            holder = self._step(*at, Check.KEYS, (cls, tuple(dict.keys(thing))), name)
            for key, item in list(dict.items(thing)):
                self.visit(item, Source.ENTRY, holder, key, f"the entry {key!r} of {name}", False)
        elif isinstance(thing, list):
            holder = self._step(*at, Check.LENGTH, (cls, list.__len__(thing)), name)
            for number, item in enumerate(list.__iter__(thing)):
                self.visit(item, Source.ITEM, holder, number, f"item {number} of {name}", False)
        elif isinstance(thing, set | deque):
            self._step(*at, Check.EQUAL, thing.copy(), name)

    def _keys(self, fields: dict[str, Any], step: int, name: str) -> None:
        """Check the names of the attributes of an object."""
        expected = dict, tuple(fields)
        self._step(Source.ATTRIBUTE, step, "__dict__", Check.KEYS, expected, f"the attributes of {name}")

    def _jitted(self, thing: Any, at: Place, name: str, copying: bool) -> Any:
        fixed = at[0] is Source.FIXED
        step = self._step(
            *at, Check.NOTHING if fixed else Check.ALIVE, None if fixed else weakref.ref(thing), name
        )
        if not copying:
            self._remember(thing, thing, step, copying)
            self.visit(thing.site.function, Source.FIXED, -1, thing.site.function, name, False)
            return thing
        copy = thing.with_function(None)
        self._remember(thing, copy, step, copying)
        copy.site.function = self.visit(thing.site.function, Source.FIXED, -1, thing.site.function, name)
        return copy

    # Containers

    def _written(self, thing: Any, at: Place, name: str, copying: bool) -> Any:
        """Check the type alone of a container that the code writes to and never reads: traces differ in what they write."""
        step = self._step(*at, Check.TYPE, type(thing), name)
        if (
            name in self._stored_names
        ):  # a log has the entries of the traces; an item should be that of the last call
            self.unrepeatable[name] = "it is written to, which compiled calls do not repeat"
        self.uncopied.append(thing)
        return self._remember(thing, thing, step, copying)

    def _dict(self, thing: dict[Any, Any], at: Place, name: str, copying: bool) -> Any:
        # exec and eval put the builtins into their namespace; what code calls of them is seen in the code.
        if thing is vars(builtins):
            return self._by_identity(thing, at, name)
        kind = type(thing)
        if len(thing) > MOST_ITEMS and all(type(item) in _PLAIN for item in thing.values()):
            step = self._step(
                *at, Check.EQUAL, kind(thing) if kind is not defaultdict else thing.copy(), name
            )
            self.uncopied.append(thing)
            return self._remember(thing, thing, step, copying)
        step = self._step(*at, Check.KEYS, (kind, tuple(thing)), name)
        copy: Any = thing.copy() if copying else thing
        self._remember(thing, copy, step, copying)
        changed = False
        for key, item in list(thing.items()):
            made = self.visit(item, Source.ENTRY, step, key, f"the entry {key!r} of {name}", copying)
            if made is not item:
                changed = True
                copy[key] = made
        return self._container(thing, copy, step, changed, name, copying)

    def _sequence(self, thing: Any, at: Place, name: str, copying: bool) -> Any:
        kind = type(thing)
        if len(thing) > MOST_ITEMS and all(type(item) in _PLAIN for item in thing):
            step = self._step(*at, Check.EQUAL, kind(thing) if kind in (list, tuple) else thing, name)
            self.uncopied.append(thing)
            return self._remember(thing, thing, step, copying)
        step = self._step(*at, Check.LENGTH, (kind, len(thing)), name)
        copying = copying and (kind is not list or len(self.steps) < MOST_STEPS)
        copy: Any = list(thing) if copying and kind is list else thing
        self._remember(thing, copy, step, copying)
        items = [
            self.visit(item, Source.ITEM, step, number, f"item {number} of {name}", copying)
            for number, item in enumerate(thing)
        ]
        changed = any(made is not item for made, item in zip(items, thing, strict=True))
        if kind is list:
            if changed:
                copy[:] = items
        elif changed:
            copy = tuple.__new__(kind, items)
            return self._remember(thing, copy, step, copying)
        return self._container(thing, copy, step, changed, name, copying)

    def _collection(self, thing: Any, at: Place, name: str, copying: bool) -> Any:
        """Check a container that is not copied by its items, and the content of these by value."""
        is_mapping = isinstance(thing, MappingProxyType)
        step = self._step(*at, Check.EQUAL, type(thing)(dict(thing) if is_mapping else thing), name)
        self._remember(thing, thing, step, copying)
        self.uncopied.append(thing)
        for item in (thing.values() if is_mapping else thing) if len(thing) <= MOST_ITEMS else ():
            self.visit(item, Source.FIXED, -1, item, f"an item of {name}", False)
        return thing

    def _container(self, thing: Any, copy: Any, step: int, changed: bool, name: str, copying: bool) -> Any:
        if copy is thing:
            self.uncopied.append(thing)
            return thing
        if not changed:
            self.uncopied.append(thing)
            return self._remember(thing, thing, step, copying)
        self._substitute(thing, copy, name, "the entry {!r} of " + name)
        return copy

    def _substitute(
        self, original: Any, copy: Any, name: str, place: str | Callable[[str], str] = "{}"
    ) -> Substitute:
        made = Substitute(original, copy, name, place.format if isinstance(place, str) else place)
        self.substituted.append(made)
        return made

    def begin(self) -> None:
        """Set the data of the placeholders of hidden inputs to those of this call."""
        self.contents = [np.array(as_input(thing)) for thing in self.things]
        for array, content in zip(self.arrays, self.contents, strict=True):
            array.value.data = content
        self.undo = Undo(self.uncopied, self.unfollowed)

    def pin(self, number: int) -> None:
        """Check a hidden input by value from now on, because Python has looked at it."""
        step = self.steps[self.inputs[number]]
        if step.check is Check.INPUT:
            step.check = Check.PINNED
            step.expected = step.expected, self.contents[number]

    def release(self) -> None:
        """Restore the copies from their originals: functions that outlive the trace see no traced arrays, and no cycle is left."""
        for each in self.substituted:
            restore_content(each.copy, each.original)
        for copy, original in self._functions:
            copy.__defaults__, copy.__kwdefaults__ = original.__defaults__, original.__kwdefaults__
        for space in self._namespaces.values():
            space.made = None
        for kept in (self._memo, self._cells, self._namespaces, self._back, self._classes):
            kept.clear()
        self.substituted, self._functions, self.arrays, self.things, self.uncopied = [], [], [], [], []

    def original(self, thing: Any) -> Any:
        """Return the original of a copy."""
        known = self._back.get(id(thing))
        return thing if known is None or known[0] is not thing else known[1]

    def with_originals(self, thing: Any, seen: set[int] | None = None) -> Any:
        """Return the original of a copy; an object that the trace has created is returned with originals for the copies in it."""
        known = self.original(thing)
        if known is not thing:
            return known
        seen = set() if seen is None else seen
        kind = type(thing)
        if kind in _PLAIN or id(thing) in seen:
            return thing
        seen.add(id(thing))
        if isinstance(thing, tuple):
            items = [self.with_originals(item, seen) for item in thing]
            changed = any(made is not item for made, item in zip(items, thing, strict=True))
            return tuple.__new__(kind, items) if changed else thing
        if kind is list:
            held: Any = list(enumerate(thing))
        elif kind is dict:
            held = list(thing.items())
        elif is_plain_object(thing):
            held = list(content_of(thing).items())
        else:
            return thing
        for key, item in held:
            made = self.with_originals(item, seen)
            if made is item:
                continue
            if kind is list:
                thing[key] = made
            else:
                set_content(thing, key, made)
        return thing


class _Namespace:
    """A namespace of globals, and the copy of it that copied functions have."""

    def __init__(self, walk: CaptureWalk, original: dict[str, Any]) -> None:
        self.walk = walk
        self.original = original
        self.label = str(original.get("__name__", "a module"))
        self.made: ModuleType | None = None
        # Only names that the code reads are copied: a function that outlives the trace keeps no other objects alive.
        self.copy: dict[str, Any] = {
            name: content for name, content in original.items() if name.startswith("__")
        }
        self._whole = False
        self._met: set[tuple[str, bool]] = set()
        self.step = walk._step(Source.FIXED, -1, original, Check.NOTHING, None, f"the names of {self.label}")
        walk._substitute(original, self.copy, f"the module {self.label}", self.label_of)

    def read(self, reads: Reads, copying: bool) -> None:
        """Walk over the globals that code reads."""
        if copying and not self._whole and (reads.everything or "globals" in reads.names):
            self._whole = True
            self.copy.update(
                {name: content for name, content in self.original.items() if name not in self.copy}
            )
        for name in sorted(reads.names):
            self.walk._note_use(self.label_of(name), name in reads.logs, name in reads.stores)
            self.visit(name, copying)
        for name in sorted(reads.modules):
            module = sys.modules.get(name)
            if module is not None:
                self.walk.visit(module, Source.FIXED, -1, module, f"the module {name}", False)

    def label_of(self, name: str) -> str:
        """Return the description of a global name for messages."""
        return f"the global {name!r}" if self.label == "__main__" else f"the global {name!r} of {self.label}"

    def visit(self, name: str, copying: bool) -> None:
        """Walk over one name."""
        if (name, copying) in self._met:
            return
        self._met.add((name, copying))
        label = self.label_of(name)
        if name not in self.original:
            self.walk._step(Source.ENTRY, self.step, name, Check.ABSENT, None, label)
            if copying and name in BUILTINS:
                self.copy[name] = BUILTINS[name]
            builtin = vars(builtins).get(name)
            if builtin is not None and _hashable(builtin) and builtin in VARYING_FUNCTIONS:
                self.walk.unrepeatable[name] = VARYING_FUNCTIONS[builtin]
            return
        content = self.original[name]
        made = self.walk.visit(content, Source.ENTRY, self.step, name, label, copying)
        if copying:
            self.copy[name] = made
        else:
            self.copy.setdefault(name, content)

    def attributes(self, copying: bool) -> None:
        """Walk over the attributes of the module that code may read."""
        wanted = self.walk.attributes if self.walk.asks else self.walk.attributes & self.original.keys()
        for name in sorted(wanted):
            self.visit(name, copying)

    def module(self, thing: ModuleType) -> ModuleType:
        if self.made is None:
            self.made = copy_module(thing, self.copy)
        return self.made


def _encloses_libraries_only(function: FunctionType, outer: tuple[FunctionType, ...] = ()) -> bool:
    """Return whether a function encloses only functions of libraries, and constants: a library's decorator has made it.

    A function that encloses itself, or one around it, has been looked at.
    """
    if function in outer:
        return True
    for _, cell in closure_of(function):
        content = cell.cell_contents if is_filled(cell) else None
        if is_filled(cell) and _is_constant(content):
            continue
        if type(content) is not FunctionType or is_user_file(content.__code__.co_filename):
            return False
        if not _encloses_libraries_only(content, (*outer, function)):
            return False
    return True


def _is_constant(content: Any) -> bool:
    """Return whether an object cannot change: a number, a text, a class of a library, a tuple of such, or a dict of flags."""
    if isinstance(content, type):
        module = sys.modules.get(content.__module__)
        return not is_user_file(getattr(module, "__file__", None) or "")
    if type(content) is tuple:
        return all(map(_is_constant, content))
    if type(content) is dict:
        return all(type(flag) is bool for flag in content.values())
    return content is None or type(content) in (bool, int, float, str)


def _functions_of(item: Any) -> list[FunctionType]:
    """Return the functions behind an entry of a class."""
    if isinstance(item, staticmethod | classmethod):
        item = item.__func__
    parts = (item.fget, item.fset) if isinstance(item, property) else (getattr(item, "func", item),)
    return [part for part in parts if type(part) is FunctionType]


def _is_method(item: Any) -> bool:
    return type(item) is FunctionType or type(item).__name__ == "Jitted"


def _is_iterator(thing: Any) -> bool:
    return hasattr(type(thing), "__next__") and hasattr(type(thing), "__iter__")


def _hashable(thing: Any) -> bool:
    return type(thing).__hash__ is not None


def _is_numeric(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biufc" and dtype.char not in "gG"
