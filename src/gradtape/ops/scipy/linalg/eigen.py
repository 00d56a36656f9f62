"""Eigenvalues and eigenvectors, in all of SciPy's forms, and Schur's form."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.types import INT64
from gradtape.kinds.arguments import as_array, as_int
from gradtape.kinds.operands import broadcast_to
from gradtape.kinds.registry import FUNCTIONS, UFUNCS, borrows
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.complex_parts import imag, real
from gradtape.ops.core.elementwise.logic import equal, logical_and, not_equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.indexing import getitem
from gradtape.ops.core.linalg.eigen import complex_dtype, eig, eig_pair, schur, schur_of_blocks
from gradtape.ops.core.linalg.symmetric import (
    eigh_banded,
    eigh_by,
    eigh_pair,
    eigh_tridiagonal,
    place_numbers,
    whole_from_bands,
)
from gradtape.ops.core.reductions import reduce_sum
from gradtape.ops.core.shape import expand
from gradtape.ops.numpy.linalg.factors import real_if_zero
from gradtape.ops.numpy.linalg.products import matmul
from gradtape.ops.numpy.linalg.solve import alike, eigvalsh, inexact, square
from gradtape.ops.scipy.linalg.solve import completed, refuse

# Any matrix


@borrows("scipy.linalg.eig")
def scipy_eig(
    a: Any,
    b: Any = None,
    left: bool = False,
    right: bool = True,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
    homogeneous_eigvals: bool = False,
) -> Any:
    """Follow `scipy.linalg.eig`: for different eigenvalues."""
    if homogeneous_eigvals:
        raise refuse(
            "scipy.linalg.eig with homogeneous_eigvals=True", "omit it: the quotients have derivatives"
        )
    x = square(inexact(a))
    if b is None:
        numbers, *vectors = eig.results(x, left=bool(left))
        is_real = x.dtype.kind != "c"
    else:
        x, y = alike(x, square(inexact(b, "b")))
        numbers, *vectors = eig_pair.results(x, y, left=bool(left))
        is_real = x.dtype.kind != "c"
    if is_real and (left or right):
        vectors = _real_vectors(numbers, vectors)
    wanted = [*vectors[:-1], *vectors[-1:][: bool(right)]]
    return (numbers, *wanted) if wanted else numbers


def _real_vectors(numbers: Value, vectors: list[Value]) -> list[Value]:
    """Return the vectors, as real ones where all eigenvalues are real."""
    tested, *found = real_if_zero(numbers, *vectors)
    return found if tested is not numbers else vectors


@borrows("scipy.linalg.eigvals")
def scipy_eigvals(
    a: Any,
    b: Any = None,
    overwrite_a: bool = False,
    check_finite: bool = True,
    homogeneous_eigvals: bool = False,
) -> Any:
    """Follow `scipy.linalg.eigvals`."""
    return scipy_eig(a, b, right=False, homogeneous_eigvals=homogeneous_eigvals)


@borrows("scipy.linalg.cdf2rdf")
def cdf2rdf(w: Any, v: Any) -> tuple[Value, Value]:
    """Follow `scipy.linalg.cdf2rdf`."""
    numbers, vectors = as_array(w, "w"), as_array(v, "v")
    numbers = convert(numbers, complex_dtype(numbers.dtype))
    vectors = convert(vectors, complex_dtype(vectors.dtype))
    n, last = numbers.shape[-1], numbers.ndim - 1
    parts = imag(numbers)
    paired = not_equal(parts, 0)
    count = FUNCTIONS[np.cumsum](convert(paired, INT64), axis=-1)
    odd = equal(UFUNCS["remainder"](count, 2), 1)
    first, second = logical_and(paired, odd), where(odd, False, paired)
    blocks = place_numbers(real(numbers), n, 0)
    above = where(first, parts, 0)
    below = where(second, parts, 0)
    blocks = blocks + FUNCTIONS[np.swapaxes](
        place_numbers(getitem(above, (..., slice(0, n - 1))), n, -1), -1, -2
    )
    blocks = blocks + place_numbers(getitem(below, (..., slice(1, n))), n, -1)
    wide = expand(first, vectors.shape, (*range(last), last + 1))
    return blocks, where(wide, -imag(vectors), real(vectors))


@borrows("scipy.linalg.schur")
def scipy_schur(
    a: Any,
    output: str = "real",
    lwork: Any = None,
    overwrite_a: bool = False,
    sort: Any = None,
    check_finite: bool = True,
) -> tuple[Value, ...]:
    """Follow `scipy.linalg.schur`: for different eigenvalues."""
    if output not in ("real", "complex", "r", "c"):
        raise ValueError("argument must be 'real', or 'complex'")
    if sort is not None and sort not in ("lhp", "rhp", "iuc", "ouc"):
        raise refuse("scipy.linalg.schur with a function as sort", "pass 'lhp', 'rhp', 'iuc' or 'ouc'")
    x = square(inexact(a))
    if output in ("complex", "c"):
        x = convert(x, complex_dtype(x.dtype))
    triangle, basis, count = schur.results(x, sort=sort or "")
    return (triangle, basis) if sort is None else (triangle, basis, count)


@borrows("scipy.linalg.rsf2csf")
def rsf2csf(T: Any, Z: Any, check_finite: bool = True) -> tuple[Value, Value]:
    """Follow `scipy.linalg.rsf2csf`."""
    triangle, basis = alike(square(inexact(T, "T")), square(inexact(Z, "Z")))
    form, turn = schur_of_blocks.results(triangle)
    return form, matmul(convert(basis, turn.dtype), turn)


# Symmetric matrices


@borrows("scipy.linalg.eigh")
def scipy_eigh(
    a: Any,
    b: Any = None,
    *,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    type: int = 1,
    check_finite: bool = True,
    subset_by_index: Any = None,
    subset_by_value: Any = None,
    driver: Any = None,
) -> Any:
    """Follow `scipy.linalg.eigh`: of one matrix, or of a x = w b x; the derivative takes the matrices for symmetric."""
    x = square(inexact(a))
    if b is not None and type not in (1, 2, 3):
        raise ValueError(f'"type" keyword only accepts 1, 2, and 3, got {type}.')
    if subset_by_index is not None and subset_by_value is not None:
        raise ValueError("Either index or value subset can be requested.")
    options: dict[str, Any] = {"lower": bool(lower), "driver": driver}
    if b is None and eigvals_only and driver is None:
        numbers = vectors = eigvalsh(x, "L" if lower else "U")
    else:
        subset = None if subset_by_index is None or eigvals_only else tuple(map(int, subset_by_index))
        if b is None:
            numbers, vectors = eigh_by.results(x, subset=subset, **options)
        else:
            x, metric = alike(x, square(inexact(b, "b")))
            whole = completed(metric, bool(lower))
            numbers, vectors = eigh_pair.results(x, whole, subset=subset, kind=int(type), **options)
    chosen = _chosen(numbers, subset_by_index, subset_by_value)
    if chosen is not None:
        numbers = getitem(numbers, (..., chosen))
        vectors = numbers if eigvals_only else getitem(vectors, (..., chosen))
    return numbers if eigvals_only else (numbers, vectors)


def _chosen(numbers: Value, by_index: Any, by_value: Any) -> slice | None:
    """Return which eigenvalues are requested; how many lie between two numbers is a number of the trace."""
    if by_index is not None:
        first, last = map(int, by_index)
        if not 0 <= first <= last < numbers.shape[-1]:
            raise ValueError(
                f"Requested eigenvalue indices are not valid. Valid range is [0, {numbers.shape[-1] - 1}]"
            )
        return slice(first, last + 1)
    if by_value is None:
        return None
    low, high = by_value
    if numbers.ndim > 1:
        raise refuse("a part of the spectrum of a stack of matrices, by values", "take it by index")
    before = as_int(_count(numbers <= low), "the number of eigenvalues")
    return slice(before, as_int(_count(numbers <= high), "the number of eigenvalues"))


def _count(flags: Value) -> Value:
    return reduce_sum(convert(flags, INT64), axes=(flags.ndim - 1,))


@borrows("scipy.linalg.eigvalsh")
def scipy_eigvalsh(a: Any, b: Any = None, *, lower: bool = True, **options: Any) -> Any:
    """Follow `scipy.linalg.eigvalsh`."""
    return scipy_eigh(a, b, lower=lower, eigvals_only=True, **options)


# Bands and diagonals


def _selection(select: Any, select_range: Any) -> tuple[Any, Any]:
    """Return a part of the spectrum by index, and by value."""
    kind = {"a": "a", "all": "a", 0: "a", "i": "i", "index": "i", 2: "i", "v": "v", "value": "v", 1: "v"}.get(
        select
    )
    if kind is None:
        raise ValueError("invalid argument for select")
    if kind == "a":
        return None, None
    return (tuple(map(int, select_range)), None) if kind == "i" else (None, select_range)


def _part(numbers: Value, vectors: Value, chosen: slice | None, eigvals_only: bool) -> Any:
    if chosen is not None:
        numbers, vectors = getitem(numbers, (..., chosen)), getitem(vectors, (..., chosen))
    return numbers if eigvals_only else (numbers, vectors)


@borrows("scipy.linalg.eig_banded")
def eig_banded(
    a_band: Any,
    lower: bool = False,
    eigvals_only: bool = False,
    overwrite_a_band: bool = False,
    select: Any = "a",
    select_range: Any = None,
    max_ev: int = 0,
    check_finite: bool = True,
) -> Any:
    """Follow `scipy.linalg.eig_banded`."""
    by_index, by_value = _selection(select, select_range)
    bands = inexact(a_band, "a_band")
    if eigvals_only:
        numbers = vectors = eigvalsh(whole_from_bands(bands, bool(lower)))
    else:
        numbers, vectors = eigh_banded.results(bands, lower=bool(lower), subset=by_index)
    chosen = _chosen(numbers, by_index, by_value)
    if eigvals_only:
        return numbers if chosen is None else getitem(numbers, (..., chosen))
    return _part(numbers, vectors, chosen, eigvals_only)


@borrows("scipy.linalg.eigvals_banded")
def eigvals_banded(
    a_band: Any,
    lower: bool = False,
    overwrite_a_band: bool = False,
    select: Any = "a",
    select_range: Any = None,
    check_finite: bool = True,
) -> Any:
    """Follow `scipy.linalg.eigvals_banded`."""
    return eig_banded(a_band, lower, True, select=select, select_range=select_range)


@borrows("scipy.linalg.eigh_tridiagonal")
def scipy_eigh_tridiagonal(
    d: Any,
    e: Any,
    eigvals_only: bool = False,
    select: Any = "a",
    select_range: Any = None,
    check_finite: bool = True,
    tol: float = 0.0,
    lapack_driver: str = "auto",
) -> Any:
    """Follow `scipy.linalg.eigh_tridiagonal`."""
    by_index, by_value = _selection(select, select_range)
    main, beside = inexact(d, "d"), inexact(e, "e")
    dtype = np.result_type(main.dtype, beside.dtype)
    main, beside = convert(main, dtype), convert(beside, dtype)
    if main.shape[-1] != beside.shape[-1] + 1:
        raise ValueError(f"d ({main.size}) must have one more element than e ({beside.size})")
    lead = np.broadcast_shapes(main.shape[:-1], beside.shape[:-1])
    main = broadcast_to(main, (*lead, *main.shape[-1:]))
    beside = broadcast_to(beside, (*lead, *beside.shape[-1:]))
    driver = lapack_driver if lapack_driver != "sterf" else "auto"
    numbers, vectors = eigh_tridiagonal.results(main, beside, driver=driver, subset=by_index)
    return _part(numbers, vectors, _chosen(numbers, by_index, by_value), eigvals_only)


@borrows("scipy.linalg.eigvalsh_tridiagonal")
def eigvalsh_tridiagonal(
    d: Any,
    e: Any,
    select: Any = "a",
    select_range: Any = None,
    check_finite: bool = True,
    tol: float = 0.0,
    lapack_driver: str = "auto",
) -> Any:
    """Follow `scipy.linalg.eigvalsh_tridiagonal`."""
    return scipy_eigh_tridiagonal(d, e, True, select, select_range, lapack_driver=lapack_driver)
