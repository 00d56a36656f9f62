"""Results of translated code have NumPy's dtypes, whatever the dtype of the array and whether the other operand is a number of Python's."""

from __future__ import annotations

import linecache
import warnings

import numpy as np
import pytest

import gradtape as gt

EXPRESSIONS = """
a ** 2; a ** 0; a ** 3; np.power(a, 2); a ** 2.0; a[0] ** 2; a * 2; a + 1; a << 1; a // 2; a % 2; 1 - a; a / 2
np.add(a, 1); np.maximum(a, 1); a * np.float32(2); np.where(a, 1, 0); np.where(a, 1, 0.5); np.where(a, np.int8(1), 0); np.clip(a, 0, 1)
np.square(a); np.abs(a); np.sum(a); np.sum(a, dtype=np.int8) * 2; np.prod(a); np.mean(a); np.cumsum(a); np.std(a); np.dot(a, a)
np.outer(a, 2); np.full_like(a, 2); np.linspace(a[0], 1, 3); np.linspace(a[0], 1.0, 3); np.linspace(0, a[0], 3, endpoint=False)
np.diff(a * 1); np.hypot(a, 1); np.arctan2(a, 1); np.divmod(a * 1, 2)[0]; np.floor_divide(a, 2); np.append(a, 1)
np.concatenate([a, [1]]); np.stack([a, a * 1.0]); np.geomspace(a[0] + 1, 8, 3); np.logspace(a[0], 2, 3); np.arange(3) * a
np.round(a * 1, 1); np.float_power(a, 2); np.array([a[0], 1]); np.array([a[0], 1.0]); np.average(a); np.median(a * 1)
np.trapezoid(a * 1); np.polyval([1, 2], a * 1); a[0] * 2; a[0] + 1.5; np.interp(a, [0, 1], [1, 2])
"""


@pytest.mark.parametrize("dtype", ["?", "i1", "f4", "c8"])
def test_dtypes_of_results(dtype):
    x = np.array([1, 0, 1]).astype(dtype)
    taken, expected = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for text in EXPRESSIONS.replace("\n", ";").split(";"):
            if text.strip():
                try:
                    expected.append(eval(text, {"np": np, "a": x}))
                    taken.append(text.strip())
                except (TypeError, ValueError):  # NumPy refuses it
                    pass
        lines = [f"v{k} = {text}" for k, text in enumerate(taken)]
        results = ", ".join([f"v{k}" for k in range(len(taken))])
        source = "\n    ".join(["def function(a):", *lines, f"return {results}"]) + "\n"
        name = f"<dtypes of {dtype}>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        names = {"np": np, "__name__": "programs"}
        exec(compile(source, name, "exec"), names)
        with gt.config.override(loops="compile"):
            found = gt.jit(names["function"])(x)
    for text, one, other in zip(taken, found, expected, strict=True):
        assert np.asarray(one).dtype == np.asarray(other).dtype, text
        np.testing.assert_allclose(one, other, rtol=1e-6, err_msg=text)
