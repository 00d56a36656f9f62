"""The vector spaces of values: arrays, numbers, and containers of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np

from gradtape.trace.array.handle import Handle
from gradtape.trees import flatten, outline, tree_map, unflatten


class VSpace:
    """The vector space of a value.

    Parameters
    ----------
    value : array_like, or nest of them
        An element.

    Examples
    --------
    >>> from gradtape.autograd.extend import vspace
    >>> vspace([1.0, [2.0, 3.0]]).zeros()
    [np.float64(0.0), [np.float64(0.0), np.float64(0.0)]]
    """

    mappings: ClassVar[dict[type, Callable[[Any], Any]]] = {}

    def __init__(self, value: Any) -> None:
        self._leaves, self._spec = flatten(value)
        self._shapes = tuple(np.shape(leaf) for leaf in self._leaves)
        self._dtypes = tuple(_dtype_of(leaf) for leaf in self._leaves)
        self._leaves = []

    @property
    def iscomplex(self) -> bool:
        """Whether an element is one complex array or number."""
        return self._spec.is_leaf() and self._dtypes[0].kind == "c"

    @property
    def shape(self) -> Any:
        """The shape of an array; for a container, the spaces of its parts."""
        if self._spec.is_leaf():
            return self._shapes[0]
        return unflatten(self._spec, [VSpace(zeros) for zeros in self._of(np.zeros)])

    @property
    def ndim(self) -> int:
        """The number of dimensions of an array."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of an array."""
        return self._dtypes[0]

    @property
    def size(self) -> int:
        """The number of real numbers in an element."""
        return sum(
            int(np.prod(shape)) * (2 if dtype.kind == "c" else 1)
            for shape, dtype in zip(self._shapes, self._dtypes, strict=True)
        )

    def zeros(self) -> Any:
        """Return zero."""
        return self._filled(np.zeros)

    def ones(self) -> Any:
        """Return the element of ones, 1 + 1j where it is complex."""
        return self._filled(lambda shape, dtype: np.full(shape, 1 + 1j if dtype.kind == "c" else 1, dtype))

    def randn(self) -> Any:
        """Return an element of normal random numbers."""

        def drawn(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
            real = np.array(np.random.randn(*shape))
            return (real + 1j * np.random.randn(*shape) if dtype.kind == "c" else real).astype(dtype)

        return self._filled(drawn)

    def standard_basis(self) -> Iterator[Any]:
        """Yield the unit vectors, times 1 and times 1j where they are complex."""
        for k, (shape, dtype) in enumerate(zip(self._shapes, self._dtypes, strict=True)):
            for index in np.ndindex(*shape):
                for unit in (1.0, 1.0j) if dtype.kind == "c" else (1.0,):
                    leaves = self._of(np.zeros)
                    leaves[k][index] = unit
                    yield unflatten(self._spec, [leaf if leaf.ndim else leaf[()] for leaf in leaves])

    def add(self, x: Any, y: Any) -> Any:
        """Return x + y."""
        return self._map(lambda a, b: a + b, x, y)

    mut_add = add

    def scalar_mul(self, x: Any, a: Any) -> Any:
        """Return a x."""
        return self._map(lambda part: part * a, x)

    def inner_prod(self, x: Any, y: Any) -> Any:
        """Return the real inner product of two elements."""
        products = (
            np.real(np.dot(np.conj(np.ravel(a)), np.ravel(b)))
            for a, b in zip(flatten(x)[0], flatten(y)[0], strict=True)
        )
        return sum(products)

    def covector(self, x: Any) -> Any:
        """Return the cotangent that belongs to an element: its conjugate."""
        return self._map(lambda part, dtype: np.conj(part) if dtype.kind == "c" else part, x, self._dtypes)

    def _of(self, make: Callable[..., Any]) -> list[Any]:
        return [make(shape, dtype) for shape, dtype in zip(self._shapes, self._dtypes, strict=True)]

    def _filled(self, make: Callable[..., Any]) -> Any:
        return unflatten(self._spec, [array if array.ndim else array[()] for array in self._of(make)])

    def _map(self, function: Callable[..., Any], *elements: Any) -> Any:
        parts = [
            part if isinstance(part, tuple) and part is self._dtypes else flatten(part)[0]
            for part in elements
        ]
        return unflatten(self._spec, [function(*each) for each in zip(*parts, strict=True)])

    def _key(self) -> Any:
        return self._spec, self._shapes, self._dtypes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VSpace) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((self._shapes, self._dtypes))

    def __repr__(self) -> str:
        return f"VSpace({outline(self._spec)}, shapes={self._shapes}, dtypes={tuple(map(str, self._dtypes))})"

    @classmethod
    def register(cls, value_type: type, vspace_maker: Callable[[Any], Any] | None = None) -> None:
        """Let values of a type have a space of this class, or the one that a function makes."""
        VSpace.mappings[value_type] = vspace_maker or cls


def vspace(value: Any) -> Any:
    """Return the vector space of a value.

    Raises
    ------
    TypeError
        If it has none.
    """
    make = VSpace.mappings.get(type(value))
    return make(value) if make is not None else VSpace(value)


def differentiable(value: Any) -> Any:
    """Return a value with arrays of floats in place of those of integers."""
    return tree_map(lambda leaf: leaf.astype(float) if _is_integral(leaf) else leaf, value)


def _is_integral(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind in "biu"


def _dtype_of(leaf: Any) -> np.dtype[Any]:
    if isinstance(leaf, Handle | np.ndarray | np.generic):
        return leaf.dtype
    if isinstance(leaf, bool | int) or not isinstance(leaf, float | complex):
        raise TypeError(f"Can't find vector space for value {leaf} of type {type(leaf)}")
    return np.dtype(type(leaf))
