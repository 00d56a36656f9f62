"""Masked arrays with traced elements are what NumPy makes of those with numbers: values, masks, and slopes against differences."""

import numpy as np
import pytest
from numpy import ma

import gradtape as gt
from gradtape.errors import ArraySubclassError
from tests.suite.several import several_cases

X = np.array([0.7, -1.3, 2.1, 0.4])
OTHER = np.array([-0.3, 0.9, 0.2, 1.7])
"""A second point, at which masks that depend on the elements differ."""

M = np.array([False, True, False, False])
K = ma.array([1.0, 2.0, 3.0, 4.0], mask=[0, 0, 1, 0])


class Named(ma.MaskedArray):
    """A subclass without methods of its own."""


def m(x, **options):
    return ma.array(x, mask=M, **options)


def written(x, statement):
    array = m(x) * 1.0
    exec(statement, {"ma": ma, "np": np, "K": K, "M": M}, {"m": array, "x": x})
    return (array**2).sum()


PROGRAMS = {
    "constructors": {
        "again": lambda x: ma.array(m(x), mask=[1, 0, 0, 0]).sum(),
        "a list": lambda x: ma.array([x[0], x[1], x[2]], mask=[0, 1, 0]).sum(),
        "a list of masked arrays": lambda x: ma.array([m(x), K]).sum(),
        "no mask": lambda x: ma.array(x).std(),
        "a mask of one": lambda x: ma.array(x, mask=False).sum(),
        "asarray": lambda x: ma.asarray(x).sum(),
        "a view": lambda x: (x.view(ma.MaskedArray) ** 2).sum(),
        "a copy": lambda x: ma.array(x, mask=M, copy=True).sum(),
        "of a class": lambda x: Named(x, mask=M).mean(),
        "single precision": lambda x: m(x).astype(np.complex128).real.sum(),
        "zeros like it": lambda x: ma.zeros_like(m(x)).sum() + x.sum(),
    },
    "masks that depend on the elements": {
        "where": lambda x: ma.masked_where(x > 0.5, x).sum(),
        "greater": lambda x: ma.masked_greater(x, 0.5).sum(),
        "less": lambda x: (ma.masked_less(x, 0.5) ** 2).mean(),
        "outside": lambda x: ma.masked_outside(x, -1, 1).prod(),
        "invalid": lambda x: ma.masked_invalid(np.sqrt(x)).mean(),
        "fixed": lambda x: ma.fix_invalid(np.sqrt(x)).sum(),
        "a domain": lambda x: ma.log(x).sum(),
        "a domain of a ufunc": lambda x: np.sqrt(m(x)).sum(),
        "a quotient": lambda x: ma.divide(1, x - 0.5).sum(),
        "a condition": lambda x: ma.array(x, mask=x < 0).sum(),
        "of numbers": lambda x: ma.array(np.arange(4.0), mask=x > 0.5).sum() + x.sum(),
        "a product with numbers": lambda x: (ma.masked_where(x > 0.5, np.arange(4.0)) * x).sum(),
        "median": lambda x: ma.median(ma.masked_less(x, 0)),
        "compressed": lambda x: np.sum(ma.masked_less(x, 0).compressed() ** 2),
        "count": lambda x: x.sum() / ma.masked_less(x, 0).count(),
    },
    "operators": {
        "a product": lambda x: (m(x) * K).sum(),
        "beside an array": lambda x: (x * K).sum() + (K * x).sum(),
        "a ufunc beside an array": lambda x: np.multiply(x, K).sum() + np.subtract(K, x).sum(),
        "a quotient": lambda x: (K / m(x)).sum(),
        "powers": lambda x: (m(x) ** 2).sum() + (2.0 ** m(x)).sum(),
        "negative": lambda x: abs(-m(x)).sum(),
        "comparisons": lambda x: ((m(x) > 0) * x).sum(),
        "the masked number": lambda x: (
            (x * ma.masked is ma.masked) * (np.add(x, ma.masked) is ma.masked) * x.sum()
        ),
        "matrices": lambda x: np.dot(m(x), K) + ma.dot(m(x), K),
        "functions of two": lambda x: (
            ma.arctan2(m(x), K).sum() + np.hypot(m(x), K).sum() + np.logaddexp(m(x), K).sum()
        ),
        "functions of one": lambda x: np.exp(m(x)).sum() + ma.exp(m(x)).sum(),
        "limits": lambda x: ma.maximum(m(x), K).sum() + m(x).clip(-1, 1).sum() + np.clip(m(x), -1, 1).sum(),
        "outer": lambda x: ma.outer(m(x), K).sum(),
        "a choice": lambda x: ma.where(m(x) > 0, m(x), 1.0).sum() + np.where(m(x) > 0, m(x), 1.0).sum(),
    },
    "reductions": {
        "methods": lambda x: (
            m(x).sum() + m(x).mean() + m(x).std() + m(x).var(ddof=1) + m(x).prod() + m(x).max() - m(x).min()
        ),
        "functions": lambda x: np.sum(m(x)) + np.mean(m(x)) + np.std(m(x)) + np.max(m(x)) + np.ptp(m(x)),
        "along axes": lambda x: (
            (m(x).reshape(2, 2).sum(axis=1) ** 2).sum() + (m(x).reshape(2, 2).mean(axis=1) ** 2).sum()
        ),
        "of a matrix": lambda x: ma.mean(ma.array(np.outer(x, x), mask=np.outer(M, M)), axis=0).sum(),
        "sums": lambda x: (m(x).cumsum() ** 2).sum() + np.cumsum(m(x)).sum(),
        "average": lambda x: ma.average(m(x), weights=[1.0, 2, 3, 4]),
        "median": lambda x: ma.median(m(x)) + ma.median(ma.abs(m(x) - ma.median(m(x)))),
        "median along an axis": lambda x: ma.median(m(x).reshape(2, 2), axis=1).sum(),
        "deviations": lambda x: (m(x).anom() ** 2).sum(),
        "covariances": lambda x: ma.cov(m(x), K).sum() + ma.corrcoef(m(x), K).sum(),
        "a fit": lambda x: ma.polyfit(np.arange(4.0), m(x), 1).sum(),
        "all masked": lambda x: (ma.array(x, mask=True).sum() is ma.masked) * x.sum(),
        "truth": lambda x: bool(m(x).any()) * x.sum(),
    },
    "elements": {
        "data": lambda x: np.sum(m(x).data ** 2) + np.sum(ma.getdata(m(x)) ** 3),
        "filled": lambda x: np.sum(m(x).filled(7.0) ** 2) + ma.filled(m(x), 0.0).sum(),
        "compressed": lambda x: np.sum(m(x).compressed() ** 2),
        "asarray": lambda x: np.sum(np.asarray(m(x)) ** 2) + (np.asanyarray(m(x)) ** 2).sum(),
        "an item": lambda x: m(x)[2] ** 2,
        "a part": lambda x: (m(x)[1:] ** 2).sum(),
        "a mask of numbers": lambda x: (m(x)[np.array([True, True, False, True])] ** 2).sum(),
        "indices": lambda x: (m(x)[[0, 1, 3]] ** 2).sum() + ma.take(m(x), [0, 1]).sum(),
        "traced indices": lambda x: (m(x)[np.argsort(x)] * np.arange(4.0)).sum(),
        "what is not masked": lambda x: m(x)[~m(x).mask].sum() + ma.compress([1, 0, 1, 1], m(x)).sum(),
        "iteration": lambda x: (
            sum(v**2 for v in m(x) if v is not ma.masked) + sum(v for v in m(x).flat if v is not ma.masked)
        ),
        "sorted": lambda x: (ma.sort(m(x)) * np.arange(4.0)).sum() + (np.sort(m(x)) * np.arange(4.0)).sum(),
        "the largest": lambda x: m(x)[m(x).argmax()] ** 2,
        "joined": lambda x: (
            ma.concatenate([m(x), K]).sum() + ma.stack([m(x), K]).mean(0).sum() + ma.hstack([m(x), K]).std()
        ),
        "joined by NumPy": lambda x: (np.concatenate([m(x), K]) ** 2).sum(),
        "another shape": lambda x: (
            (m(x).reshape(2, 2).T * np.array([[1.0, 2], [3, 4]])).sum() + m(x)[None].squeeze().ravel().sum()
        ),
        "differences": lambda x: (ma.diff(m(x)) ** 2).sum() + (np.diff(m(x)) ** 2).sum(),
        "rows": lambda x: ma.compress_rows(m(x).reshape(2, 2)).sum(),
        "the mask": lambda x: np.sum(np.where(ma.getmaskarray(m(x)), 0, x)),
    },
    "writes": {
        name: lambda x, statement=statement: written(x, statement)
        for name, statement in {
            "an element": "m[1] = 5 * x[0]",
            "all elements": "m[:] = K * x",
            "elements of a mask": "m[x > 0.5] = 0",
            "the mask": "m.mask = [1, 0, 0, 0]",
            "an element of the mask": "m[0] = ma.masked",
            "in place": "m += x; m *= 2; m /= x; m -= 1; m **= 2",
            "a hard mask": "m.harden_mask(); m[:] = x**2",
            "a part of it": "m[1:][0] = x[2]",
            "the data": "m.data[0] = x[3]",
            "the fill value": "m.fill_value = 3.0; m[0] = m.filled()[1]",
        }.items()
    },
}


def slopes(f, x, step=1e-6):
    return np.array(
        [(float(f(x + step * unit)) - float(f(x - step * unit))) / (2 * step) for unit in np.eye(x.size)]
    )


def on_a_tape(f, x):
    with gt.GradientTape() as tape:
        x = tape.watch(x)
        value = f(x)
    return value, tape.gradient(value, x)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", PROGRAMS)
def test_masked_arrays_with_traced_elements_are_numpys(kind):
    def check(f):
        compiled = gt.value_and_grad(f)
        for x in (X, OTHER, X):
            expected, slope = float(f(x)), slopes(f, x)
            for value, gradient in (compiled(x), on_a_tape(f, x.copy())):
                np.testing.assert_allclose(value, expected, rtol=1e-12)
                np.testing.assert_allclose(gradient, slope, atol=1e-6)

    with several_cases() as case:
        for name, f in PROGRAMS[kind].items():
            with case(name):
                check(f)


def test_masks_and_other_attributes_are_numpys():
    def described(x):
        array = (ma.array(x, mask=M, fill_value=3.0)[1:] * 2).reshape(3, 1)
        return (
            array.mask,
            array.fill_value,
            array.shape,
            array.dtype,
            len(array),
            array.count(),
            isinstance(array, ma.MaskedArray),
        )

    def known(x):
        seen.append(described(x))
        return x.sum()

    seen = []
    gt.grad(known)(X)
    for item, expected in zip(seen[0], described(X), strict=True):
        np.testing.assert_array_equal(item, expected)


def test_second_derivatives_batches_and_forward_mode():
    def f(x):
        return (ma.masked_less(x, 0.5) ** 3).sum()

    np.testing.assert_allclose(gt.hessian(f)(X), np.diag(np.where(X < 0.5, 0, 6 * X)))
    np.testing.assert_allclose(gt.vmap(gt.grad(f))(np.stack([X, OTHER])), [gt.grad(f)(X), gt.grad(f)(OTHER)])
    np.testing.assert_allclose(gt.jvp(f, (X,), (X,))[1], 3 * f(X))


def test_views_share_the_mask():
    def written(x):
        whole = ma.array(x, mask=[0, 1, 0, 0])
        whole[...][0] = ma.masked
        whole[1:][1] = ma.masked
        return whole

    def masks(x):
        np.testing.assert_array_equal(written(x).mask, written(X).mask)
        return x.sum()

    gt.grad(masks)(X)
    on_a_tape(masks, X.copy())


def test_masked_arrays_of_masked_arrays_share_elements_and_mask():
    def written(x):
        whole = ma.array(x * 1, mask=[0, 1, 0, 0])
        others = [ma.array(whole), ma.array(whole, copy=True), ma.masked_array(whole, keep_mask=False)]
        others += [ma.masked_array(whole, mask=[0, 0, 0, 1]), ma.asarray(whole), ma.array(whole, ndmin=2)]
        whole[0] = 5.0
        whole[2] = ma.masked
        return np.concatenate([np.ravel(array.filled(-1.0)) for array in (whole, *others)])

    np.testing.assert_array_equal(gt.jit(written)(X), written(X))
    with gt.GradientTape() as tape:
        np.testing.assert_array_equal(written(tape.watch(X)).numpy(), written(X))
    np.testing.assert_allclose(gt.jacrev(written)(X), gt.jacfwd(written)(X))


def test_whoever_cannot_keep_the_mask_says_so():
    class Own(ma.MaskedArray):
        def __getitem__(self, key):
            return 2 * super().__getitem__(key)

    cases = {
        "the result of a jitted function": lambda: gt.jit(m)(X),
        "a result that is differentiated": lambda: gt.jacobian(m)(X),
        "a target": lambda: on_a_tape(m, X.copy()),
        "an argument": lambda: gt.grad(lambda x: x.sum())(K),
        "code that reads memory": lambda: gt.grad(lambda x: np.percentile(m(x), 30))(X),
        "a class with code of its own": lambda: gt.grad(lambda x: Own(x, mask=M).sum())(X),
    }
    with several_cases() as case:
        for name, call in cases.items():
            with case(name), pytest.raises(ArraySubclassError, match=r"[Mm]asked|Own"):
                call()


def test_mistakes_are_numpys():
    with pytest.raises(ma.MaskError, match="data size is 4, mask size is 2"):
        gt.grad(lambda x: ma.array(x, mask=[1, 0]).sum())(X)
    with pytest.raises(AttributeError, match=r"MaskedArray.*summ"):
        gt.grad(lambda x: m(x).summ())(X)
    with pytest.raises(TypeError, match="foo"):
        gt.grad(lambda x: m(x, foo=1).sum())(X)


def test_empty_arrays():
    for f in (
        lambda x: ma.array(x).sum(),
        lambda x: ma.array(x, mask=np.ones(x.shape, bool)).count() + x.sum(),
    ):
        assert gt.jit(f)(np.zeros(0)) == f(np.zeros(0)) == 0
    assert gt.grad(lambda x: ma.array(x, mask=True).filled(2.0) * x)(np.float64(3.0)) == 2.0


def test_elements_are_written_to_plain_arrays_without_the_mask():
    def rows(x):
        y, first, sums = np.zeros((3, 4)), np.empty(3), np.zeros(4)
        for k in range(3):
            y[k], first[k] = m(x) * k, m(x)[2]
            sums += ma.array(x) * k
        y[2, :2] = [m(x)[0], 7.0]
        np.copyto(y[0], ma.array(x))
        return np.concatenate([y.ravel(), first, sums])

    expected = rows(X)
    assert expected[5] == X[1]  # what is masked is stored
    np.testing.assert_allclose(gt.jit(rows)(X), expected, rtol=1e-15)
    weights = np.cos(np.arange(expected.size))
    differences = np.array(
        [weights @ (rows(X + e) - rows(X - e)) / 2e-3 for e in 1e-3 * np.eye(4)]
    )  # exact: the function is linear
    np.testing.assert_allclose(gt.grad(lambda x: weights @ rows(x))(X), differences, rtol=1e-10)
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        y = weights @ rows(x)
    np.testing.assert_allclose(tape.gradient(y, x), differences, rtol=1e-10)
