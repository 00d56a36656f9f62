"""Methods of arrays against NumPy."""

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import UnsupportedFunctionError
from tests.support.array_programs import check, procedure_of

A = np.random.default_rng(3).normal(size=(4, 5))


@pytest.mark.parametrize(
    "call",
    [
        lambda a: a.sum(axis=0),
        lambda a: a.mean(),
        lambda a: a.std(axis=1, ddof=1),
        lambda a: a.max(axis=-1, keepdims=True),
        lambda a: a.argmin(axis=0),
        lambda a: a.argsort(axis=1),
        lambda a: a.cumsum(),
        lambda a: a.clip(-0.5, 0.5),
        lambda a: a.round(1),
        lambda a: a.reshape(5, -1),
        lambda a: a.transpose(1, 0).copy(),
        lambda a: a.T.ravel(),
        lambda a: a.swapaxes(0, 1).flatten(),
        lambda a: a.take([3, 1], axis=0),
        lambda a: a.repeat(2, axis=1),
        lambda a: a.diagonal(1),
        lambda a: a.trace(),
        lambda a: a.dot(a.T),
        lambda a: a.astype(np.float32),
        lambda a: (a > 0).any(axis=1),
        lambda a: (a > 0).all(),
        lambda a: a.prod(axis=0),
        lambda a: a.conj().real,
        lambda a: a[1:2, 2:3].item(),
        lambda a: a.item(5),
        lambda a: a.T.item(-2),
        lambda a: a.item(1, 2),
        lambda a: a.item((0, -1)),
        lambda a: np.sort(a[0]).searchsorted(a[1]),
        lambda a: a.squeeze(),
    ],
)
def test_follows_numpy(call):
    check(call, A)


def test_methods_that_write():
    def program(a):
        a[1].sort()
        a[2].fill(3.0)
        return a

    check(program, A)


def test_a_method_that_is_refused_names_the_remedy():
    with pytest.raises(UnsupportedFunctionError, match=r"x\[i\], or a loop over it"):
        procedure_of(lambda build, a: a.tolist(), A)


@pytest.mark.parametrize("loops", ["trace", "compile"])
def test_keywords_of_clip(loops):
    x = np.array([1.0, 2.0, 3.0])
    calls = [
        lambda x: np.clip(x, 0, 2, dtype=np.float32),
        lambda x: np.clip(x, None, 2.5, dtype=np.float32, casting="same_kind"),
        lambda x: x.clip(1.5, dtype=np.float32),
        lambda x: np.clip(x, 0.5, 2.0, dtype=int, casting="unsafe"),
        lambda x: np.clip(x, min=2.0),
        lambda x: x.clip(max=2.0),
    ]
    with gt.config.override(loops=loops):
        for call in calls:
            found, expected = gt.jit(call)(x), call(x)
            np.testing.assert_array_equal(found, expected)
            assert found.dtype == expected.dtype
        np.testing.assert_array_equal(gt.grad(lambda x: np.sum(calls[0](x) * x))(x), [2.0, 4.0, 2.0])
        np.testing.assert_array_equal(gt.grad(lambda x: np.sum(calls[3](x) * x))(x), [1.0, 2.0, 2.0])
        with pytest.raises(TypeError, match="same_kind"):
            gt.jit(lambda x: np.clip(x, 0, 2, dtype=int))(x)
