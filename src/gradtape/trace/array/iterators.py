"""Iterators of traced arrays: `numpy.ndarray.flat`, `numpy.nditer` and `numpy.broadcast`, element by element in C order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from gradtape.errors import UnsupportedFunctionError
from gradtape.trace.source.sites import user_site


class FlatIterator:
    """The elements of an array in C order, as `numpy.flatiter` has them: to be iterated over, read and written.

    Parameters
    ----------
    array : Array
        It is written to by ``x.flat[k] = v`` and ``x.flat = v``.
    """

    __slots__ = ("base", "index")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, array: Any) -> None:
        self.base = array
        self.index = 0

    @property
    def coords(self) -> tuple[int, ...]:
        """The index of the next element."""
        return _coordinates(self.index, self.base.shape)

    def __len__(self) -> int:
        return int(self.base.size)

    def __iter__(self) -> FlatIterator:
        return self

    def __next__(self) -> Any:
        if self.index >= len(self):
            raise StopIteration
        found = self.base[self.coords]
        self.index += 1
        return found

    def __getitem__(self, key: Any) -> Any:
        return self.base.reshape(-1)[key].copy()

    def __setitem__(self, key: Any, new: Any) -> None:
        positions = np.arange(len(self))[key]
        values = np.resize(new, np.shape(positions))
        self.base[np.unravel_index(positions, self.base.shape)] = values

    def copy(self) -> Any:
        """Return the elements as a new vector."""
        return self.base.flatten()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.base.reshape(-1), dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return getattr(ufunc, method)(
            *with_vectors(inputs), **{name: with_vectors(each) for name, each in kwargs.items()}
        )

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return function(*with_vectors(args), **{name: with_vectors(each) for name, each in kwargs.items()})


def with_vectors(operand: Any) -> Any:
    """Return an operand, or what is in lists and tuples of operands, with vectors in place of iterators."""
    if type(operand) is list or type(operand) is tuple:
        return type(operand)([with_vectors(each) for each in operand])
    return operand.base.reshape(-1) if isinstance(operand, FlatIterator) else operand


def _coordinates(index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(int, np.unravel_index(index, shape))) if index < np.prod(shape, dtype=int) else shape


IGNORED_FLAGS: Final = frozenset(
    {"buffered", "c_index", "common_dtype", "copy_if_overlap", "delay_bufalloc", "grow_inner", "multi_index"}
    | {"ranged", "refs_ok", "reduce_ok", "zerosize_ok"}
)
"""Flags of `numpy.nditer` that do not change what is iterated over."""


class ArrayIterator:
    """The elements of arrays that are broadcast together, as `numpy.nditer` has them, in C order.

    Parameters
    ----------
    op : Array or sequence
        The operands. Elements of operands that have the flag ``"readwrite"`` or ``"writeonly"`` are written by ``v[...] = number``.
    flags : sequence of str, optional
        Those of `numpy.nditer`.
    op_flags : sequence, optional
        Has no effect: all operands can be written to.
    **options
        Others of `numpy.nditer` are refused unless they are None.

    Raises
    ------
    UnsupportedFunctionError
        For ``"external_loop"``, ``"f_index"``, None as an operand, and other options.
    """

    def __init__(
        self,
        op: Any,
        flags: Sequence[str] = (),
        op_flags: Any = None,
        op_dtypes: Any = None,
        order: str = "K",
        **options: Any,
    ) -> None:
        self.operands = tuple(op) if isinstance(op, list | tuple) else (op,)
        refused = [
            *sorted(set(flags) - IGNORED_FLAGS),
            *[name for name, option in options.items() if option is not None],
            *["op_dtypes"][: op_dtypes is not None],
            *[f"order={order!r}"][: order not in "CKA"],
            *["an operand None"][: any(operand is None for operand in self.operands)],
        ]
        if refused:
            raise UnsupportedFunctionError(
                f"np.nditer of traced arrays with {', '.join(refused)}",
                where=user_site(),
                remedy="iterate with np.ndindex(x.shape), or write it for whole arrays",
            )
        self.shape = np.broadcast_shapes(*[np.shape(operand) for operand in self.operands])
        self.itersize = int(np.prod(self.shape, dtype=int))
        self.iterindex = 0

    @property
    def index(self) -> int:
        """The position of the current elements in C order."""
        return self.iterindex

    @property
    def multi_index(self) -> tuple[int, ...]:
        """The index of the current elements."""
        return _coordinates(self.iterindex, self.shape)

    @property
    def finished(self) -> bool:
        """Whether all elements were visited."""
        return self.iterindex >= self.itersize

    @property
    def value(self) -> Any:
        """The current elements: arrays of rank 0 that can be written to, a tuple of them for several operands."""
        found = tuple(self._element(operand) for operand in self.operands)
        return found if len(found) > 1 else found[0]

    def _element(self, operand: Any) -> Any:
        shape = np.shape(operand)
        place = self.multi_index[len(self.shape) - len(shape) :]
        at = tuple(0 if extent == 1 else k for k, extent in zip(place, shape, strict=True))
        return operand[(*at, ...)] if shape else operand

    def iternext(self) -> bool:
        """Move to the next elements, and return whether there are any."""
        self.iterindex += 1
        return not self.finished

    def __len__(self) -> int:
        return len(self.operands)

    def __getitem__(self, place: int) -> Any:
        return self._element(self.operands[place])

    def __setitem__(self, place: int, new: Any) -> None:
        self._element(self.operands[place])[...] = new

    def __iter__(self) -> Iterator[Any]:
        while not self.finished:
            yield self.value
            self.iterindex += 1

    def __enter__(self) -> ArrayIterator:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: elements are written at once."""

    def reset(self) -> None:
        """Begin again."""
        self.iterindex = 0

    def close(self) -> None:
        """Do nothing: elements are written at once."""


class Broadcast:
    """The elements of arrays that are broadcast together, as `numpy.broadcast` has them: mostly asked for their shape.

    Parameters
    ----------
    *operands : array_like
        Those of `numpy.broadcast`.
    """

    __class__ = property(lambda self: np.broadcast)  # isinstance asks it

    def __init__(self, *operands: Any) -> None:
        self._operands = [part for each in operands for part in _parts_of(each)]
        self._arrays = np.broadcast_arrays(*self._operands)
        self.shape: tuple[int, ...] = self._arrays[0].shape
        self.ndim = self.nd = len(self.shape)
        self.size = int(np.prod(self.shape, dtype=int))
        self.numiter = len(self._operands)
        self.reset()

    def reset(self) -> None:
        """Begin with the first elements."""
        self.index = 0

    def __iter__(self) -> Broadcast:
        return self

    def __next__(self) -> tuple[Any, ...]:
        if self.index >= self.size:
            raise StopIteration
        place = _coordinates(self.index, self.shape)
        self.index += 1
        return tuple(array[place] for array in self._arrays)


def _parts_of(operand: Any) -> list[Any]:
    """Return what an operand of `numpy.broadcast` stands for: those of another one, or itself."""
    if type(operand) is Broadcast:
        return operand._operands
    return [each.base for each in operand.iters] if type(operand) is np.broadcast else [operand]
