"""Dtypes under `vmap` are those of a loop over the elements: of Python's numbers, which are weak, and of NumPy's scalars, which are not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt

ROWS = np.array([[1.0, -2.0, 3.0], [0.5, 2.0, -1.0]], np.float32)
"""Their numbers of positive elements differ, so that what depends on it is compiled from its code."""


def _count(a: Any) -> int:
    return int(np.sum(a > 0))


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "int times": lambda a: a * _count(a),
    "int plus": lambda a: _count(a) + a,
    "int and power": lambda a: np.log2((a * _count(a)) ** 2 + 0.5),
    "int and float": lambda a: _count(a) * 1.5 * a,
    "int divided": lambda a: a * (_count(a) // 2),
    "int in power": lambda a: a ** _count(a),
    "int in root": lambda a: a * np.sqrt(_count(a)),
    "int in abs": lambda a: a * abs(_count(a) - 3),
    "int of float": lambda a: a * int(a[0]),
    "int and scalar": lambda a: a[0] * _count(a),
    "int and NumPy's scalar": lambda a: _count(a) * np.float32(2),
    "int in maximum": lambda a: np.maximum(a, _count(a)),
    "int in where": lambda a: np.where(a > 0, a, _count(a)),
    "int and small integers": lambda a: a.astype(np.int8) * _count(a),
    "strong count": lambda a: a * np.sum(a > 0),
    "strong int8": lambda a: a * np.sum(a > 0).astype(np.int8),
    "float": lambda a: a * float(a[0]),
    "float of scalar": lambda a: a[0] * float(a[1]),
    "item": lambda a: a * a[0].item(),
    "bool": lambda a: a * bool(a[1] > 0),
    "round": lambda a: a * round(float(a[0])),
    "len": lambda a: a / len(a),
    "size": lambda a: a * a.size + a.ndim,
    "element": lambda a: a * a[0],
    "literal": lambda a: np.log(a * a + 0.5),
    "literal of scalar": lambda a: np.log2(a[0] ** 2 + 0.5),
    "literal of small integers": lambda a: a.astype(np.int8) * 0.5,
    "double": lambda a: a * np.float64(0.5),
    "branch": lambda a: a * 2.0 if a[1] > 0 else a / 3,
    "branch of numbers": lambda a: a * (2 if a[1] > 0 else 0.5),
    "loop": lambda a: sum((a * i for i in range(_count(a))), a),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_dtypes_are_those_of_a_loop(name: str) -> None:
    program = PROGRAMS[name]
    looped = np.stack([program(row) for row in ROWS])
    for mapped in (gt.vmap(program), gt.jit(gt.vmap(program))):
        found = mapped(ROWS)
        assert found.dtype == looped.dtype
        np.testing.assert_allclose(found, looped, rtol=1e-6)


@pytest.mark.parametrize("name", PROGRAMS)
def test_dtypes_of_compiled_code(name: str) -> None:
    program = PROGRAMS[name]
    with gt.config.override(loops="compile"):
        for row in ROWS:
            found = gt.jit(program)(row)
            assert found.dtype == program(row).dtype
            np.testing.assert_allclose(found, program(row), rtol=1e-6)


@pytest.mark.parametrize("function", [np.divmod, lambda a, b: np.modf(a * b), lambda a, b: np.frexp(a)])
def test_functions_with_several_results_beside_shapes_that_depend_on_values(function: Any) -> None:
    def program(a: Any) -> Any:
        first, second = function(a, 1.1 + a**2)
        return np.sum(first) + np.sum(second) * np.nonzero(a > 0)[0][0]

    np.testing.assert_allclose(gt.vmap(program)(ROWS), [program(row) for row in ROWS], rtol=1e-6)
