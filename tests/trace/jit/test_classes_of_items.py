"""Functions that are mapped over a vector are given numbers, as NumPy's loop over it gives them, and may ask for their class."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
import pytest

import gradtape as gt


def _matched(x: Any) -> float:
    match x:
        case float():
            return 2.0
        case _:
            return 3.0


def _increased(x: Any) -> Any:
    y = x
    y += 1.0  # an array would change x as well
    return x


QUESTIONS: dict[str, Any] = {
    "float": lambda x: 2.0 if isinstance(x, float) else 3.0,
    "np.float64": lambda x: 2.0 if isinstance(x, np.float64) else 3.0,
    "np.generic": lambda x: 2.0 if isinstance(x, np.generic) else 3.0,
    "np.ndarray": lambda x: 2.0 if isinstance(x, np.ndarray) else 3.0,
    "Number": lambda x: 2.0 if isinstance(x, numbers.Number) else 3.0,
    "type": lambda x: 2.0 if type(x) is np.float64 else 3.0,
    "no type": lambda x: 2.0 if type(x) is float else 3.0,
    "ndim": lambda x: 2.0 + np.ndim(x),
    "isscalar": lambda x: 2.0 if np.isscalar(x) else 3.0,
    "length": lambda x: 2.0 if hasattr(x, "__len__") else 3.0,
    "result": lambda x: 2.0 if isinstance(np.sin(x), float) else 3.0,
    "product": lambda x: 2.0 if isinstance(x * 2, np.float64) else 3.0,
    "class": lambda x: 2.0 if x.__class__.__name__ == "float64" else 3.0,
    "match": _matched,
    "in place": _increased,
}


def _on_a_tape(f: Any, xs: Any) -> Any:
    with gt.GradientTape() as tape:
        watched = tape.watch(xs)
        y = gt.vmap(f)(watched)
    assert tape.gradient(y, watched) is not None
    return y.numpy()


WAYS: dict[str, Any] = {
    "vmap": lambda f, xs: gt.vmap(f)(xs),
    "jit of vmap": lambda f, xs: gt.jit(gt.vmap(f))(xs),
    "vmap on a tape": _on_a_tape,
    "vmap of a part": lambda f, xs: gt.vmap(lambda d: f(d["a"][0]))({"a": [xs]}),
    "vmap of columns": lambda f, xs: gt.vmap(lambda c: f(c[0]), in_axes=1)(np.stack([xs, xs])),
    "vmap of a product": lambda f, xs: gt.vmap(lambda x: gt.jvp(f, (x,), (1.0,))[0])(xs),
    "map": lambda f, xs: gt.map(f, xs),
    "scan": lambda f, xs: gt.scan(lambda c, x: (c, f(x)), 0.0, xs)[1],
    "vectorize": lambda f, xs: gt.jit(lambda v: np.vectorize(f)(v))(xs),
    "items": lambda f, xs: gt.jit(lambda v: np.array([f(x) for x in v]))(xs),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("question", QUESTIONS)
def test_items_have_the_class_of_numpys(question: str, way: str) -> None:
    xs = np.array([1.5, 2.5])

    def f(x: Any) -> Any:
        return x * QUESTIONS[question](x)

    np.testing.assert_array_equal(WAYS[way](f, xs), np.array([f(x) for x in xs]))


def test_rows_are_arrays() -> None:
    rows = np.arange(6.0).reshape(3, 2)
    for ask in (lambda x: isinstance(x, np.ndarray), lambda x: type(x) is np.ndarray, lambda x: x.ndim == 1):
        for way in ("vmap", "jit of vmap", "map", "scan"):
            np.testing.assert_array_equal(
                WAYS[way](lambda x, ask=ask: x * (2.0 if ask(x) else 3.0), rows), 2.0 * rows
            )
