"""Functions whose results depend on numbers: on constants they do as NumPy and SciPy do."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.special

import gradtape.ops  # noqa: F401 - the rows and functions enter themselves
from gradtape.errors import UnsupportedFunctionError
from gradtape.ir.graph import Value, constant
from gradtape.ir.primitives import PRIMITIVES
from gradtape.kinds.registry import BORROWED, FUNCTIONS, HOOKS, UFUNCS
from tests.support.graphs import run

pytestmark = pytest.mark.usefixtures("no_trace", "known")

A = np.array([[2.0, -1.0, 0.3], [0.5, 3.0, -0.7], [1.5, 0.2, 4.0]])
NEARLY = np.diag([1.0, 6e-16])
RANK_ONE = np.outer([1.0, 2.0, 3.0, 4.0], [1.0, -1.0]) + 1e-9 * np.eye(4, 2)
Y = np.arange(8.0).reshape(4, 2)
COMPLEX = A + 1j * (A.T - A)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the numbers of pending values be had, as on a tape."""
    monkeypatch.setattr(HOOKS, "numbers", lambda value: run([value], [], [])[0])


CALLS: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    *[(np.real_if_close, (np.array([1.0, 2.0]) + 1j * size,), {"tol": tol}) for size in (1e-14, 1e-10, 0.5) for tol in (100, 1e8, 1e-3)],
    *[(np.linalg.pinv, (NEARLY,), options) for options in ({}, {"rtol": None}, {"rcond": 1e-17}, {"rtol": 0.5})],
    (np.linalg.pinv, (np.stack([np.diag([1.0, 0.1]), np.diag([1.0, 1e-3])]),), {"rtol": np.array([0.5, 1e-5])}),
    *[(np.linalg.pinv, (np.zeros(shape, int),), {"rtol": np.zeros(shape[:-2])}) for shape in ((0, 2), (2, 0), (3, 0, 2), (0, 2, 2))],
    *[(np.linalg.lstsq, (RANK_ONE, Y), {"rcond": cut}) for cut in (None, -1, 0, 1e-6, 1e-12)],
    *[(np.linalg.lstsq, (RANK_ONE.T, Y[:2]), {"rcond": cut}) for cut in (None, -1, 1e-6)],
    (np.linalg.lstsq, (RANK_ONE, Y[:, 0]), {}),
    (np.linalg.lstsq, (RANK_ONE[0], Y), {}),
    (np.linalg.lstsq, (RANK_ONE, Y[None]), {}),
    (np.linalg.lstsq, (RANK_ONE, Y[:3]), {}),
    *[(np.linalg.matrix_rank, (RANK_ONE,), options) for options in ({}, {"tol": 1e-6}, {"rtol": 1e-12}, {"rtol": 1e-6})],
    *[(np.linalg.cond, (A, p), {}) for p in (None, 1, -1, 2, -2, np.inf, -np.inf, "fro", "nuc", 3)],
    (np.bincount, (np.array([], int),), {}),
    (np.bincount, (np.array([], int), np.array([])), {"minlength": 2}),
    (np.bincount, (np.array([1, 4, 1]), np.array([0.5, 2.0, 1.5])), {}),
    (np.bincount, (np.array([1, 4, 1]), np.array([0.5, 2.0, 1.5])), {"minlength": 7}),
    (np.bincount, (np.array([1, 4, 1]), np.array([0.5, 2.0])), {}),
    (np.frombuffer, (bytes(range(8)),), {"dtype": np.uint8, "count": np.array(3), "offset": np.array(2)}),
    (np.fromiter, ([1.0, 2.0, 3.0], float, np.array(2)), {}),
    *[(np.trim_zeros, (np.array([0.0, 0.0, 1.0, 0.0, 2.0, 0.0]),), {"trim": trim}) for trim in ("f", "b", "fb")],
    (np.trim_zeros, (np.zeros(3),), {}),
    *[(np.histogram, (A, bins), {}) for bins in ("auto", "sturges", 4, [0.0, 1.0, 3.0], "none", 2.5, 0, [[1.0]])],
    (np.histogram, (A, "auto"), {"weights": A}),
    (np.histogram, (A, "fd"), {"range": (0.0, 2.0)}),
    (np.histogram, (A, 3), {"weights": A, "density": True}),
    (np.histogram, (A > 0.3, 2), {}),
    (np.histogram_bin_edges, (A > 0.3, 2), {}),
    (np.histogram_bin_edges, (A, "doane"), {}),
    (np.average, (A.astype("f"), 0), {"weights": A.astype("f")}),
    (np.average, (A.astype("i4"), 0), {"weights": A.astype("f")}),
    (np.ix_, ([], np.array([0, 2]), np.array([True, False, True])), {}),
    (np.ix_, (A,), {}),
    (np.block, ((A, A),), {}),
    (np.block, ([[A], []],), {}),
    *[(np.unique, (np.array([[2.0, 1.0], [2.0, 1.0], [0.0, 3.0]]),), {"axis": axis}) for axis in (None, 0, 1)],
]  # fmt: skip


def agree(found: Any, wanted: Any) -> None:
    if isinstance(wanted, tuple):
        assert len(found) == len(wanted)
        for ours, theirs in zip(found, wanted, strict=True):
            agree(ours, theirs)
        return
    array = run([found], [], [])[0] if isinstance(found, Value) else found
    assert np.shape(array) == np.shape(wanted)
    assert array.dtype == wanted.dtype if isinstance(found, Value) else found == wanted
    np.testing.assert_allclose(array, wanted, rtol=1e-6, atol=1e-6 * float(np.max(np.abs(wanted), initial=0)))


@pytest.mark.parametrize(("function", "args", "kwargs"), CALLS)
def test_results_are_numpys(function: Any, args: Any, kwargs: Any) -> None:
    def known(argument: Any) -> Any:
        return constant(argument) if isinstance(argument, np.ndarray) else argument

    def follow() -> Any:
        return FUNCTIONS[function](
            *map(known, args), **{name: known(value) for name, value in kwargs.items()}
        )

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy.histogram of bool
            wanted = function(*args, **kwargs)
    except Exception as error:
        kind = type(error)
        with pytest.raises(kind):
            follow()
    else:
        agree(follow(), wanted)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("matrix", [A, COMPLEX, A.astype("f")], ids=["real", "complex", "single"])
def test_eigh_reads_one_triangle(matrix: Any, lower: bool) -> None:
    metric = matrix @ matrix.conj().T
    metric = metric + (
        np.triu(metric, 1) if lower else np.tril(metric, -1)
    )  # the other triangle is not looked at
    for b in (None, metric):
        numbers, vectors = BORROWED["scipy.linalg.eigh"](
            constant(matrix), None if b is None else constant(b), lower=lower
        )
        wanted, _ = scipy.linalg.eigh(matrix, b, lower=lower)
        (values, v) = run([numbers, vectors], [], [])
        np.testing.assert_allclose(values, wanted, rtol=1e-4 if matrix.dtype == "f" else 1e-10)
        whole, measure = (
            np.tril(x) + np.tril(x, -1).conj().T if lower else np.triu(x) + np.triu(x, 1).conj().T
            for x in (matrix, np.eye(3) if b is None else b)
        )
        np.testing.assert_allclose(whole @ v, measure @ v * values, atol=1e-4)


@pytest.mark.parametrize("index", [[0, 5], [-9, 1], [2, -4], [3]])
def test_the_index_that_is_out_of_bounds_is_named(index: list[int]) -> None:
    x = np.zeros(3)
    with pytest.raises(IndexError) as wanted:
        x[index]
    with pytest.raises(IndexError) as found:
        PRIMITIVES["getitem"](constant(x), index)
    assert str(found.value) == str(wanted.value)


def test_correlations_are_at_most_one() -> None:
    rows = np.outer(np.linspace(-1.3, 3.7, 40), np.random.default_rng(0).normal(size=7))
    for x in (rows, rows * (1 + 2j)):
        c = run([FUNCTIONS[np.corrcoef](constant(x))], [], [])[0]
        assert np.max(np.abs(c.real)) == 1.0
        assert np.max(np.abs(c.imag)) <= 1.0
    products = rows @ rows.T
    scale = np.sqrt(np.diag(products))
    assert np.max(products / scale[:, None] / scale) > 1.0  # without the bounds


def test_poly_of_a_matrix_takes_the_eigenvalues_that_are_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = np.array([[2.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 5.0]])

    def eigenvalues(a: Value) -> Value:
        return constant(np.linalg.eigvalsh(run([a], [], [])[0]))

    monkeypatch.setitem(FUNCTIONS, np.linalg.eigvals, eigenvalues)
    for x in (matrix, matrix[:1, :1]):
        np.testing.assert_allclose(run([FUNCTIONS[np.poly](constant(x))], [], [])[0], np.poly(x))


def test_softmax_of_integers_and_of_single_precision() -> None:
    for dtype in ("i4", "?", "f4", "f8"):
        x = np.array([[1, 0, 1], [0, 1, 1]]).astype(dtype)
        for name in ("softmax", "log_softmax"):
            (found,) = run([BORROWED[f"scipy.special.{name}"](constant(x), axis=1)], [], [])
            wanted = getattr(scipy.special, name)(x.astype(float) if x.dtype.kind in "ib" else x, axis=1)
            assert found.dtype == wanted.dtype
            np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("rest", [{"order": "C"}, {"subok": False}, {"signature": "dd->d"}])
def test_other_keywords_of_products_are_refused(rest: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedFunctionError, match=next(iter(rest))):
        UFUNCS["matmul"](constant(A), constant(A), **rest)
    UFUNCS["matmul"](constant(A), constant(A), order="K", subok=True)
