"""The calling convention: the arguments and results of a native entry, and the layout of its state.

A kernel is ``int32_t kernel(void **inputs, void **outputs, void *workspace)``. Its inputs are followed by captured constants. It returns 0,
or the number of a guard that does not hold (with the actual value in the workspace), or a negative number where the interpreter has to
say what is wrong. The entry in front of it is a C function of CPython's vectorcall protocol; what differs between two uses of the same
machine code is in a block of words, the state, that the called object points to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from gradtape.lower.resident.memory import LARGE

__all__ = ["ArraySpec", "CallForm", "ScalarSpec", "Signature", "StaticSpec", "Structure"]

ENTRY: Final = "entry"
"""The function of a module that a Python callable calls."""

ENTRY_DRAIN: Final = "entry.drain"
"""The function of a module that frees the workspace which a state keeps between calls."""

HEAVY: Final = "%heavy"
"""The register of an entry for several lengths which says whether other threads may run meanwhile: it is compared, and never a constant."""

WORKSPACE_WORD: Final = 0
ACTIVE_WORD: Final = 1
CONSTANT_WORD: Final = 2
"""Words of the state: scratch memory, calls under way, then the addresses of captured arrays and of static arguments."""

STACK_WORKSPACE: Final = 2048
"""Workspaces up to this many bytes are on the stack. Larger ones stay with the function from call to call, and large ones come from the
memory pool, which all functions share."""

Structure: TypeAlias = "int | tuple[Structure, ...] | list[Structure] | None"
"""How outputs are handed back: the number of an output, or tuples and lists of such, or None."""


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """An ndarray of one dtype and shape, C-contiguous, aligned, in native byte order.

    An output of shape ``()`` is a NumPy scalar of that dtype. An argument of shape ``()`` is what `kind` says: an ``"array"``, a
    ``"scalar"``, or ``"either"``.

    Examples
    --------
    >>> ArraySpec("float64", (2, 3)).nbytes
    48
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    kind: Literal["array", "scalar", "either"]

    def __init__(
        self, dtype: Any, shape: tuple[int, ...], kind: Literal["array", "scalar", "either"] = "either"
    ) -> None:
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "dtype", np.dtype(dtype))
        object.__setattr__(self, "shape", tuple(map(int, shape)))

    @property
    def nbytes(self) -> int:
        """Bytes of the data."""
        return self.dtype.itemsize * math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class ScalarSpec:
    """A Python number of exactly one type.

    The kernel sees a C double for ``"float"``, an int64 for ``"int"``, a byte for ``"bool"``, two doubles for
    ``"complex"``.
    """

    kind: Literal["float", "int", "bool", "complex"]


@dataclass(frozen=True, slots=True)
class StaticSpec:
    """An argument that the kernel does not see: it must be the very object that it was compiled for."""


@dataclass(frozen=True)
class CallForm:
    """How a native entry is called and returns.

    Attributes
    ----------
    arguments : tuple of ArraySpec, ScalarSpec or StaticSpec
        One per positional Python argument. The kernel's inputs are those that are not static, in this order,
        then the captured constants.
    outputs : tuple of ArraySpec
        The kernel's outputs.
    structure : nested tuples and lists of int or None
        How the outputs are handed back; an int counts into `outputs`.
    apart : tuple of (int, int)
        Pairs of arguments that have no memory in common: the function writes to one of them. The entry takes no others.
    written : tuple of int
        The arrays among the arguments that the function writes to: the entry takes none that is read-only.
    """

    arguments: tuple[ArraySpec | ScalarSpec | StaticSpec, ...]
    outputs: tuple[ArraySpec, ...]
    structure: Structure
    apart: tuple[tuple[int, int], ...] = field(default=(), kw_only=True)
    written: tuple[int, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True)
class Signature(CallForm):
    """Everything that the native entry of one specialisation needs to know: how it is called, and what its kernel needs.

    Attributes
    ----------
    constants : int
        Number of captured arrays, whose addresses :func:`~gradtape.runtime.call.entry.bind` is given.
    workspace : int
        Bytes of scratch memory that the kernel needs.
    release_gil : bool
        Let other Python threads run during the kernel; worth it above a few microseconds.
    polls : bool
        Whether a signal may end the kernel, with an exception that is then raised.

    Examples
    --------
    >>> vector = ArraySpec("float64", (2,))
    >>> Signature((vector, ScalarSpec("float")), (ArraySpec("float64", ()), vector), (0, 1)).inputs
    2
    """

    constants: int = 0
    workspace: int = 0
    release_gil: bool = False
    polls: bool = False

    @property
    def inputs(self) -> int:
        """Number of arguments that the kernel sees."""
        return len(self.arguments) - self.statics

    @property
    def statics(self) -> int:
        """Number of arguments that are compared by identity."""
        return sum(isinstance(argument, StaticSpec) for argument in self.arguments)

    @property
    def keeps_workspace(self) -> bool:
        """Whether the function keeps its workspace between calls: it is too large for the stack, and too small for the memory pool.

        Examples
        --------
        >>> [Signature((), (), None, workspace=size).keeps_workspace for size in (64, 2**14, 2**20)]
        [False, True, False]
        """
        return STACK_WORKSPACE < self.workspace < LARGE

    @property
    def pools_workspace(self) -> bool:
        """Whether each call takes its workspace from the memory pool."""
        return self.workspace >= LARGE
