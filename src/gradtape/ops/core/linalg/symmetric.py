"""Eigenvalues of symmetric matrices, in the forms that SciPy takes: pairs of matrices, bands, and parts of the spectrum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray
from gradtape.ir.types import part_dtype
from gradtape.kinds.routines.callback import Callback, callback_row
from gradtape.kinds.routines.derivatives import Outs, Push, Tangents
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.indexing import getitem
from gradtape.ops.core.lengths import MAIN, on_diagonal
from gradtape.ops.core.linalg.bands import between_bands
from gradtape.ops.core.linalg.eigen import gaps
from gradtape.ops.core.linalg.equations import scipy_function, total
from gradtape.ops.core.matrices import adjoint, real_diagonal, scaled_columns, symmetric, weighted
from gradtape.ops.core.shape import expand
from gradtape.ops.numpy.linalg.products import matmul
from gradtape.ops.numpy.linalg.solve import solved

KINKS = "that of a symmetric matrix; 0 between eigenvectors of equal eigenvalues, but exact for functions of the matrix by reverse mode"


def _with_real(*dtypes: np.dtype[Any], **params: Any) -> tuple[np.dtype[Any], ...]:
    dtype = np.result_type(*dtypes)
    return (part_dtype(dtype) if dtype.kind == "c" else dtype), dtype


def _evaluated(
    solve: Callable[..., Any], subset: tuple[int, int] | None, **options: Any
) -> tuple[NDArray, ...]:
    """Return all eigenvalues and vectors; those of a subset are what the solver returns for the subset alone."""
    numbers, vectors = solve(**options)
    if subset is not None:
        first, last = subset
        numbers[first : last + 1], vectors[:, first : last + 1] = solve(subset=subset, **options)
    return numbers, vectors


def _tangents(outs: Outs, da: Value | None, db: Value | None = None) -> Tangents:
    """Return the tangents of A V = B V W with V.H B V = 1; without B it is the identity."""
    numbers, vectors = outs
    inside = None if da is None else matmul(adjoint(vectors), matmul(symmetric(da), vectors))
    change = inside
    stretch = None
    if db is not None:
        stretch = matmul(adjoint(vectors), matmul(symmetric(db), vectors))
        change = total(inside, -scaled_columns(stretch, convert(numbers, stretch.dtype)))
    if change is None:
        return None, None
    rotation = change * convert(gaps(numbers), change.dtype)
    if stretch is not None:
        rotation = rotation - weighted(stretch, lambda d: 0.5 * MAIN(d))
    return real_diagonal(change), matmul(vectors, rotation)


# One matrix


def _eigh_by(
    a: NDArray, *, lower: bool, driver: str | None, subset: tuple[int, int] | None
) -> tuple[NDArray, ...]:
    def solve(subset: Any = None) -> Any:
        used = driver if subset is None or driver in ("evr", "evx") else None
        return scipy_function("eigh")(a, lower=lower, driver=used, subset_by_index=subset)

    return _evaluated(solve, subset)


eigh_by: Callback = callback_row(
    "eigh_by",
    ranks=(2,),
    shapes=lambda a, **params: (a[:-1], a),
    dtypes=_with_real,
    evaluate=_eigh_by,
    tangent=lambda outs, inputs, params: lambda tangents: _tangents(outs, tangents[0]),
    kinks=KINKS,
    samples=(
        ((3, 3), {"lower": True, "driver": None, "subset": None}),
        ((2, 3, 3), {"lower": False, "driver": "evd", "subset": (1, 2)}),
    ),
    prepare=lambda a: [a + adjoint(a)],
    codes="fd",
)
"""`eigh` by a driver of LAPACK's; vectors have the signs that SciPy's have."""


# Two matrices


def _eigh_pair(
    a: NDArray, b: NDArray, *, lower: bool, kind: int, driver: str | None, subset: tuple[int, int] | None
) -> tuple[NDArray, ...]:
    def solve(subset: Any = None) -> Any:
        used = driver if subset is None or driver == "gvx" else None
        return scipy_function("eigh")(a, b, lower=lower, type=kind, driver=used, subset_by_index=subset)

    return _evaluated(solve, subset)


def _eigh_pair_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    """Kind 1 is A V = B V W. With C = 1 / B, kind 3 (B A V = V W) is A V = C V W, and kind 2 (A B V = V W) is the same of B V."""
    (numbers, vectors), (_, b), kind = outs, inputs, params["kind"]

    def push(tangents: Tangents) -> Tangents:
        da, db = tangents
        if da is None and db is None:
            return None, None
        if kind == 1:
            return _tangents(outs, da, db)
        db = None if db is None else symmetric(db)
        metric = None if db is None else -adjoint(solved(b, adjoint(solved(b, db))))
        if kind == 3:
            return _tangents(outs, da, metric)
        inner = matmul(b, vectors)
        moved, turned = _tangents((numbers, inner), da, metric)
        assert turned is not None
        change = turned if db is None else turned - matmul(db, vectors)
        return moved, solved(b, change)

    return push


def _pair(a: Value, b: Value) -> list[Value]:
    return [a + adjoint(a), (b + adjoint(b)) * 0.02 + np.eye(b.shape[-1], dtype=b.dtype)]


eigh_pair: Callback = callback_row(
    "eigh_pair",
    ranks=(2, 2),
    shapes=lambda a, b, **params: (a[:-1], a),
    dtypes=_with_real,
    evaluate=_eigh_pair,
    tangent=_eigh_pair_tangent,
    kinks=KINKS,
    samples=tuple(
        ((3, 3), (3, 3), {"lower": True, "kind": kind, "driver": None, "subset": subset})
        for kind, subset in ((1, None), (1, (0, 1)), (2, None), (3, None))
    ),
    prepare=_pair,
    codes="fd",
)
"""The same of two matrices: a x = w b x, a b x = w x, or b a x = w x."""


# Bands


def _eigh_banded(bands: NDArray, *, lower: bool, subset: tuple[int, int] | None) -> tuple[NDArray, ...]:
    def solve(subset: Any = None) -> Any:
        chosen = {} if subset is None else {"select": "i", "select_range": subset}
        return scipy_function("eig_banded")(bands, lower=lower, **chosen)

    return _evaluated(solve, subset)


def whole_from_bands(bands: Value, lower: bool) -> Value:
    """Return symmetric matrices, given the bands of one triangle."""
    u = bands.shape[-2] - 1
    triangle = between_bands(bands, u if lower else 0, 0 if lower else u)
    return triangle + weighted(adjoint(triangle), lambda d: 1 - MAIN(d))


def _eigh_banded_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    def push(tangents: Tangents) -> Tangents:
        (moved,) = tangents
        return _tangents(outs, None if moved is None else whole_from_bands(moved, params["lower"]))

    return push


eigh_banded: Callback = callback_row(
    "eigh_banded",
    ranks=(2,),
    shapes=lambda bands, **params: (bands[1:], (bands[1], bands[1])),
    dtypes=_with_real,
    evaluate=_eigh_banded,
    tangent=_eigh_banded_tangent,
    kinks=KINKS,
    samples=(((2, 4), {"lower": True, "subset": None}), ((3, 4), {"lower": False, "subset": (1, 2)})),
    codes="fd",
)
"""The same of a matrix in bands: those of one triangle are the rows."""


def _eigh_tridiagonal(
    d: NDArray, e: NDArray, *, driver: str, subset: tuple[int, int] | None
) -> tuple[NDArray, ...]:
    def solve(subset: Any = None) -> Any:
        chosen = {} if subset is None else {"select": "i", "select_range": subset}
        used = driver if subset is None or driver in ("stemr", "stebz") else "auto"
        return scipy_function("eigh_tridiagonal")(d, e, lapack_driver=used, **chosen)

    return _evaluated(solve, subset)


def _eigh_tridiagonal_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    n = inputs[0].shape[-1]

    def push(tangents: Tangents) -> Tangents:
        dd, de = tangents
        main = None if dd is None else place_numbers(dd, n, 0)
        beside = None if de is None else place_numbers(de, n, -1)
        if beside is not None:
            beside = beside + adjoint(beside)
        return _tangents(outs, total(main, beside))

    return push


def place_numbers(x: Value, n: int, offset: int) -> Value:
    """Return matrices with numbers on or below their diagonal."""
    rows = np.clip(np.arange(n) + offset, 0, max(x.shape[-1] - 1, 0))
    return weighted(_rows_of(x, rows, n), on_diagonal(offset))


def _rows_of(x: Value, rows: NDArray, n: int) -> Value:
    """Return matrices whose rows repeat a number each."""
    wide = getitem(x, (..., rows))
    return expand(wide, (*wide.shape, n), tuple(range(wide.ndim)))


eigh_tridiagonal: Callback = callback_row(
    "eigh_tridiagonal",
    ranks=(1, 1),
    shapes=lambda d, e, **params: (d, (*d, *d)),
    dtypes=_with_real,
    evaluate=_eigh_tridiagonal,
    tangent=_eigh_tridiagonal_tangent,
    kinks=KINKS,
    samples=(
        ((4,), (3,), {"driver": "auto", "subset": None}),
        ((2, 3), (2, 2), {"driver": "auto", "subset": (1, 2)}),
    ),
    codes="fd",
)
"""The same of a matrix of three diagonals."""
