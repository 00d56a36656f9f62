"""Updates of QR: of a matrix to which a product is added, and with rows or columns inserted or deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray
from gradtape.kinds.arguments import as_int
from gradtape.kinds.registry import FUNCTIONS, borrows
from gradtape.kinds.routines.callback import Callback, callback_row
from gradtape.kinds.routines.derivatives import Outs, Push, Tangents
from gradtape.ops.core.elementwise.cast import zeros_like
from gradtape.ops.core.join import join
from gradtape.ops.core.linalg.equations import scipy_function
from gradtape.ops.core.linalg.factors import cut_columns, cut_rows, with_rest
from gradtape.ops.core.matrices import adjoint
from gradtape.ops.core.matrices import qr as qr_row
from gradtape.ops.core.shape import reshape
from gradtape.ops.numpy.linalg.products import matmul
from gradtape.ops.numpy.linalg.solve import inexact, stacked
from gradtape.ops.scipy.linalg.solve import refuse


def _updated(
    a: NDArray, q: NDArray, r: NDArray, *others: NDArray, name: str, options: tuple[Any, ...]
) -> Any:
    return scipy_function(name)(q, r, *others, *options)


def _tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    """The factors are those of the first operand, as it is after the update."""
    columns, triangle = outs
    n = triangle.shape[-1]
    thin, top = cut_columns(columns, 0, n), cut_rows(triangle, 0, n)
    assert qr_row.tangent is not None
    inner = qr_row.tangent((thin, top), inputs[:1], {})

    def push(tangents: Tangents) -> Tangents:
        moved = inner(tangents[:1])
        assert isinstance(moved, tuple)
        if moved[0] is None:
            return None, None
        if columns.shape[-1] == n:
            return moved
        rest = zeros_like(cut_rows(triangle, n, triangle.shape[-2]))
        return with_rest(thin, columns, moved[0]), join([moved[1], rest], triangle.ndim - 2)

    return push


def _shapes(a: Any, q: Any, r: Any, *others: Any, **params: Any) -> Any:
    k = a[0] if q[0] == q[1] else a[1]
    return (a[0], k), (k, a[1])


_ROWS: dict[int, Callback] = {
    count: callback_row(
        f"qr_with_{count}",
        ranks=(2, 2, 2, *(2,) * count),
        shapes=_shapes,
        dtypes=lambda *dtypes, **params: (dtypes[0], dtypes[0]),
        evaluate=_updated,
        tangent=_tangent,
        kinks="the derivative of vectors that complete a basis lies in the span of the others",
        samples=(),
    )
    for count in range(3)
}
"""The factors of an updated matrix, given it, the factors before, and the inserted or added rows and columns."""


def _factors(Q: Any, R: Any) -> tuple[Value, Value, Value]:
    q, r = stacked(inexact(Q, "Q")), stacked(inexact(R, "R"))
    if q.ndim > 2 or r.ndim > 2:
        raise refuse("an update of a stack of factors", "use gt.vmap")
    return q, r, matmul(q, r)


def _result(
    name: str, a: Value, q: Value, r: Value, others: Sequence[Value], options: tuple[Any, ...]
) -> Any:
    if a.shape[0] < a.shape[1]:
        raise refuse(f"scipy.linalg.{name} of a matrix with more columns than rows", "use scipy.linalg.qr")
    return _ROWS[len(others)].results(a, q, r, *others, name=name, options=options)


def _axis(which: str) -> int:
    if which not in ("row", "col"):
        raise ValueError("'which' must be either 'row' or 'col'")
    return 0 if which == "row" else 1


@borrows("scipy.linalg.qr_delete")
def qr_delete(
    Q: Any,
    R: Any,
    k: Any,
    p: Any = 1,
    which: str = "row",
    overwrite_qr: bool = False,
    check_finite: bool = True,
) -> Any:
    """Follow `scipy.linalg.qr_delete`."""
    q, r, whole = _factors(Q, R)
    first, count, axis = as_int(k, "k"), as_int(p, "p"), _axis(which)
    first += whole.shape[axis] if first < 0 else 0
    left = FUNCTIONS[np.delete](whole, np.arange(first, first + count), axis)
    return _result("qr_delete", left, q, r, (), (first, count, which))


@borrows("scipy.linalg.qr_insert")
def qr_insert(
    Q: Any,
    R: Any,
    u: Any,
    k: Any,
    which: str = "row",
    rcond: Any = None,
    overwrite_qru: bool = False,
    check_finite: bool = True,
) -> Any:
    """Follow `scipy.linalg.qr_insert`."""
    q, r, whole = _factors(Q, R)
    place, axis, new = as_int(k, "k"), _axis(which), inexact(u, "u")
    place += whole.shape[axis] if place < 0 else 0
    if new.ndim == 1:
        new = reshape(new, (1, new.size) if axis == 0 else (new.size, 1))
    cut = cut_rows if axis == 0 else cut_columns
    pieces = [cut(whole, 0, place), new, cut(whole, place, whole.shape[axis])]
    return _result("qr_insert", join(pieces, axis), q, r, (new,), (place, which))


@borrows("scipy.linalg.qr_update")
def qr_update(Q: Any, R: Any, u: Any, v: Any, overwrite_qruv: bool = False, check_finite: bool = True) -> Any:
    """Follow `scipy.linalg.qr_update`."""
    q, r, whole = _factors(Q, R)
    left, right = inexact(u, "u"), inexact(v, "v")
    if left.ndim == 1:
        left, right = reshape(left, (left.size, 1)), reshape(right, (right.size, 1))
    return _result("qr_update", whole + matmul(left, adjoint(right)), q, r, (left, right), ())
