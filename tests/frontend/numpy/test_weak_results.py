"""Functions of NumPy's return its scalars, which are not weak, even where all arguments are numbers of Python's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt

SINGLE = np.float32(0.5)
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "where": lambda a: np.where(a == a, a, 0),
    "where of a number": lambda a: np.where(a > 0, 1.0, a),
    "where of single precision": lambda a: np.where(a > 0, a, SINGLE),
    "divmod": lambda a: np.divmod(a, 2)[1],
    "modf": lambda a: np.modf(a)[0],
    "asarray": lambda a: np.asarray(a),
    "array": lambda a: np.array(a),
    "real_if_close": lambda a: np.real_if_close(a),
    "imag": lambda a: np.imag(a),
    "real": lambda a: np.real(a),
    "round of Python's": lambda a: round(a, 1),
    "divmod of Python's": lambda a: divmod(a, 2)[1],
    "abs of Python's": lambda a: abs(a),
    "round": lambda a: np.round(a, 1),
    "maximum": lambda a: np.maximum(a, 0),
    "clip": lambda a: np.clip(a, 0, 1),
    "select": lambda a: np.select([a > 0], [a], 0),
    "nan_to_num": lambda a: np.nan_to_num(a),
    "sum": lambda a: np.sum(a),
    "mean": lambda a: np.mean(a),
    "dot": lambda a: np.dot(a, 2),
    "square": lambda a: np.square(a),
    "interp": lambda a: np.interp(a, [0.0, 1.0], [0.0, 1.0]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_dtypes_of_results_beside_single_precision(name: str) -> None:
    function = FUNCTIONS[name]

    def products(a: Any) -> Any:
        made = function(a)
        return SINGLE * made, np.ones(2, np.float32) * made, np.ones(2, np.int8) * made

    def on_a_tape(a: Any) -> Any:
        with gt.GradientTape() as tape:
            return products(tape.watch(a))

    def one_by_one(a: Any) -> Any:
        return [made[0] for made in gt.vmap(lambda x, a: products(a), in_axes=(0, None))(np.ones(2), a)]

    for a in (0.7, 2):
        expected = [np.asarray(made).dtype for made in products(a)]
        ways = [gt.jit(products), one_by_one, *([on_a_tape] if isinstance(a, float) else [])]
        for loops in ("trace", "compile"):
            with gt.config.override(loops=loops):
                for way in ways:
                    assert [np.asarray(made).dtype for made in way(a)] == expected, (way.__name__, loops, a)
