"""Linear algebra in extended precision, which LAPACK does not have: by elimination in NumPy, column by column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gradtape.api.debug.arithmetic import product_error, sum_error
from gradtape.ir.op import NDArray

LARGEST: Final = 200
"""The size of matrices up to which elimination in NumPy is fast enough."""


REFINED: Final = 2
"""How often the solution of a system is corrected."""


def evaluate_extended(
    name: str, operands: list[NDArray], params: dict[str, Any], rng: np.random.Generator
) -> list[NDArray] | None:
    """Return the results of a row of the matrix kind in the precision of its operands.

    Parameters
    ----------
    name : str
        The row.
    operands : list of ndarray
        The row's operands, whose leading axes are those of several matrices.
    params : dict
        Its parameters.
    rng : Generator
        Chooses the order of elimination, with which rounding errors change.

    Returns
    -------
    list of ndarray or None
        None if this row is not computed here, or a matrix is singular or large.
    """
    routine = _ROUTINES.get(name)
    if routine is None or not operands[0].size or operands[0].shape[-1] > LARGEST:
        return None
    lead = operands[0].shape[:-2]
    found = []
    for place in np.ndindex(*lead):
        one = routine(*[x[place] for x in operands], rng=rng, **params)
        if one is None:
            return None
        found.append(one)
    return [np.reshape(np.stack(found), (*lead, *found[0].shape))]


def refined(
    name: str,
    operands: list[NDArray],
    params: dict[str, Any],
    results: list[NDArray],
    rng: np.random.Generator,
) -> list[NDArray]:
    """Return the results of `evaluate_extended` with more correct digits: the solution of a system is corrected by its residual, which is
    computed in twice the precision. Other rows, and complex numbers, have the results that they had."""
    if name != "lu_solve" or results[0].dtype.kind != "f" or operands[0].shape[-1] > LARGEST:
        return results
    a, factors, pivots, b = operands
    left = a.swapaxes(-1, -2) if params["transposed"] else a
    (x,) = results
    for _ in range(REFINED):
        rest, low = b, np.zeros_like(b)
        for k in range(a.shape[-1]):
            column, row = left[..., :, k, None], x[..., k, None, :]
            product = column * row
            following = rest - product
            low = low + (sum_error(rest, -product, following) - product_error(column, row, product))
            rest = following
        found = evaluate_extended(name, [a, factors, pivots, rest + low], params, rng)
        if found is None:
            return [x]
        x = x + found[0]
    return [x]


def _eliminated(a: NDArray, b: NDArray, rng: np.random.Generator) -> tuple[NDArray, NDArray, NDArray] | None:
    """Return the solution of a system whose columns are taken in a random order, the diagonal of the upper factor, and the sign of all
    exchanges; None if it is singular."""
    order = rng.permutation(len(a))
    a, b = a[:, order].copy(), b.copy()
    sign = np.rint(np.linalg.det(np.eye(len(a))[order]))
    for k in range(len(a)):
        pivot = k + int(np.argmax(np.abs(a[k:, k])))
        if a[pivot, k] == 0.0 or not np.isfinite(a[pivot, k]):
            return None
        if pivot != k:
            a[[k, pivot]], b[[k, pivot]], sign = a[[pivot, k]], b[[pivot, k]], -sign
        factors = a[k + 1 :, k, None] / a[k, k]
        a[k + 1 :] -= factors * a[k]
        b[k + 1 :] -= factors * b[k]
    x = np.empty_like(b)
    x[order] = _substituted(a, b, lower=False, unit=False)
    return x, np.diagonal(a), sign


def _substituted(t: NDArray, b: NDArray, *, lower: bool, unit: bool) -> NDArray | None:
    """Return the solution of a triangular system."""
    if not unit and np.any(np.diagonal(t) == 0.0):
        return None
    x = b.copy()
    for k in range(len(t)) if lower else reversed(range(len(t))):
        before = slice(0, k) if lower else slice(k + 1, None)
        x[k] -= t[k, before] @ x[before]
        if not unit:
            x[k] /= t[k, k]
    return x


def _solved(
    a: NDArray, factors: NDArray, pivots: NDArray, b: NDArray, *, transposed: bool, rng: np.random.Generator
) -> NDArray | None:
    found = _eliminated(a.T if transposed else a, b, rng)
    return None if found is None else found[0]


def _triangular(
    t: NDArray, b: NDArray, *, lower: bool, transposed: bool, unit: bool, rng: np.random.Generator
) -> NDArray | None:
    return _substituted(t.T if transposed else t, b, lower=lower is not transposed, unit=unit)


def _determinant(
    a: NDArray, factors: NDArray, pivots: NDArray, *, rng: np.random.Generator
) -> NDArray | None:
    found = _eliminated(a, np.zeros((len(a), 0), a.dtype), rng)
    return None if found is None else np.asarray(found[2] * np.prod(found[1]))


def _log_det(a: NDArray, factors: NDArray, pivots: NDArray, *, rng: np.random.Generator) -> NDArray | None:
    found = None if a.dtype.kind == "c" else _eliminated(a, np.zeros((len(a), 0), a.dtype), rng)
    return None if found is None else np.asarray(np.sum(np.log(np.abs(found[1]))))


def _adjugate(a: NDArray, factors: NDArray, pivots: NDArray, *, rng: np.random.Generator) -> NDArray | None:
    found = _eliminated(a, np.eye(len(a), dtype=a.dtype), rng)
    return None if found is None else found[0] * (found[2] * np.prod(found[1]))


def _cholesky(a: NDArray, *, rng: np.random.Generator) -> NDArray | None:
    """Return the lower factor of a matrix of which the lower triangle counts."""
    found = np.zeros_like(a)
    for k in range(len(a)):
        column = a[k:, k] - found[k:, :k] @ found[k, :k].conj()
        if not column[0].real > 0.0:
            return None
        found[k:, k] = column / np.sqrt(column[0].real)
    return found


_ROUTINES: Final[dict[str, Callable[..., NDArray | None]]] = {
    "lu_solve": _solved,
    "triangular_solve": _triangular,
    "determinant": _determinant,
    "log_det": _log_det,
    "adjugate": _adjugate,
    "cholesky": _cholesky,
}
