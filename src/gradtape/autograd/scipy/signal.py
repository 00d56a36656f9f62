"""The names of scipy.signal; `convolve` takes axes, as autograd's."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from gradtape.autograd.namespaces import names_of

__getattr__, __dir__ = names_of("scipy.signal")


def convolve(A: Any, B: Any, axes: Any = None, dot_axes: Any = None, mode: str = "full") -> Any:
    """Return the convolution of two arrays along axes.

    Parameters
    ----------
    A, B : array_like
        The arrays. Axes that are neither convolved nor contracted are those of an outer product.
    axes : pair of sequences of int, optional
        The axes of `A` and of `B` to convolve along, by default all.
    dot_axes : pair of sequences of int, optional
        The axes of `A` and of `B` to sum over.
    mode : {"full", "valid", "same"}, default "full"
        Whether overlaps are partial or whole; "same" is the part of "full" at its centre that has the lengths of `A`.

    Returns
    -------
    ndarray
        Its axes are the others of `A`, the others of `B`, and those of the convolution.
    """
    A, B = np.asarray(A), np.asarray(B)
    if mode not in ("full", "valid", "same"):
        raise ValueError(f"convolve: mode is {mode!r}; choose 'full', 'valid' or 'same'")
    if axes is None:
        if A.ndim != B.ndim:
            raise ValueError("A.ndim must equal B.ndim if axes not specified")
        axes = [list(range(A.ndim)), list(range(A.ndim))]
    dot_axes = ((), ()) if dot_axes is None else dot_axes
    A, others_a, dots_a = _with_last(A, axes[0], dot_axes[0])
    B, others_b, dots_b = _with_last(B, axes[1], dot_axes[1])
    count, first = len(axes[0]), len(others_a) + len(dots_a)
    first_b = len(others_b) + len(dots_b)
    lengths_a, lengths_b = A.shape[first:], B.shape[first_b:]
    if mode == "valid":
        if all(a <= b for a, b in zip(lengths_a, lengths_b, strict=True)) and lengths_a != lengths_b:
            whole = _sum_of_shifts(B, A, first_b, len(dots_b), count)
            return np.moveaxis(
                whole, range(len(others_b)), range(len(others_a), len(others_a) + len(others_b))
            )
    else:
        A = np.pad(A, [(0, 0)] * first + [(length - 1, length - 1) for length in lengths_b])
    whole = _sum_of_shifts(A, B, first, len(dots_a), count)
    if mode != "same":
        return whole
    centre = tuple(slice((b - 1) // 2, (b - 1) // 2 + a) for a, b in zip(lengths_a, lengths_b, strict=True))
    return whole[(..., *centre)]


def _with_last(array: Any, axes: Any, dot_axes: Any) -> tuple[Any, list[int], list[int]]:
    """Return an array with the axes to contract, and behind them those to convolve, at its end."""
    last, dots = [axis % array.ndim for axis in axes], [axis % array.ndim for axis in dot_axes]
    others = [axis for axis in range(array.ndim) if axis not in (*last, *dots)]
    return np.transpose(array, (*others, *dots, *last)), others, dots


def _sum_of_shifts(whole: Any, kernel: Any, first: int, dots: int, count: int) -> Any:
    """Return the sum over the elements of a kernel of itself times the part of `whole` that it meets."""
    lengths = kernel.shape[kernel.ndim - count :]
    sizes = [a - b + 1 for a, b in zip(whole.shape[first:], lengths, strict=True)]
    letters = "abcdefghijklmnopqrstuvwxyz"
    own = letters[: first - dots]
    theirs = letters[first - dots : first - dots + kernel.ndim - count - dots]
    common = letters[20 : 20 + dots]
    subscripts = f"{own}{common}...,{theirs}{common}->{own}{theirs}..."
    total = 0.0
    for index in product(*map(range, lengths)):
        window = tuple(
            slice(length - 1 - k, length - 1 - k + size)
            for k, length, size in zip(index, lengths, sizes, strict=True)
        )
        total = total + np.einsum(subscripts, whole[(slice(None),) * first + window], kernel[(..., *index)])
    return total
