"""Descriptions of arguments: shapes and dtypes without data."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gradtape.errors import ArgumentError
from gradtape.habits import suggests_keywords
from gradtape.kinds.operands import check_dtype
from gradtape.trace.jit.dims import Dim
from gradtape.trace.source.sites import user_site
from gradtape.trees import tree_map

NUMBERS: Final = {float: 1.0, int: 1, complex: 1.0 + 0.0j}
"""Python's types, which describe its numbers."""


@dataclass(frozen=True)
class Spec:
    """The shape and the dtype of an array; made by `spec`."""

    shape: tuple[int | Dim, ...]
    dtype: np.dtype[Any]

    def __repr__(self) -> str:
        return f"gt.spec({self.shape}, {self.dtype.name!r})"


@suggests_keywords
def spec(shape: int | Dim | tuple[int | Dim, ...] | list[int | Dim], dtype: Any = np.float64) -> Spec:
    """Describe an array by its shape and dtype, for functions that compile without data.

    Parameters
    ----------
    shape : int, Dim or sequence of these
        The extents; ``()`` for a number of NumPy's. Python's own numbers are described by their types: ``float``, ``int``. A
        `gradtape.Dim` is a length that varies, for `gradtape.export`.
    dtype : dtype, default numpy.float64
        Of the elements.

    Returns
    -------
    Spec
        Has the attributes ``shape`` and ``dtype``.

    Raises
    ------
    ArgumentError
        If a length is not a natural number.
    DtypeError
        If the dtype is not supported.

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
        if isinstance(extent, Dim):
            continue
        if isinstance(extent, bool) or not isinstance(extent, int | np.integer) or extent < 0:
            raise ArgumentError(
                f"spec: shape must be a tuple of non-negative integers; got {shape!r}",
                where=user_site(),
                remedy='gt.spec((100, 3)), gt.spec(()) for one number, gt.spec((gt.Dim("n"), 3)) for a length that varies',
            )
    try:
        found = np.dtype(dtype)
    except TypeError:
        raise ArgumentError(
            f"spec: dtype must be a NumPy dtype; got {dtype!r}",
            where=user_site(),
            remedy="gt.spec((100,), np.float32), gt.spec((), 'i8')",
        ) from None
    return Spec(
        tuple([extent if isinstance(extent, Dim) else int(extent) for extent in extents]),
        check_dtype(found, "spec: dtype"),
    )


def examples(tree: Any) -> tuple[Any, bool]:
    """Return arguments with arrays in place of descriptions, and whether there are any.

    A description is a `Spec`, a type of Python's numbers, or any object with a shape and a dtype that is no array.
    """
    found = False

    def example(leaf: Any) -> Any:
        nonlocal found
        if leaf is bool:
            raise ArgumentError(
                "bool is not a spec: Python's True and False are static",
                where=user_site(),
                why="each value compiles a program of its own",
                remedy="give True or False, or gt.spec((), bool) for a NumPy bool",
            )
        if isinstance(leaf, type) and leaf in NUMBERS:
            found = True
            return NUMBERS[leaf]
        if isinstance(leaf, Spec) or _is_foreign_spec(leaf):
            found = True
            varying = next((extent for extent in leaf.shape if isinstance(extent, Dim)), None)
            if varying is not None:
                raise _varying(varying)
            dtype = np.dtype(leaf.dtype)
            # Ones are in the domain of nearly every function; a whole number may be an index, or steer a loop.
            return np.ones(leaf.shape, dtype) if dtype.kind in "fc" else np.zeros(leaf.shape, dtype)
        return leaf

    return tree_map(example, tree), found


def _varying(dim: Dim) -> ArgumentError:
    return ArgumentError(
        f"the length {dim.name} varies, and a function is lowered for fixed lengths",
        where=user_site(),
        remedy="give a number; gt.export writes files for varying lengths, and gt.jit(f, shapes=...) compiles for them",
    )


def dims_of(tree: Any) -> tuple[list[Dim], list[tuple[int | Dim, ...]]]:
    """Return the lengths that vary in descriptions, in the order in which they occur, and the shapes.

    Raises
    ------
    ArgumentError
        Where one name stands for different bounds.
    """
    dims: dict[str, Dim] = {}
    shapes: list[tuple[int | Dim, ...]] = []

    def look(leaf: Any) -> Any:
        if not isinstance(leaf, Spec):
            return leaf
        shapes.append(leaf.shape)
        for extent in leaf.shape:
            if isinstance(extent, Dim) and dims.setdefault(extent.name, extent) != extent:
                raise ArgumentError(
                    f"the length {extent.name} is both {dims[extent.name]!r} and {extent!r}",
                    where=user_site(),
                    remedy=f'use one object for it: {extent.name} = gt.Dim("{extent.name}")',
                )
        return leaf

    tree_map(look, tree)
    return list(dims.values()), shapes


def with_lengths(tree: Any, lengths: Mapping[str, int]) -> Any:
    """Return descriptions with numbers in place of the lengths that vary."""

    def fixed(leaf: Any) -> Any:
        if not isinstance(leaf, Spec):
            return leaf
        return Spec(tuple([lengths[e.name] if isinstance(e, Dim) else e for e in leaf.shape]), leaf.dtype)

    return tree_map(fixed, tree)


def _is_foreign_spec(leaf: Any) -> bool:
    return (
        type(leaf).__name__ in ("ShapeDtypeStruct", "TensorSpec")
        and isinstance(getattr(leaf, "shape", None), tuple)
        and hasattr(leaf, "dtype")
    )


_SPEC: Final = re.compile(r"\s*([?<>=|]?\w+)\s*(?:\[([^\[\]]*)\])?\s*")
_EXTENT: Final = re.compile(
    r"\s*(?:(?P<fixed>\d+)|(?P<name>[A-Za-z_]\w*)\s*(?:>=\s*(?P<min>\d+))?\s*(?:<=\s*(?P<max>\d+))?)\s*"
)


def parse_specs(text: str) -> list[Any]:
    """Return the descriptions that a text lists: ``f8[100,3], i8[], float``.

    Examples
    --------
    >>> parse_specs("f8[100,3], i4[], float")
    [gt.spec((100, 3), 'float64'), gt.spec((), 'int32'), <class 'float'>]
    >>> parse_specs("f8[n,3], f8[n], f8[m>=2<=9]")
    [gt.spec((gt.Dim('n'), 3), 'float64'), gt.spec((gt.Dim('n'),), 'float64'), gt.spec((gt.Dim('m', min=2, max=9),), 'float64')]
    """
    dims: dict[str, Dim] = {}
    _parsed(text, dims)
    return _parsed(text, dims)  # now each length has its bounds, wherever they stand


def _parsed(text: str, dims: dict[str, Dim]) -> list[Any]:
    specs: list[Any] = []
    at = 0
    while at < len(text.rstrip()):
        match = _SPEC.match(text, at)
        if match is None or (match.end() < len(text) and text[match.end()] != ","):
            raise _unreadable(text, at)
        name, extents = match.groups()
        at = match.end() + 1
        if extents is None:
            python = next((kind for kind in (*NUMBERS, bool) if kind.__name__ == name), None)
            if python is None:
                raise _unreadable(text, match.start())
            specs.append(python)
            continue
        parts = [_EXTENT.fullmatch(extent) for extent in extents.split(",") if extent.strip()]
        shape = [_extent(part, dims) for part in parts if part is not None]
        if len(shape) < len(parts):
            raise _unreadable(text, match.start())
        specs.append(spec(tuple(shape), name))
    return specs


def _extent(match: re.Match[str], dims: dict[str, Dim]) -> int | Dim:
    """Return a number, or the length of a name; enter its bounds."""
    if match["fixed"]:
        return int(match["fixed"])
    low, high = match["min"], match["max"]
    if match["name"] not in dims or low or high:
        dims[match["name"]] = Dim(match["name"], min=int(low or 0), max=int(high) if high else None)
    return dims[match["name"]]


def _unreadable(text: str, at: int) -> ArgumentError:
    return ArgumentError(
        f"the specs {text!r} cannot be read at {text[at:]!r}",
        why="each is a dtype with the extents in brackets, numbers or names of lengths that vary, or a Python number type",
        remedy='"f8[100,3],f8[],i8[5],float", "f8[n,3],f8[n]", "f8[n>=1<=1000]"',
    )


def check_described(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    caller: str,
    *,
    why: str,
    call: str,
) -> None:
    """Raise ArgumentError unless a function can be called with these examples or descriptions of its arguments.

    Parameters
    ----------
    function : callable
    args, kwargs
        The examples and descriptions.
    caller : str
        The public function that got them.
    why : str
        Why it needs them.
    call : str
        How it is called, with ``{}`` for the descriptions.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a function of C that does not have one
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        required = [
            parameter
            for parameter in signature.parameters.values()
            if parameter.default is parameter.empty
            and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        ]
        raise ArgumentError(
            f"{caller}: {error}",
            where=user_site(),
            why=why,
            remedy=f"{call.format(', gt.spec((3, 4))' * len(required))}, with the shape of each argument; gt.spec(()) is a number",
        ) from None
