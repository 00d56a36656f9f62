"""What NumPy and the array API standard say about an array beside its elements: sizes, memory layout, device, namespace."""

from __future__ import annotations

import builtins
import importlib
import operator
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, Literal

import numpy as np

from gradtape.errors import ArgumentError, DtypeError, InPlaceError
from gradtape.trace.array.concretize import array_of, numbers_for_reader
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.layout import exact_shadow_of, memory_of, root_of
from gradtape.trace.array.views import ReadOnlyView, StridedView
from gradtape.trace.jit.guards import Trace
from gradtape.trace.source.asking import ASKING
from gradtape.trace.source.sites import is_user_file, user_site
from gradtape.trace.subclasses.instances import instance


def _asked(number: int) -> Any:
    """Return a number that follows from a shape as the caller's caller is to get it."""
    questions = None if ASKING.questions is None else ASKING.by_user(sys._getframe(2))
    return number if questions is None else questions.extent(number)


API_VERSIONS: Final = {
    **dict.fromkeys(("2021.12", "2022.12", "2023.12", "2024.12", None), "gradtape.array_api"),
    "2025.12": "gradtape.array_api.tuples",
}
"""The modules of the versions of the array API standard: each adds to the one before, and the last has tuples in place of lists."""


class OutsideMemory:
    """The owner of the memory of arguments that are views."""

    def __repr__(self) -> str:
        return "<the array of which an argument is a view>"


OUTSIDE: Final = OutsideMemory()


class Attributes:
    """Attributes of ndarrays that depend on the shape, the dtype and the layout only."""

    __slots__ = ()

    @property
    def itemsize(self: Any) -> int:
        """Bytes of one element."""
        return int(self.dtype.itemsize)

    @property
    def nbytes(self: Any) -> int:
        """Bytes of all elements."""
        bytes_: int = _asked(int(self.size * self.dtype.itemsize))
        return bytes_

    @property
    def strides(self: Any) -> tuple[int, ...]:
        """Bytes between neighbouring elements along each axis, as NumPy would have laid the array out."""
        if self._contiguous is not True:  # strides of dense arrays are parts of the signature
            _note_question(self)
        return tuple(map(_asked, _layout(self).strides))

    @property
    def flags(self: Any) -> Any:
        """The flags of an ndarray of the same layout."""
        return Flags(self)

    @property
    def base(self: Any) -> Any:
        """The array that a view belongs to; None for an array with its own memory.

        An object outside the recording, of which an argument is a view, is represented by another one: only ``x.base is None`` can be
        asked of it.
        """
        root = root_of(self)
        _note_question(self)
        memory = memory_of(root)
        if memory is not None and not memory.owndata:
            return OUTSIDE
        return None if root is self else root

    @property
    def device(self) -> Literal["cpu"]:
        """The device of the array API standard: arrays are in the memory of the host."""
        return "cpu"

    def to_device(self: Any, device: str, /, *, stream: None = None) -> Any:
        """Return the array itself; its one device is ``"cpu"``, as NumPy's is."""
        if device != "cpu" or stream is not None:
            raise ArgumentError(
                f"to_device got the device {device!r} and the stream {stream!r}",
                why="arrays are in the memory of the host",
                remedy='pass "cpu", without a stream',
            )
        return self

    def view(self: Any, dtype: Any = None, type: Any = None) -> Any:
        """Return the array as a view, also as an object of a subclass of ndarray. With another dtype it is a copy, of complex numbers as
        pairs or the reverse, for packages that only read it."""
        cls = dtype if isinstance(dtype, builtins.type) and issubclass(dtype, np.ndarray) else type
        if cls is not None and cls is not np.ndarray:
            numbers = numbers_for_reader(self.value)
            if numbers is not None:
                return numbers.view(cls) if dtype is None or dtype is cls else numbers.view(dtype, cls)
            viewed = self.view() if dtype is None or dtype is cls else self.view(dtype)
            return instance(cls, viewed, self[...] if self.is_scalar else self)
        wanted = self.dtype if dtype is None or dtype is cls else np.dtype(dtype)
        if wanted == self.dtype:
            return self[...]
        if self.ndim and not is_user_file(sys._getframe(1).f_code.co_filename):
            if self.dtype.kind == "c" and wanted == self.real.dtype:
                return np.stack([self.real, self.imag], axis=-1).reshape(*self.shape[:-1], -1)
            if wanted.kind == "c" and np.empty(0, wanted).real.dtype == self.dtype:
                pairs = self.reshape(*self.shape[:-1], -1, 2)
                return pairs[..., 0] + 1j * pairs[..., 1]
        raise DtypeError(
            f"x.view({wanted}) of an array of {self.dtype}",
            where=user_site(),
            why="an array is a value: it has no bytes that could be read as another dtype",
            remedy="use x.astype(dtype) for the same numbers, x.real and x.imag, or x.numpy().view(dtype)",
        )

    def setflags(self, write: bool | None = None, align: bool | None = None, uic: bool | None = None) -> None:
        """Do nothing: an array is a value, and write protection does not change.

        Raises
        ------
        InPlaceError
            To make the array writeable, or to change the alignment of the memory.
        """
        if write or align or uic:
            raise InPlaceError(
                "x.setflags(write=True) of a traced array",
                where=user_site(),
                why="an array is a value, which has no memory of its own",
                remedy="x[i] = y needs no flag; x.setflags(write=False) does nothing",
            )

    def __array_namespace__(self: Any, /, *, api_version: str | None = None) -> ModuleType:
        """Return the namespace of the array API standard whose functions take the array: `gradtape.array_api`, of version 2024.12, unless
        another version is requested."""
        return array_namespace(api_version)

    def __dlpack__(
        self: Any,
        /,
        *,
        stream: None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return the memory of the array for another library, without a copy unless one is requested.

        An array is a value, so its memory is marked as read-only for libraries that know DLPack 1.0 (`max_version`). Older ones cannot be
        told so, and must not write to it. Memory in reversed order is copied, since not all libraries take negative strides; so is memory
        that NumPy holds as read-only, for older libraries.

        Raises
        ------
        BufferError
            If `copy` is False and a copy is needed.
        """
        data = array_of(self.value, "x.__dlpack__()", meant=False)
        knows_read_only = max_version is not None and tuple(max_version) >= (1, 0)
        if copy or (copy is None and not (data.flags.writeable or knows_read_only)):
            data = data.copy()
        elif any(step < 0 for step in data.strides):
            if copy is False:
                raise BufferError(
                    "an array in reversed order cannot be given without a copy, since not all libraries take negative strides; leave "
                    "copy=False away"
                )
            data = data.copy()
        data = data.view()
        try:
            data.flags.writeable = bool(copy) or not knows_read_only
        except ValueError:
            raise BufferError(
                "an array in memory that is read-only cannot be given without a copy to a library that does not know DLPack 1.0; leave "
                "copy=False away"
            ) from None
        return data.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's number of the processor, and the first device of its kind."""
        return 1, 0


LAYOUT_FLAGS: Final = frozenset(
    {"c", "f", "c_contiguous", "contiguous", "f_contiguous", "fortran", "fnc", "forc"}
)
"""The flags that follow from the layout, which is a part of signatures."""


class Flags:
    """The flags of an array, as `numpy.ndarray.flags` has them, by attributes and by names in brackets."""

    __slots__ = ("_array",)

    _array: Any

    def __init__(self, array: Any) -> None:
        object.__setattr__(self, "_array", array)

    def _read(self, name: str, read: Callable[[Any], Any]) -> Any:
        array = self._array
        if name.lower() not in LAYOUT_FLAGS:
            _note_question(array)
        if name.lower() in ("owndata", "o"):
            memory = memory_of(array)
            return root_of(array) is array if memory is None else memory.owndata
        seen = _layout(array)
        if seen.flags.writeable and _is_read_only(array):
            seen = seen.view()
            seen.flags.writeable = False
        return read(seen.flags)

    def __getattr__(self, name: str) -> Any:
        return self._read(name, operator.attrgetter(name))

    def __getitem__(self, name: str) -> Any:
        return self._read(name, operator.itemgetter(name))

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "writeable":
            self._array.setflags(write=value)
        else:
            setattr(np.empty(0).flags, name, value)  # NumPy's error

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other)

    def __hash__(self) -> int:
        raise TypeError("unhashable type: 'Flags'")

    def __repr__(self) -> str:
        names = ("C_CONTIGUOUS", "F_CONTIGUOUS", "OWNDATA", "WRITEABLE", "ALIGNED", "WRITEBACKIFCOPY")
        return "".join([f"  {name} : {self[name]}\n" for name in names])


def _note_question(array: Any) -> None:
    """Let the traces that an argument belongs to note that code reads its memory."""
    if memory_of(root_of(array)) is not None:
        for tag in array.value.tags:
            if isinstance(tag, Trace) and tag.recording:
                tag.asks_memory = True


def _layout(array: Any) -> Any:
    """Return an ndarray with the layout of an array; where it is not known, with that of a copy in C order."""
    seen = exact_shadow_of(array)
    return np.empty(array.shape, array.dtype) if seen is None else seen


def _is_read_only(array: Any) -> bool:
    """Return whether an array is a view that cannot be written to, or a view of one."""
    while array is not None and array._base is not None:
        view = getattr(array, "_view", None)  # a variable has none
        if isinstance(view, ReadOnlyView) or (isinstance(view, StridedView) and not view.writeable):
            return True
        array = array._base if isinstance(array._base, Handle) else None
    return False


def array_namespace(api_version: str | None) -> ModuleType:
    """Return `gradtape.array_api`, which stands above the arrays and is imported when first used.

    Raises
    ------
    ArgumentError
        For a version of the standard that it does not know.
    """
    module = API_VERSIONS.get(api_version)
    if module is None:
        raise ArgumentError(
            f"api_version={api_version!r}",
            where=user_site(),
            why=f"gradtape.array_api has the versions {', '.join(filter(None, API_VERSIONS))} of the array API standard",
            remedy="ask for one of these, or for no version",
        )
    return importlib.import_module(module)
