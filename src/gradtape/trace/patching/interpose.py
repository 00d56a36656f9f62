"""Interposition: hooks in C functions of Python and NumPy, in each function object, during recordings.

NumPy's protocols (``__array_ufunc__``, ``__array_function__``) look at arguments, but not at the elements of lists; `math.sin`,
``np.float64(x)`` and the methods of ndarrays have no protocol. Each of them calls its C function through a pointer: ufuncs, dispatched
functions and builtin functions through the vectorcall pointer of the object (PEP 590), methods through their `PyMethodDef`, types
through ``tp_new``, and ``y[k]`` through the ``mp_subscript`` of the type of y. This pointer is replaced by the address of a few native
instructions. They call the C function itself, unless there is a recorder and an argument holds an object of certain types; then a
Python function, the hook, is called first. The objects stay the same: no name, identity, hash or signature changes, and a call that does
not concern the hook takes 2 ns more.

Each layout is compared with what Python reports before anything is written. Objects with another layout are left alone.
"""

from __future__ import annotations

import ctypes
import enum
import functools
import sys
from collections.abc import Callable, Iterable
from types import WrapperDescriptorType
from typing import Any, Final

import numpy as np

from gradtape.errors import GradtapeWarning, warn
from gradtape.lower.llvm.writer import read_ll
from gradtape.lower.resident.routine import load_resident
from gradtape.lower.target.host import python_function
from gradtape.reference_counts import keep_for_ever
from gradtape.runtime.call.capi import FREE_THREADED, HEAD, LIST_ITEMS, TUPLE_ITEMS, TYPE, WORD
from gradtape.trace.patching.recorders import COUNT, RECORDERS, before_recording

Hook = Callable[..., Any]

_POINTER: Final = ctypes.c_void_p
_VECTORCALL_OFFSET: Final = HEAD + 5 * WORD
_VECTORCALL_FLAG: Final = 1 << 11
_DEFINITION: Final = {"builtin_function_or_method": HEAD, "method_descriptor": HEAD + 3 * WORD}
"""Offsets of the address of the `PyMethodDef` in these objects."""

_DISPATCHER: Final = HEAD + 2 * WORD
_IMPLEMENTATION: Final = HEAD + 3 * WORD
"""Offsets of the dispatcher and the implementation in a dispatched function of NumPy's."""

_NEW: Final = HEAD + 37 * WORD
_NEW_SLOT: Final = 65
_CALL: Final = HEAD + 14 * WORD
_CALL_SLOT: Final = 50
_MAPPING: Final = HEAD + 12 * WORD
_SUBSCRIPT_SLOT: Final = 5

_VARARGS, _KEYWORDS, _NONE, _ONE, _FAST = 0x1, 0x2, 0x4, 0x8, 0x80
_UNSPECIALISED: Final = _KEYWORDS
"""Flags of no definition of Python's or NumPy's, and none of those by which Cython calls the C function itself."""

_CONVENTION_OF: Final = {
    _ONE: "one",
    _FAST: "fast",
    _FAST | _KEYWORDS: "fast_named",
    _VARARGS: "tuple",
    _VARARGS | _KEYWORDS: "tuple_named",
}


_COUNTED: Final = """%named = call i64 @size(ptr %names)
  %all = add i64 %count, %named"""
_NO_NAMES: Final = """%named = add i64 0, 0
  %all = add i64 %count, 0"""
_OF_TUPLE: Final = f"""%count = call i64 @size(ptr %given)
  %args = getelementptr i8, ptr %given, i64 {TUPLE_ITEMS}
  """
_CONVENTIONS: Final = {
    "call": (
        "ptr %callee, ptr %args, i64 %flags, ptr %names",
        "%count = and i64 %flags, 9223372036854775807\n  " + _COUNTED,
    ),
    "one": (
        "ptr %self, ptr %arg",
        "%args = alloca ptr\n  store ptr %arg, ptr %args\n  %count = add i64 1, 0\n  " + _NO_NAMES,
    ),
    "fast": ("ptr %self, ptr %args, i64 %given", "%count = add i64 %given, 0\n  " + _NO_NAMES),
    "fast_named": (
        "ptr %self, ptr %args, i64 %given, ptr %names",
        "%count = add i64 %given, 0\n  " + _COUNTED,
    ),
    "tuple": ("ptr %self, ptr %given", _OF_TUPLE + _NO_NAMES),
    "tuple_named": ("ptr %self, ptr %given, ptr %keywords", _OF_TUPLE + _NO_NAMES),
    "new": ("ptr %self, ptr %given, ptr %keywords", _OF_TUPLE + _NO_NAMES),
}
"""The parameters of each kind of C function, and the code that computes %args, %count, %named and %all from them."""

_LIST_ITEM: Final = {
    "item": f"""%items_at = getelementptr i8, ptr %list, i64 {LIST_ITEMS}
  %items = load ptr, ptr %items_at
  %at = getelementptr ptr, ptr %items, i64 %k
  %item = load ptr, ptr %at""",
    "looked": "",
    "declarations": "",
}
"""The code that reads item number %k of %list, and what follows when it has been looked at."""

_SHARED_LIST_ITEM: Final = {
    "item": """%item = call ptr @PyList_GetItemRef(ptr %list, i64 %k)
  %gone = icmp eq ptr %item, null
  br i1 %gone, label %shortened, label %held
shortened:
  call void @PyErr_Clear()
  ret i1 false
held:""",
    "looked": "call void @Py_DecRef(ptr %item)",
    "declarations": "declare ptr @PyList_GetItemRef(ptr, i64)\ndeclare void @PyErr_Clear()",
}
"""The same in a Python without its lock, where another thread may change the list meanwhile."""


_BY_TYPE: Final = 0
"""Stands for the address of the function that calls an object without a vectorcall pointer."""


def _by_type() -> int:
    """Return the address of the C function that calls objects by their type; 0 where this Python does not export it."""
    return python_function("_PyObject_MakeTpCall")


class When(enum.Enum):
    """The calls, during recordings, that a hook is called for."""

    ALWAYS = "always"
    """All calls."""
    NO_ARRAY = "other"
    """All calls but those with one ndarray and nothing else."""
    ANYWHERE = "anywhere"
    """Calls with a traced array, as an argument or in lists and tuples."""
    NESTED = "nested"
    """Calls with a traced array in lists and tuples."""
    WITHIN = "within"
    """Calls with a traced array in lists and tuples that are in lists and tuples."""


class FunctionPointer:
    """A pointer to a C function in the memory of an object, to be replaced.

    Attributes
    ----------
    owner : object
        Whose pointer it is.
    convention : str
        How the function is called; see `_CONVENTIONS`.
    address : int
        Of the pointer.
    original : int
        The address of the function.
    """

    __slots__ = ("address", "convention", "original", "owner")

    def __init__(self, owner: object, convention: str, address: int, original: int) -> None:
        self.owner = owner
        self.convention = convention
        self.address = address
        self.original = original


def _word(address: int) -> int:
    return _POINTER.from_address(address).value or 0


_hooks: Final[dict[Any, Hook]] = {}
"""The hooks, by object. Native code looks them up here."""

keep_for_ever(_hooks)
keep_for_ever(RECORDERS)


def _vectorcall_pointer(callee: Any) -> list[FunctionPointer]:
    """Return the vectorcall pointer of an object, if it has one."""
    kind = type(callee)
    offset = ctypes.c_ssize_t.from_address(id(kind) + _VECTORCALL_OFFSET).value
    if not kind.__flags__ & _VECTORCALL_FLAG or not 0 < offset <= kind.__basicsize__ - ctypes.sizeof(
        _POINTER
    ):
        return []
    if type(callee).__name__ in _DEFINITION:
        convention = _copy_definition(callee, _UNSPECIALISED)
        if convention in ("tuple", "tuple_named"):  # these have no vectorcall pointer of their own
            return [FunctionPointer(callee, "call", id(callee) + offset, _BY_TYPE)] if _by_type() else []
        if convention is None:
            return []
    original = _word(id(callee) + offset)
    return [FunctionPointer(callee, "call", id(callee) + offset, original)] if original else []


def _copy_definition(callee: Any, flags: int | None = None) -> str | None:
    """Give a builtin function or method its own copy of its definition, and return how its C function is called; None if it is unknown.

    The address of the C function stays in the definition of a function: its hash is made of it, and dictionaries such as Numba's have it
    as a key. But the interpreter's specialised instructions would call that address; flags that they do not know keep them from it.
    """
    offset = _DEFINITION[type(callee).__name__]
    old = _word(id(callee) + offset)
    if not old or ctypes.string_at(_word(old)) != callee.__name__.encode():
        return None
    old_flags = ctypes.c_int.from_address(old + 16).value
    convention = _CONVENTION_OF.get(old_flags)
    if convention is not None:
        block = keep_for_ever(ctypes.create_string_buffer(ctypes.string_at(old, 32), 32))
        address = ctypes.addressof(block)
        if flags is not None and not old_flags & _VARARGS:
            ctypes.c_int.from_address(address + 16).value = flags
        _POINTER.from_address(id(callee) + offset).value = address
    return convention


def _method_pointer(method: Any) -> list[FunctionPointer]:
    """Give a builtin method its own copy of its definition, and return the pointer in it."""
    convention = _copy_definition(method)
    if convention is None:
        return []
    address = _word(id(method) + _DEFINITION["method_descriptor"]) + 8
    return [FunctionPointer(method, convention, address, _word(address))]


_CALLED: Final = frozenset({type(functools.lru_cache(len))})
"""Types of which the calls of their objects are hooked, although they have a constructor."""


def _slot(cls: type, number: int) -> int | None:
    """Return the address of a C function of a type, as Python reports it."""
    slot = ctypes.pythonapi.PyType_GetSlot
    slot.restype, slot.argtypes = _POINTER, [ctypes.py_object, ctypes.c_int]
    address: int | None = slot(cls, number)
    return address


def _subscript_pointer(slot_wrapper: Any) -> list[FunctionPointer]:
    """Return the pointer to the C function that ``y[k]`` calls, for ``kind.__getitem__`` of a type written in C."""
    cls = slot_wrapper.__objclass__
    methods = _word(id(cls) + _MAPPING)
    original = _slot(cls, _SUBSCRIPT_SLOT)
    if (
        slot_wrapper.__name__ != "__getitem__"
        or not methods
        or original is None
        or _word(methods + WORD) != original
    ):
        return []
    return [FunctionPointer(slot_wrapper, "one", methods + WORD, original)]


def _constructor_pointer(cls: type) -> list[FunctionPointer]:
    """Return the pointer to the constructor of a type; for `_CALLED` and types without one, that to the function that calls its objects."""
    for number, offset in ((_NEW_SLOT, _NEW), (_CALL_SLOT, _CALL))[cls in _CALLED :]:
        original = _slot(cls, number)
        if original:
            is_there = _word(id(cls) + offset) == original
            return [FunctionPointer(cls, "new", id(cls) + offset, original)] if is_there else []
    return []


def _pointer_of(callee: Any) -> list[FunctionPointer]:
    if isinstance(callee, type):
        return _vectorcall_pointer(callee) or _constructor_pointer(callee)
    if type(callee) is WrapperDescriptorType:
        return _subscript_pointer(callee)
    return (
        _method_pointer(callee)
        if type(callee).__name__ == "method_descriptor"
        else _vectorcall_pointer(callee)
    )


_thunks: Final[dict[tuple[str, int], int]] = {}
"""The native code that replaces C functions that many objects share, by the mode and the C function."""

_originals: Final[dict[int, Hook]] = {}
"""The functions without their hooks, by the id of the hooked function."""

_pending: Final[list[tuple[FunctionPointer, str]]] = []
_installed: Final[set[int]] = set()
"""The addresses of installed native code."""

_traced_types: Final[list[type]] = []


def set_traced_types(*types: type) -> None:
    """Set the types of traced arrays and lengths, at most four."""
    _traced_types[:] = types


def interpose(hook: Hook, when: When, callees: Iterable[Any]) -> None:
    """Call a hook before the C functions of these objects, during recordings.

    Parameters
    ----------
    hook : callable
        Is called with the object, for methods and types with ``self`` or the type, and then with the arguments, from the frame that
        called. It returns the result of the call, or NotImplemented for the C function to run. For types without a constructor, such as
        that of ``float.__add__``, it is called for calls of their objects, with the type, the object, and the arguments.
    when : When
        The calls that it is called for.
    things : iterable of object
        Builtin functions, ufuncs, dispatched functions of NumPy, methods of types written in C, and such types.
    """
    if not _can_install():
        return
    for callee in callees:
        for pointer in _pointer_of(callee):
            if pointer.original in _installed:  # an interruption, or a fork, came in between
                continue
            _hooks[callee] = hook
            if when in (When.ALWAYS, When.NO_ARRAY) and pointer.convention != "new":
                _originals[id(callee)] = _unhooked_function(pointer)
            is_shared = pointer.convention == "call"
            thunk = _thunks.get((when.value, pointer.original)) if is_shared else None
            if thunk is None:
                _pending.append((pointer, when.value))
            else:
                _POINTER.from_address(pointer.address).value = thunk


class _Thunks:
    """Native code for the pointers of hooked objects. One C function calls all ufuncs, which share a thunk; so do dispatched functions.

    Attributes
    ----------
    text : list of str
        The code.
    pointers : list of FunctionPointer
        The first pointer of each thunk.
    """

    def __init__(self) -> None:
        lists = _SHARED_LIST_ITEM if FREE_THREADED else _LIST_ITEM
        common = read_ll(__package__, "interpose.ll", type=TYPE, size=HEAD, tuple_items=TUPLE_ITEMS, **lists)
        self.text = [common]
        self.pointers: list[FunctionPointer] = []
        self._numbers: dict[tuple[str, int], int] = {}
        self._names: set[str] = set()

    def number_of(self, pointer: FunctionPointer, when: str) -> int:
        """Return the number of the thunk for a pointer, whose code is added if there is none yet."""
        is_shared = pointer.convention == "call"
        number = self._numbers.get((when, pointer.original)) if is_shared else None
        if number is not None:
            return number
        number = self._numbers[when, pointer.original] = len(self.pointers)
        self.pointers.append(pointer)
        name = f"{when}_{pointer.convention}"
        if name not in self._names:
            self._names.add(name)
            self.text.append(_convention_text(pointer.convention, when))
        parameters = _CONVENTIONS[pointer.convention][0]
        self.text.append(
            read_ll(__package__, "interpose_thunk.ll", number=number, name=name, parameters=parameters)
        )
        return number

    def load(self) -> list[int]:
        """Compile the code, and return the addresses of the thunks."""
        objects = {"hooks": _hooks, "list": list, "tuple": tuple, "declined": NotImplemented}
        objects["array"] = np.ndarray
        types = [*_traced_types, object, object, object, object][:4]
        objects |= {f"traced_type{number}": kind for number, kind in enumerate(types)}
        imports = {name: id(imported) for name, imported in objects.items()}
        imports["recording"] = COUNT
        if not _by_type():  # not called where it is not there, but bound
            imports["_PyObject_MakeTpCall"] = python_function("PyObject_Vectorcall")
        numbers = range(len(self.pointers))
        exports = [
            "by_type",
            *[f"{kind_of_thunk}{number}" for number in numbers for kind_of_thunk in ("thunk", "owner")],
        ]
        addresses = load_resident("\n".join(self.text), "gradtape.interpose", exports, imports)
        for number, pointer in enumerate(self.pointers):
            words = addresses[f"owner{number}"]
            _POINTER.from_address(words).value = id(pointer.owner)
            _POINTER.from_address(words + 8).value = pointer.original or addresses["by_type"]
        return [addresses[f"thunk{number}"] for number in numbers]


def install() -> None:
    """Compile the native code for the pending hooks, and write the pointers to it."""
    if not _pending:
        return
    thunks = _Thunks()
    numbers = [thunks.number_of(pointer, when) for pointer, when in _pending]
    try:
        addresses = thunks.load()
    except (
        RuntimeError,
        OSError,
        ImportError,
    ) as error:  # no memory that may be written to and executed; no llvmlite
        _pending.clear()
        _refuse(f"its machine code cannot be loaded: {error}")
        return
    for (pointer, when), number in zip(_pending, numbers, strict=True):
        thunk = addresses[number]
        _installed.add(thunk)
        _POINTER.from_address(pointer.address).value = thunk
        if pointer.convention == "call":
            _thunks[when, pointer.original] = thunk
    _pending.clear()


before_recording(install, last=True)


def without_hook(function: Any) -> Any:
    """Return a function without its hook, if the mode of the hook is ALWAYS or NO_ARRAY; else the function itself."""
    return _originals.get(id(function), function)


def _new_function(definition: int, self: int) -> Hook:
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [_POINTER] * 3
    function: Hook = make(definition, self, None)
    return function


def _unhooked_function(pointer: FunctionPointer) -> Hook:
    """Return a function that calls the original of a vectorcall pointer, whose form is that of METH_FASTCALL | METH_KEYWORDS."""
    callee: Any = pointer.owner
    if pointer.original == _BY_TYPE:
        return _new_function(_word(id(callee) + _DEFINITION[type(callee).__name__]), id(callee.__self__))
    name = keep_for_ever(ctypes.create_string_buffer(str(callee.__name__).encode()))
    words = (ctypes.addressof(name), pointer.original, _FAST | _KEYWORDS, 0)
    return _new_function(ctypes.addressof(keep_for_ever((_POINTER * 4)(*words))), id(callee))


def _refuse(why: str) -> None:
    warn(
        GradtapeWarning,
        "NumPy's functions cannot be traced by gradtape in this Python where they do not ask their arguments",
        why=why,
        remedy="write np.zeros(n, like=x), np.stack([a, b]) and np.sin(x), not np.zeros(n), np.array([a, b]) and math.sin(x)",
    )


@functools.cache
def _can_install() -> bool:
    """Return whether the objects of this Python have the expected layout; where they have not, warn once."""
    why = ""
    if sys.implementation.name != "cpython":
        why = "that needs CPython"
    elif ctypes.sizeof(_POINTER) != WORD or (32 if FREE_THREADED else 16) != HEAD:
        why = "that needs a Python of 64 bits, without debugging"
    elif ctypes.c_ssize_t.from_address(id(_PROBE) + COUNT - id(RECORDERS)).value != len(_PROBE):
        why = "its sets have another layout"
    if why:
        _refuse(why)
    return not why


_PROBE: Final = frozenset("abc")


def dispatcher_of(function: Any) -> Any:
    """Return the dispatcher of a function of NumPy's, which returns the relevant arguments, or None where the layout is not as expected."""
    if not _vectorcall_pointer(function) or _word(id(function) + _IMPLEMENTATION) != id(
        getattr(function, "_implementation", None)
    ):
        return None
    address = _word(id(function) + _DISPATCHER)
    return ctypes.cast(address, ctypes.py_object).value if address else None


def _convention_text(convention: str, when: str) -> str:
    """Return the code that asks the hook, if the arguments are those that it is for, and calls the C function otherwise."""
    parameters, unpack = _CONVENTIONS[convention]
    is_call = convention == "call"
    return read_ll(
        __package__,
        "interpose_form.ll",
        name=f"{when}_{convention}",
        mode=when,
        parameters=parameters,
        unpack=unpack,
        key="%callee" if is_call else "%key",
        self="null" if is_call else "%self",
        names="%names" if "%names" in parameters else "null",
        keywords="%keywords" if "%keywords" in parameters else "null",
    )
