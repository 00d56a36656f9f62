"""What type checkers see of the methods: the parameters of NumPy's, and Arrays for results."""

from collections.abc import Sequence
from typing import Any, Literal, SupportsIndex, TypeAlias

from numpy.typing import ArrayLike, DTypeLike

from gradtape.ir.op import NDArray
from gradtape.trace.array.array import Array
from gradtape.trace.array.iterators import FlatIterator

Axis: TypeAlias = int | Sequence[int] | None
Indices: TypeAlias = Array | NDArray | int | Sequence[Any]
Numbers: TypeAlias = Array | ArrayLike
Order: TypeAlias = Literal["C", "F", "A", "K"]
Casting: TypeAlias = Literal["no", "equiv", "safe", "same_kind", "unsafe"]

class Methods:
    def sum(
        self,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: Any = None,
        keepdims: bool = ...,
        initial: Numbers = ...,
        where: Numbers = ...,
    ) -> Array: ...
    def prod(
        self,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: Any = None,
        keepdims: bool = ...,
        initial: Numbers = ...,
        where: Numbers = ...,
    ) -> Array: ...
    def mean(
        self,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: Any = None,
        keepdims: bool = ...,
        *,
        where: Numbers = ...,
    ) -> Array: ...
    def var(
        self,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: Any = None,
        ddof: float = 0,
        keepdims: bool = ...,
        *,
        where: Numbers = ...,
        mean: Numbers = ...,
        correction: float = ...,
    ) -> Array: ...
    def std(
        self,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: Any = None,
        ddof: float = 0,
        keepdims: bool = ...,
        *,
        where: Numbers = ...,
        mean: Numbers = ...,
        correction: float = ...,
    ) -> Array: ...
    def max(
        self,
        axis: Axis = None,
        out: Any = None,
        keepdims: bool = ...,
        initial: Numbers = ...,
        where: Numbers = ...,
    ) -> Array: ...
    def min(
        self,
        axis: Axis = None,
        out: Any = None,
        keepdims: bool = ...,
        initial: Numbers = ...,
        where: Numbers = ...,
    ) -> Array: ...
    def any(
        self, axis: Axis = None, out: Any = None, keepdims: bool = ..., *, where: Numbers = ...
    ) -> Array: ...
    def all(
        self, axis: Axis = None, out: Any = None, keepdims: bool = ..., *, where: Numbers = ...
    ) -> Array: ...
    def argmax(self, axis: int | None = None, out: Any = None, *, keepdims: bool = ...) -> Array: ...
    def argmin(self, axis: int | None = None, out: Any = None, *, keepdims: bool = ...) -> Array: ...
    def cumsum(self, axis: int | None = None, dtype: DTypeLike | None = None, out: Any = None) -> Array: ...
    def cumprod(self, axis: int | None = None, dtype: DTypeLike | None = None, out: Any = None) -> Array: ...
    def dot(self, b: Numbers, out: Any = None) -> Array: ...
    def round(self, decimals: int = 0, out: Any = None) -> Array: ...
    def take(
        self,
        indices: Indices,
        axis: int | None = None,
        out: Any = None,
        mode: Literal["raise", "wrap", "clip"] = "raise",
    ) -> Array: ...
    def repeat(self, repeats: Indices, axis: int | None = None) -> Array: ...
    def trace(
        self, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: DTypeLike | None = None, out: Any = None
    ) -> Array: ...
    def argsort(
        self, axis: int | None = -1, kind: Any = None, order: None = None, *, stable: bool | None = None
    ) -> Array: ...
    def argpartition(
        self, kth: Indices, axis: int | None = -1, kind: str = "introselect", order: None = None
    ) -> Array: ...
    def searchsorted(
        self, v: Numbers, side: Literal["left", "right"] = "left", sorter: Indices | None = None
    ) -> Array: ...
    def compress(self, condition: Numbers, axis: int | None = None, out: Any = None) -> Array: ...
    def nonzero(self) -> tuple[Array, ...]: ...
    def choose(
        self, choices: Any, out: Any = None, mode: Literal["raise", "wrap", "clip"] = "raise"
    ) -> Array: ...
    def swapaxes(self, axis1: int, axis2: int) -> Array: ...
    def squeeze(self, axis: Axis = None) -> Array: ...
    def ravel(self, order: Order = "C") -> Array: ...
    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array: ...
    def reshape(
        self,
        *shape: SupportsIndex | Sequence[SupportsIndex],
        order: Literal["C", "F", "A"] = "C",
        copy: bool | None = None,
    ) -> Array: ...
    def transpose(self, *axes: SupportsIndex | Sequence[SupportsIndex] | None) -> Array: ...
    def clip(
        self, min: Numbers | None = None, max: Numbers | None = None, out: Any = None, **options: Any
    ) -> Array: ...
    def conj(self) -> Array: ...
    def conjugate(self) -> Array: ...
    def flatten(self, order: Order = "C") -> Array: ...
    def copy(self, order: Order = "C") -> Array: ...
    def astype(
        self,
        dtype: DTypeLike,
        order: Order = "K",
        casting: Casting = "unsafe",
        subok: bool = True,
        copy: bool = True,
    ) -> Array: ...
    def fill(self, number: Numbers) -> None: ...
    def put(
        self, indices: Indices, values: Numbers, mode: Literal["raise", "wrap", "clip"] = "raise"
    ) -> None: ...
    def sort(
        self, axis: int = -1, kind: Any = None, order: None = None, *, stable: bool | None = None
    ) -> None: ...
    def partition(
        self, kth: Indices, axis: int = -1, kind: str = "introselect", order: None = None
    ) -> None: ...
    @property
    def T(self) -> Array: ...
    @property
    def mT(self) -> Array: ...
    @property
    def real(self) -> Array: ...
    @real.setter
    def real(self, new: Numbers) -> None: ...
    @property
    def imag(self) -> Array: ...
    @imag.setter
    def imag(self, new: Numbers) -> None: ...
    @property
    def flat(self) -> FlatIterator: ...
    @flat.setter
    def flat(self, new: Numbers) -> None: ...
