"""Native functions: loaded machine code, bound to a fallback and to captured arrays.

One loaded module may be bound many times. What differs between two bindings, the addresses of the
captured arrays among it, is in a block of words that belongs to the binding; so is the address of its scratch memory,
which stays from call to call, because fresh memory costs a page fault for every 4 KB. Large scratch memory comes from the memory pool.
"""

from __future__ import annotations

import ctypes
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

import numpy.typing as npt

from gradtape.locks import Rank, new_lock
from gradtape.lower.llvm.writer import KERNEL
from gradtape.lower.resident.memory import POOL, forget, memory_address, trim_memory
from gradtape.runtime.call.callable import NativeHead, vectorcalled
from gradtape.runtime.call.capi import addresses, array_type
from gradtape.runtime.call.convention import (
    ACTIVE_WORD,
    CONSTANT_WORD,
    ENTRY,
    ENTRY_DRAIN,
    WORKSPACE_WORD,
    ArraySpec,
    Signature,
)
from gradtape.runtime.compile.loader import LoadedModule, drain_all
from gradtape.runtime.memory.pool import is_pooled, result_handler

__all__ = ["NativeFunction", "bind", "kept_workspaces", "load", "trim"]

_DRAIN = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_FREE = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("PyMem_RawFree", ctypes.pythonapi))


@dataclass(frozen=True, slots=True, eq=False)
class _Resources:
    """The memory that the machine code of a binding reads and writes."""

    words: Any
    loaded: LoadedModule
    drain: Callable[[int], None] | None
    workspace: int
    kept: tuple[object, ...]

    def drop_workspace(self) -> None:
        if self.drain is not None:
            self.drain(ctypes.addressof(self.words))

    def free_workspace(self) -> None:
        """Free the workspace of a binding that is never called again; the cycle collector may have unmapped the machine code before."""
        forget(self.workspace)
        block = self.words[WORKSPACE_WORD]
        self.words[WORKSPACE_WORD] = None
        _FREE(block)


_lock: Final = new_lock(Rank.LEAF)
_active_when_freed: Final[list[_Resources]] = []
"""Resources of bindings that were freed during one of their own calls; they are freed when the next binding is made."""


def load(
    object_code: bytes,
    signature: Signature | None,
    *,
    imports: Mapping[str, int] | None = None,
    drain: str | None = None,
    needs: Sequence[object] = (),
) -> LoadedModule:
    """Load the object code of a kernel, and of its native entry if it has one.

    Parameters
    ----------
    object_code : bytes
        The compiled module.
    signature : Signature or None
        The one that the entry was made for; None for a kernel without an entry.
    imports : mapping of str to int, optional
        Addresses of further names that the kernel uses, such as BLAS routines.
    drain : str, optional
        The kernel's own function that frees the memory which it keeps between calls.
    needs : sequence of LoadedModule, optional
        Code that the kernel calls.

    Returns
    -------
    LoadedModule
        To be bound any number of times.
    """
    if signature is None:
        return LoadedModule(object_code, KERNEL, imports=imports, drain=drain, needs=needs)
    specs = (*signature.arguments, *signature.outputs)
    found = addresses({spec.dtype for spec in specs if isinstance(spec, ArraySpec)})
    named = {f"gt.{name}": address for name, address in found.items()} | dict(imports or {})
    if any(is_pooled(spec) for spec in signature.outputs):
        named["gt.result_handler"] = id(result_handler())
    if signature.pools_workspace:
        named |= {f"gt.pool_{name}": memory_address(f"{POOL}{name}") for name in ("allocate", "release")}
    exports = (ENTRY, ENTRY_DRAIN) if signature.keeps_workspace else (ENTRY,)
    return LoadedModule(object_code, KERNEL, exports=exports, imports=named, drain=drain, needs=needs)


class _PythonNative(NativeHead):
    """The Python methods of a native function."""

    __slots__ = ("__weakref__", "_resources")

    def __init__(self, entry: int, fallback: Callable[..., Any], resources: _Resources) -> None:
        self.fallback = fallback
        self._resources = resources
        self.state = ctypes.addressof(resources.words)
        self.entry = entry

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fallback(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<native function for {self.fallback!r}>"

    def __del__(self) -> None:
        resources = getattr(self, "_resources", None)
        if (
            resources is None or _active_when_freed is None
        ):  # Ctrl-C came while it was made; the interpreter ends
            return
        # The machine code and its state must outlive a call that is still under way in another thread.
        if resources.words[ACTIVE_WORD]:
            _active_when_freed.append(resources)
        else:
            resources.free_workspace()


if TYPE_CHECKING:

    class NativeFunction(_PythonNative):
        """Machine code as a Python callable."""

else:

    @vectorcalled
    class NativeFunction(_PythonNative):
        """Machine code as a Python callable, made by :func:`bind`.

        It owns its scratch memory and keeps the machine code and the captured arrays alive.
        """

        __slots__ = ()


_living: Final[WeakSet[_PythonNative]] = WeakSet()


def bind(
    loaded: LoadedModule,
    signature: Signature,
    fallback: Callable[..., Any],
    constants: Sequence[npt.NDArray[Any]] = (),
    *,
    statics: Sequence[object] = (),
) -> NativeFunction:
    """Make a Python callable of loaded machine code.

    Parameters
    ----------
    loaded : LoadedModule
        From :func:`load`.
    signature : Signature
        The one that the entry was made for.
    fallback : callable
        Gets, unchanged, every call that the machine code refuses: other types, dtypes, shapes
        or layouts, keyword arguments, and calls whose kernel returned a status other than zero.
    constants : sequence of ndarray, optional
        The captured arrays, C-contiguous, of the dtypes and shapes that the kernel was compiled for.
    statics : sequence of object, optional
        The objects that the static arguments must be.

    Returns
    -------
    NativeFunction
        The callable. It keeps everything alive that it needs.

    Examples
    --------
    >>> from gradtape.runtime.compile.engine import compile_object
    >>> from gradtape.runtime.call.convention import ScalarSpec
    >>> from gradtape.runtime.call.entry_ir import add_entry
    >>> kernel = '''
    ... define i32 @kernel(ptr %inputs, ptr %outputs, ptr %workspace) {
    ...   %x = load ptr, ptr %inputs
    ...   %y = load ptr, ptr %outputs
    ...   %value = load double, ptr %x
    ...   %twice = fadd double %value, %value
    ...   store double %twice, ptr %y
    ...   ret i32 0
    ... }'''
    >>> signature = Signature((ScalarSpec("float"),), (ArraySpec("float64", ()),), 0)
    >>> loaded = load(compile_object(add_entry(kernel, signature), "twice"), signature)
    >>> twice = bind(loaded, signature, fallback=lambda x: f"in Python: {x + x}")
    >>> twice(1.5), twice("ab")
    (np.float64(3.0), 'in Python: abab')
    """
    if len(constants) != signature.constants or len(statics) != signature.statics:
        raise ValueError(
            f"the signature has {signature.constants} constants and {signature.statics} static arguments; "
            f"got {len(constants)} and {len(statics)}"
        )
    words = array_type(ctypes.c_void_p, CONSTANT_WORD + len(constants) + len(statics))()
    for number, constant in enumerate(constants, CONSTANT_WORD):
        if not constant.flags.c_contiguous:
            raise ValueError(f"captured array {number - CONSTANT_WORD} is not C-contiguous")
        words[number] = constant.ctypes.data
    for number, static in enumerate(statics, CONSTANT_WORD + len(constants)):
        words[number] = id(static)
    drain = _DRAIN(loaded.address(ENTRY_DRAIN)) if signature.keeps_workspace else None
    resources = _Resources(words, loaded, drain, signature.workspace, (*constants, *statics))
    native = NativeFunction(loaded.address(ENTRY), fallback, resources)
    _free_resources()
    with _lock:
        _living.add(native)
    return native


def _free_resources() -> None:
    """Free the resources of freed bindings whose last call has ended."""
    for _ in range(len(_active_when_freed)):
        try:
            resources = _active_when_freed.pop(0)
        except IndexError:
            return
        if resources.words[ACTIVE_WORD]:
            _active_when_freed.append(resources)
        else:
            resources.free_workspace()


def kept_workspaces() -> int:
    """Bytes of the workspaces that compiled functions keep for their next call; those in the memory pool do not count.

    Examples
    --------
    >>> kept_workspaces() >= 0
    True
    """
    with _lock:
        living = [native._resources for native in _living]
    return sum(resources.workspace for resources in living if resources.words[WORKSPACE_WORD])


def trim() -> None:
    """Give the memory that compiled functions and freed results have left back to the system; a later call allocates it anew.

    Examples
    --------
    >>> trim()
    >>> kept_workspaces()
    0
    """
    _free_resources()
    with _lock:
        living = [native._resources for native in _living]
    for resources in living:
        resources.drop_workspace()
    drain_all()
    trim_memory()
