"""Interposition on C functions of Python's and NumPy's, object by object, while somebody records.

NumPy asks an argument who it is (``__array_ufunc__``, ``__array_function__``), but not what stands in a list; `math.sin`,
``np.float64(x)`` and the methods of ndarrays do not ask at all. Each of them reaches its C function through a pointer: ufuncs,
dispatched functions and builtin functions through the vectorcall pointer of the object (PEP 590), methods through their
`PyMethodDef`, types through ``tp_new``. Here that pointer is exchanged for a few instructions of machine code that call the C
function itself, unless somebody records and an argument holds an object of certain types; then a Python function, the hook, is
asked first. The objects stay what they are: no name, identity, hash or signature differs, and a call that nobody has to know of
takes 2 ns more.

Every layout is checked against what Python tells before anything is written. What is not as expected is left alone.
"""

from __future__ import annotations

import ctypes
import enum
import functools
import sys
import sysconfig
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from gradtape.errors import GradtapeWarning, warn
from gradtape.lower.resident.routine import load_resident
from gradtape.trace.patching.recorders import COUNT, RECORDERS, at_first

Hook = Callable[..., Any]

_POINTER: Final = ctypes.c_void_p
_VECTORCALL_OFFSET: Final = 56
_VECTORCALL_FLAG: Final = 1 << 11
_DEFINITION: Final = {"builtin_function_or_method": 16, "method_descriptor": 40}
"""Where these objects keep the address of their `PyMethodDef`."""

_DISPATCHER: Final = 32
_IMPLEMENTATION: Final = 40
"""Where a dispatched function of NumPy's keeps its dispatcher and its implementation."""

_NEW: Final = 312
_NEW_SLOT: Final = 65

_VARARGS, _KEYWORDS, _NONE, _ONE, _FAST = 0x1, 0x2, 0x4, 0x8, 0x80
_UNSPECIALISED: Final = _KEYWORDS
"""Flags of no definition of Python's or NumPy's, and none of those by which Cython calls the C function itself."""

_ABI: Final = {
    _ONE: "one",
    _FAST: "fast",
    _FAST | _KEYWORDS: "fast_named",
    _VARARGS: "tuple",
    _VARARGS | _KEYWORDS: "tuple_named",
}

_TEXT: Final = """
%owner = type { ptr, ptr } ; the key, and its C function

@recording = external global i64
@hooks = external global i8
@array = external global i8
@list = external global i8
@tuple = external global i8
@followed0 = external global i8
@followed1 = external global i8
@followed2 = external global i8
@declined = external global i8
declare ptr @PyDict_GetItem(ptr, ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyThreadState_Get()
declare ptr @_PyObject_MakeTpCall(ptr, ptr, ptr, i64, ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; Whether an object is one of those that the hook follows, or a list or tuple with one inside.
define internal i1 @follows(ptr %object, i64 %depth) nounwind {
start:
  %type_at = getelementptr i8, ptr %object, i64 8
  %type = load ptr, ptr %type_at
  %a = icmp eq ptr %type, @followed0
  %b = icmp eq ptr %type, @followed1
  %c = icmp eq ptr %type, @followed2
  %ab = or i1 %a, %b
  %abc = or i1 %ab, %c
  br i1 %abc, label %yes, label %other
other:
  %inside = call i1 @holds(ptr %object, i64 %depth)
  ret i1 %inside
yes:
  ret i1 true
}

; Whether an object is a list or tuple with one inside.
define internal i1 @holds(ptr %object, i64 %depth) nounwind {
start:
  %type_at = getelementptr i8, ptr %object, i64 8
  %type = load ptr, ptr %type_at
  %head = getelementptr i8, ptr %object, i64 24
  %is_tuple = icmp eq ptr %type, @tuple
  br i1 %is_tuple, label %open, label %other
other:
  %is_list = icmp eq ptr %type, @list
  br i1 %is_list, label %list, label %no
list:
  %block = load ptr, ptr %head
  br label %open
open:
  %items = phi ptr [ %head, %start ], [ %block, %list ]
  %deep = icmp eq i64 %depth, 0
  br i1 %deep, label %no, label %within
within:
  %size_at = getelementptr i8, ptr %object, i64 16
  %size = load i64, ptr %size_at
  %less = sub i64 %depth, 1
  %any = call i1 @any_follows(ptr %items, i64 %size, i64 %less)
  ret i1 %any
no:
  ret i1 false
}

define internal i1 @any_follows(ptr %items, i64 %count, i64 %depth) nounwind {
start:
  br label %next
next:
  %k = phi i64 [ 0, %start ], [ %more, %look ]
  %done = icmp sge i64 %k, %count
  br i1 %done, label %no, label %look
look:
  %at = getelementptr ptr, ptr %items, i64 %k
  %item = load ptr, ptr %at
  %found = call i1 @follows(ptr %item, i64 %depth)
  %more = add i64 %k, 1
  br i1 %found, label %yes, label %next
yes:
  ret i1 true
no:
  ret i1 false
}

define internal i1 @always(ptr %args, i64 %count) nounwind {
start:
  ret i1 true
}

; All but a call with one ndarray.
define internal i1 @other(ptr %args, i64 %count) nounwind {
start:
  %single = icmp eq i64 %count, 1
  br i1 %single, label %look, label %yes
look:
  %arg = load ptr, ptr %args
  %type_at = getelementptr i8, ptr %arg, i64 8
  %type = load ptr, ptr %type_at
  %differs = icmp ne ptr %type, @array
  ret i1 %differs
yes:
  ret i1 true
}

; What a C function would convert that does not ask its arguments who they are.
define internal i1 @anywhere(ptr %args, i64 %count) nounwind {
start:
  %found = call i1 @any_follows(ptr %args, i64 %count, i64 32)
  ret i1 %found
}

; What one would convert that does.
define internal i1 @nested(ptr %args, i64 %count) nounwind {
start:
  br label %next
next:
  %k = phi i64 [ 0, %start ], [ %more, %look ]
  %done = icmp sge i64 %k, %count
  br i1 %done, label %no, label %look
look:
  %at = getelementptr ptr, ptr %args, i64 %k
  %arg = load ptr, ptr %at
  %found = call i1 @holds(ptr %arg, i64 32)
  %more = add i64 %k, 1
  br i1 %found, label %yes, label %next
yes:
  ret i1 true
no:
  ret i1 false
}

; What one would convert whose list is a sequence of arrays.
define internal i1 @within(ptr %args, i64 %count) nounwind {
start:
  br label %next
next:
  %k = phi i64 [ 0, %start ], [ %more, %go ]
  %done = icmp sge i64 %k, %count
  br i1 %done, label %no, label %look
look:
  %at = getelementptr ptr, ptr %args, i64 %k
  %arg = load ptr, ptr %at
  %type_at = getelementptr i8, ptr %arg, i64 8
  %type = load ptr, ptr %type_at
  %head = getelementptr i8, ptr %arg, i64 24
  %is_tuple = icmp eq ptr %type, @tuple
  br i1 %is_tuple, label %open, label %other
other:
  %is_list = icmp eq ptr %type, @list
  br i1 %is_list, label %list, label %go
list:
  %block = load ptr, ptr %head
  br label %open
open:
  %items = phi ptr [ %head, %look ], [ %block, %list ]
  %size = call i64 @size(ptr %arg)
  %found = call i1 @nested(ptr %items, i64 %size)
  br i1 %found, label %yes, label %go
go:
  %more = add i64 %k, 1
  br label %next
yes:
  ret i1 true
no:
  ret i1 false
}

; Ask the hook: it is given the key, then `self` where it is not null, then the arguments. NotImplemented means: call the C function.
define internal ptr @ask(ptr %key, ptr %self, ptr %args, i64 %count, i64 %named, ptr %names) {
start:
  %all = add i64 %count, %named
  %room = add i64 %all, 2
  %list = alloca ptr, i64 %room
  store ptr %key, ptr %list
  %second = getelementptr ptr, ptr %list, i64 1
  store ptr %self, ptr %second
  %alone = icmp eq ptr %self, null
  %skip = select i1 %alone, i64 1, i64 2
  %rest = getelementptr ptr, ptr %list, i64 %skip
  %bytes = mul i64 %all, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %rest, ptr %args, i64 %bytes, i1 false)
  %given = add i64 %count, %skip
  %hook = call ptr @PyDict_GetItem(ptr @hooks, ptr %key)
  %answer = call ptr @PyObject_Vectorcall(ptr %hook, ptr %list, i64 %given, ptr %names)
  %is_none = icmp eq ptr %answer, @declined
  br i1 %is_none, label %drop, label %end
drop:
  call void @Py_DecRef(ptr %answer)
  br label %end
end:
  ret ptr %answer
}

define internal i1 @no_names(ptr %keywords) nounwind {
start:
  %null = icmp eq ptr %keywords, null
  br i1 %null, label %yes, label %look
look:
  %at = getelementptr i8, ptr %keywords, i64 16
  %used = load i64, ptr %at
  %empty = icmp eq i64 %used, 0
  ret i1 %empty
yes:
  ret i1 true
}

; Call an object that has no vectorcall pointer but ours.
define ptr @by_type(ptr %callee, ptr %args, i64 %flags, ptr %names) {
start:
  %count = and i64 %flags, 9223372036854775807
  %state = call ptr @PyThreadState_Get()
  %result = call ptr @_PyObject_MakeTpCall(ptr %state, ptr %callee, ptr %args, i64 %count, ptr %names)
  ret ptr %result
}

define internal i64 @size(ptr %tuple) nounwind {
start:
  %null = icmp eq ptr %tuple, null
  br i1 %null, label %none, label %some
none:
  ret i64 0
some:
  %at = getelementptr i8, ptr %tuple, i64 16
  %size = load i64, ptr %at
  ret i64 %size
}
"""

_COMMON: Final = """
define internal ptr @{name}(ptr %owner, {parameters}) {{
start:
  %on = load i64, ptr @recording
  %quiet = icmp eq i64 %on, 0
  br i1 %quiet, label %original, label %look, !prof !{{!"branch_weights", i32 2000, i32 1}}
look:
  %key = load ptr, ptr %owner
  {unpack}
  %asked = call i1 @{mode}(ptr %args, i64 %all)
  br i1 %asked, label %ask, label %original
ask:
  %answer = call ptr @ask(ptr {key}, ptr {self}, ptr %args, i64 %count, i64 %named, ptr {names})
  %declined = icmp eq ptr %answer, @declined
  br i1 %declined, label %original, label %end
end:
  ret ptr %answer
original:
  %at = getelementptr i8, ptr %owner, i64 8
  %function = load ptr, ptr %at
  %result = tail call ptr %function({parameters})
  ret ptr %result
}}
"""
"""What runs in place of C functions of one form."""

_THUNK: Final = """
@owner{number} = global %owner zeroinitializer

define ptr @thunk{number}({parameters}) {{
start:
  %result = tail call ptr @{name}(ptr @owner{number}, {parameters})
  ret ptr %result
}}
"""

_COUNTED: Final = """%named = {names}
  %all = add i64 %count, %named"""
_NO_NAMES: Final = """%named = add i64 0, 0
  %all = add i64 %count, 0"""
_OF_TUPLE: Final = """%count = call i64 @size(ptr %given)
  %args = getelementptr i8, ptr %given, i64 24
  """
_WITHOUT_NAMES: Final = """%unnamed = call i1 @no_names(ptr %keywords)
  br i1 %unnamed, label %plain, label %original
plain:
  """

_FORMS: Final = {
    "call": (
        "ptr %callee, ptr %args, i64 %flags, ptr %names",
        "%count = and i64 %flags, 9223372036854775807\n  "
        + _COUNTED.format(names="call i64 @size(ptr %names)"),
    ),
    "one": (
        "ptr %self, ptr %arg",
        "%args = alloca ptr\n  store ptr %arg, ptr %args\n  %count = add i64 1, 0\n  " + _NO_NAMES,
    ),
    "fast": ("ptr %self, ptr %args, i64 %given", "%count = add i64 %given, 0\n  " + _NO_NAMES),
    "fast_named": (
        "ptr %self, ptr %args, i64 %given, ptr %names",
        "%count = add i64 %given, 0\n  " + _COUNTED.format(names="call i64 @size(ptr %names)"),
    ),
    "tuple": ("ptr %self, ptr %given", _OF_TUPLE + _NO_NAMES),
    "tuple_named": ("ptr %self, ptr %given, ptr %keywords", _WITHOUT_NAMES + _OF_TUPLE + _NO_NAMES),
    "new": ("ptr %self, ptr %given, ptr %keywords", _WITHOUT_NAMES + _OF_TUPLE + _NO_NAMES),
}
"""The parameters of each kind of C function, and what makes %args, %count, %named and %all of them."""


_BY_TYPE: Final = 0
"""Stands for the address of what calls an object that has no vectorcall pointer yet."""


def _by_type() -> int:
    """Return the address of what calls objects by their type; 0 where this Python does not export it."""
    function = getattr(ctypes.pythonapi, "_PyObject_MakeTpCall", None)
    return 0 if function is None else ctypes.cast(function, _POINTER).value or 0


class When(enum.Enum):
    """Which calls a hook is asked about, of those while somebody records."""

    ALWAYS = "always"
    """All."""
    NO_ARRAY = "other"
    """All but those with one ndarray and nothing else."""
    ANYWHERE = "anywhere"
    """Those with something followed, by itself or in lists and tuples."""
    NESTED = "nested"
    """Those with something followed in lists and tuples."""
    WITHIN = "within"
    """Those with something followed in lists and tuples that are in lists and tuples."""


class _Place:
    """A pointer to a C function in an object's memory, to be exchanged."""

    __slots__ = ("at", "form", "key", "original")

    def __init__(self, key: object, form: str, at: int, original: int) -> None:
        self.key = key
        self.form = form
        self.at = at
        self.original = original


def _word(address: int) -> int:
    return _POINTER.from_address(address).value or 0


def _forever(thing: Any) -> Any:
    """Keep an object until the process ends: functions of Python and NumPy outlive this module, and have pointers to it."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return thing


_hooks: Final[dict[Any, Hook]] = {}
"""By object, what is asked before its C function. Machine code looks them up here."""

_forever(_hooks)
_forever(RECORDERS)


def _called(thing: Any) -> list[_Place]:
    """Find the pointer by which an object that is called by vectorcall is called."""
    kind = type(thing)
    offset = ctypes.c_ssize_t.from_address(id(kind) + _VECTORCALL_OFFSET).value
    if not kind.__flags__ & _VECTORCALL_FLAG or not 0 < offset <= kind.__basicsize__ - ctypes.sizeof(
        _POINTER
    ):
        return []
    if type(thing).__name__ in _DEFINITION:
        form = _redefined(thing, _UNSPECIALISED)
        if form in ("tuple", "tuple_named"):  # these have no vectorcall pointer of their own
            return [_Place(thing, "call", id(thing) + offset, _BY_TYPE)] if _by_type() else []
        if form is None:
            return []
    original = _word(id(thing) + offset)
    return [_Place(thing, "call", id(thing) + offset, original)] if original else []


def _redefined(thing: Any, flags: int | None = None) -> str | None:
    """Give a builtin function or method a definition of its own, and return the form of its C function; None if it is unknown.

    The address of the C function stays in the definition of a function: its hash is made of it, and dictionaries such as Numba's have it
    as a key. But the interpreter's specialised instructions would call that address; flags that they do not know keep them from it.
    """
    offset = _DEFINITION[type(thing).__name__]
    old = _word(id(thing) + offset)
    if not old or ctypes.string_at(_word(old)) != thing.__name__.encode():
        return None
    known = ctypes.c_int.from_address(old + 16).value
    form = _ABI.get(known)
    if form is not None:
        block = _forever(ctypes.create_string_buffer(ctypes.string_at(old, 32), 32))
        address = ctypes.addressof(block)
        if flags is not None and not known & _VARARGS:
            ctypes.c_int.from_address(address + 16).value = flags
        _POINTER.from_address(id(thing) + offset).value = address
    return form


def _defined(thing: Any) -> list[_Place]:
    """Give a builtin method a definition of its own, and find the pointer in it."""
    form = _redefined(thing)
    if form is None:
        return []
    at = _word(id(thing) + _DEFINITION["method_descriptor"]) + 8
    return [_Place(thing, form, at, _word(at))]


def _made(thing: type) -> list[_Place]:
    """Find the pointer by which objects of a type are made."""
    slot = ctypes.pythonapi.PyType_GetSlot
    slot.restype, slot.argtypes = _POINTER, [ctypes.py_object, ctypes.c_int]
    original = slot(thing, _NEW_SLOT)
    if not original or _word(id(thing) + _NEW) != original:
        return []
    return [_Place(thing, "new", id(thing) + _NEW, original)]


def _place_of(thing: Any) -> list[_Place]:
    if isinstance(thing, type):
        return _made(thing)
    return _defined(thing) if type(thing).__name__ == "method_descriptor" else _called(thing)


_thunks: Final[dict[tuple[str, int], int]] = {}
"""The machine code in place of C functions that many objects share, by the rule for arguments and the C function."""

_originals: Final[dict[int, Hook]] = {}
"""By the id of a function with a hook that may call it: what does without the hook what it does."""

_waiting: Final[list[tuple[_Place, str]]] = []
_installed: Final[set[int]] = set()
"""The addresses that stand in such pointers."""

_followed: Final[list[type]] = []


def follow(*types: type) -> None:
    """Say of which types, at most three, the objects are that are not to be converted."""
    _followed[:] = types


def interpose(hook: Hook, when: When, things: Iterable[Any]) -> None:
    """Let a hook be asked before the C functions of these objects, while somebody records.

    Parameters
    ----------
    hook : callable
        Is called with the object, for methods and types with ``self`` or the type, and then with the arguments, from the frame that
        called. What it returns is the result of the call; NotImplemented lets the C function run.
    when : When
        Which calls it is asked about.
    things : iterable of object
        Builtin functions, ufuncs, dispatched functions of NumPy, methods of types written in C, and such types.
    """
    if not _can_install():
        return
    for thing in things:
        for place in _place_of(thing):
            if place.original in _installed:  # an interruption, or a fork, came in between
                continue
            _hooks[thing] = hook
            if when in (When.ALWAYS, When.NO_ARRAY):
                _originals[id(thing)] = _original(place)
            thunk = _thunks.get((when.value, place.original)) if place.form == "call" else None
            if thunk is None:
                _waiting.append((place, when.value))
            else:
                _POINTER.from_address(place.at).value = thunk


def install() -> None:
    """Compile the machine code for what was interposed since the last time, and write the pointers to it."""
    if not _waiting:
        return
    numbers: list[int] = []
    shared: dict[tuple[str, int], int] = {}
    owners: list[_Place] = []
    forms: set[str] = set()
    text = [_TEXT]
    for place, mode in _waiting:
        # All ufuncs are called by one C function, and so are all dispatched functions.
        known = shared.get((mode, place.original)) if place.form == "call" else None
        if known is None:
            known = shared[mode, place.original] = len(owners)
            owners.append(place)
            name = f"{mode}_{place.form}"
            if name not in forms:
                forms.add(name)
                text.append(_common(place.form, mode))
            text.append(_THUNK.format(number=known, name=name, parameters=_FORMS[place.form][0]))
        numbers.append(known)
    functions = ["PyObject_Vectorcall", "Py_DecRef", "PyDict_GetItem", "PyThreadState_Get"]
    imports = {name: ctypes.cast(getattr(ctypes.pythonapi, name), _POINTER).value or 0 for name in functions}
    imports["_PyObject_MakeTpCall"] = (
        _by_type() or imports["PyObject_Vectorcall"]
    )  # not called, if it is not there
    things = {"hooks": _hooks, "list": list, "tuple": tuple, "declined": NotImplemented, "array": np.ndarray}
    things |= {f"followed{k}": kind for k, kind in enumerate([*_followed, object, object, object][:3])}
    imports.update((name, id(thing)) for name, thing in things.items())
    imports["recording"] = COUNT
    exports = ["by_type", *[f"{what}{k}" for k in range(len(owners)) for what in ("thunk", "owner")]]
    try:
        found = load_resident("\n".join(text), "gradtape.interpose", exports, imports, effort=0)
    except (RuntimeError, OSError) as error:  # where no memory may be executed that was written to
        _waiting.clear()
        _refuse(f"its machine code cannot be loaded: {error}")
        return
    for number, owner in enumerate(owners):
        words = found[f"owner{number}"]
        _POINTER.from_address(words).value = id(owner.key)
        _POINTER.from_address(words + 8).value = owner.original or found["by_type"]
    for (place, mode), number in zip(_waiting, numbers, strict=True):
        thunk = found[f"thunk{number}"]
        _installed.add(thunk)
        _POINTER.from_address(place.at).value = thunk
        if place.form == "call":
            _thunks[mode, place.original] = thunk
    _waiting.clear()


at_first(install, last=True)


def original(function: Any) -> Any:
    """Return what does without its hook what a function does, if the hook is asked ALWAYS or about NO_ARRAY; else the function itself."""
    return _originals.get(id(function), function)


def _made_of(definition: int, self: int) -> Hook:
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [_POINTER] * 3
    made: Hook = make(definition, self, None)
    return made


def _original(place: _Place) -> Hook:
    """Return a function that calls what stood in a vectorcall pointer: its form is that of METH_FASTCALL | METH_KEYWORDS."""
    thing: Any = place.key
    if place.original == _BY_TYPE:
        return _made_of(_word(id(thing) + _DEFINITION[type(thing).__name__]), id(thing.__self__))
    name = _forever(ctypes.create_string_buffer(str(thing.__name__).encode()))
    words = (ctypes.addressof(name), place.original, _FAST | _KEYWORDS, 0)
    return _made_of(ctypes.addressof(_forever((_POINTER * 4)(*words))), id(thing))


def _refuse(why: str) -> None:
    warn(
        GradtapeWarning,
        "NumPy's functions cannot be followed by gradtape in this Python where they do not ask their arguments",
        why=why,
        remedy="write np.zeros(n, like=x), np.stack([a, b]) and np.sin(x), not np.zeros(n), np.array([a, b]) and math.sin(x)",
    )


@functools.cache
def _can_install() -> bool:
    """Return whether this Python's objects are laid out as they are thought to be; where they are not, say so once."""
    why = ""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        why = "that needs CPython with its lock"
    elif ctypes.sizeof(_POINTER) != 8 or object.__basicsize__ != 16:
        why = "that needs a Python of 64 bits, without debugging"
    elif ctypes.c_ssize_t.from_address(id(_PROBE) + COUNT - id(RECORDERS)).value != len(_PROBE):
        why = "its sets have another layout"
    if why:
        _refuse(why)
    return not why


_PROBE: Final = frozenset("abc")


def dispatcher_of(function: Any) -> Any:
    """Return what finds the arguments that a dispatched function asks who they are, or None where the layout is not as expected."""
    if not _called(function) or _word(id(function) + _IMPLEMENTATION) != id(
        getattr(function, "_implementation", None)
    ):
        return None
    address = _word(id(function) + _DISPATCHER)
    return ctypes.cast(address, ctypes.py_object).value if address else None


def _common(form: str, mode: str) -> str:
    parameters, unpack = _FORMS[form]
    called = form == "call"
    return _COMMON.format(
        name=f"{mode}_{form}",
        mode=mode,
        parameters=parameters,
        unpack=unpack,
        key="%callee" if called else "%key",
        self="null" if called else "%self",
        names="%names" if "%names" in parameters else "null",
    )
