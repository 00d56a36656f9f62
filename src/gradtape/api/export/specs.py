"""Descriptions of arguments: shapes and dtypes without data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gradtape.errors import ArgumentError
from gradtape.kinds.operands import check_dtype
from gradtape.trace.source.sites import user_site
from gradtape.trees import tree_map

NUMBERS: Final = {float: 1.0, int: 1, bool: False, complex: 1.0 + 0.0j}
"""Python's types, which describe its numbers."""


@dataclass(frozen=True)
class Spec:
    """The shape and the dtype of an array; made by `spec`."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __repr__(self) -> str:
        return f"gt.spec({self.shape}, {self.dtype.name!r})"


def spec(shape: int | tuple[int, ...] | list[int], dtype: Any = np.float64) -> Spec:
    """Describe an array by its shape and dtype, for functions that compile without data.

    Parameters
    ----------
    shape : int or sequence of int
        The extents; ``()`` for a number of NumPy's. Python's own numbers are described by their types: ``float``, ``int``.
    dtype : dtype, default numpy.float64
        Of the elements.

    Returns
    -------
    Spec
        Has the attributes ``shape`` and ``dtype``.

    Raises
    ------
    ArgumentError
        For extents that are no natural numbers.
    DtypeError
        For dtypes that cannot be computed with.

    Examples
    --------
    >>> import gradtape as gt
    >>> gt.spec(3)
    gt.spec((3,), 'float64')
    >>> lowered = gt.jit(lambda x: x.sum(axis=0)).lower(gt.spec((3, 4), "f4"))
    >>> lowered.out_specs
    gt.spec((4,), 'float32')
    """
    extents = shape if isinstance(shape, tuple | list) else (shape,)
    for extent in extents:
        if isinstance(extent, bool) or not isinstance(extent, int | np.integer) or extent < 0:
            raise ArgumentError(
                f"spec: shape must be made of whole numbers from 0; got {shape!r}",
                where=user_site(),
                remedy="gt.spec((100, 3)), gt.spec(()) for one number",
            )
    try:
        found = np.dtype(dtype)
    except TypeError:
        raise ArgumentError(
            f"spec: dtype must be a dtype of NumPy's; got {dtype!r}",
            where=user_site(),
            remedy="gt.spec((100,), np.float32), gt.spec((), 'i8')",
        ) from None
    return Spec(tuple([int(extent) for extent in extents]), check_dtype(found, "spec: dtype"))


def examples(tree: Any) -> tuple[Any, bool]:
    """Return arguments with arrays in place of descriptions, and whether there are any.

    A description is a `Spec`, a type of Python's numbers, or any object with a shape and a dtype that is no array.
    """
    found = False

    def example(leaf: Any) -> Any:
        nonlocal found
        if isinstance(leaf, type) and leaf in NUMBERS:
            found = True
            return NUMBERS[leaf]
        if isinstance(leaf, Spec) or _is_foreign_spec(leaf):
            found = True
            dtype = np.dtype(leaf.dtype)
            # Ones are in the domain of nearly every function; a whole number may be an index, or steer a loop.
            return np.ones(leaf.shape, dtype) if dtype.kind in "fc" else np.zeros(leaf.shape, dtype)
        return leaf

    return tree_map(example, tree), found


def _is_foreign_spec(leaf: Any) -> bool:
    return (
        type(leaf).__name__ in ("ShapeDtypeStruct", "TensorSpec")
        and isinstance(getattr(leaf, "shape", None), tuple)
        and hasattr(leaf, "dtype")
    )


_SPEC: Final = re.compile(r"\s*([?<>=|]?\w+)\s*(?:\[([\d\s,]*)\])?\s*")


def parse_specs(text: str) -> list[Any]:
    """Return the descriptions that a text lists: ``f8[100,3], i8[], float``.

    Examples
    --------
    >>> parse_specs("f8[100,3], i4[], float")
    [gt.spec((100, 3), 'float64'), gt.spec((), 'int32'), <class 'float'>]
    """
    specs: list[Any] = []
    at = 0
    while at < len(text.rstrip()):
        match = _SPEC.match(text, at)
        if match is None or (match.end() < len(text) and text[match.end()] != ","):
            raise _unreadable(text, at)
        name, extents = match.groups()
        at = match.end() + 1
        if extents is None:
            python = next((kind for kind in NUMBERS if kind.__name__ == name), None)
            if python is None:
                raise _unreadable(text, match.start())
            specs.append(python)
            continue
        shape = tuple([int(extent) for extent in extents.split(",") if extent.strip()])
        specs.append(spec(shape, name))
    return specs


def _unreadable(text: str, at: int) -> ArgumentError:
    return ArgumentError(
        f"the specs {text!r} cannot be read at {text[at:]!r}",
        why="each is a dtype with the extents in brackets, or a type of Python's numbers",
        remedy='"f8[100,3],f8[],i8[5],float"',
    )
