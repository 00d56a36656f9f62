"""Whether rows mix is told from the structure, by a probe where it does not tell, and never wrongly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import ArgumentError
from gradtape.ir.graph import Value
from gradtape.kinds.registry import ROWS
from gradtape.kinds.routines.matrix import Matrix
from gradtape.transforms.row_independence import UNKNOWN, row_axis
from tests.support.graphs import input_like, run
from tests.support.registry_cases import structural_samples

RNG = np.random.default_rng(2)
X = RNG.normal(size=(4, 3))


def never(value: Value) -> bool:
    return False


@pytest.mark.parametrize("row, sample", structural_samples())
def test_what_the_structure_says_is_true(row: Any, sample: Any) -> None:
    """A change of one row of an operand changes the element of that number only, along the axis that is told."""
    shapes, indices, params = sample
    if row.name in ("reduce_any", "reduce_all"):
        return
    arrays = [np.sort(RNG.standard_normal(shape)) if shape else np.ones(()) for shape in shapes]
    if isinstance(row, Matrix):
        arrays[0] = arrays[0] + 10 * np.eye(*shapes[0][-2:])
    arrays += [np.asarray(index) for index in indices]
    inputs = [input_like(array) for array in arrays]
    for k, active in enumerate(inputs[: len(shapes)]):
        for axis in range(active.ndim):
            # The rows of the source are made to stand along this axis.
            order = (axis, *[a for a in range(active.ndim) if a != axis])
            source = input_like(np.transpose(arrays[k], order))
            transposed = ROWS["permute"](source, axes=tuple(order.index(a) for a in range(active.ndim)))  # type: ignore[operator]
            operands: list[Any] = [transposed if j == k else value for j, value in enumerate(inputs)]
            outs = (
                row.results(*operands, **params) if isinstance(row, Matrix) else (row(*operands, **params),)
            )
            for out in outs:
                check_rows_are_independent(
                    out, source, np.transpose(arrays[k], order), others_of(k, inputs, arrays)
                )


def others_of(k: int, inputs: list[Any], arrays: list[Any]) -> list[tuple[Any, Any]]:
    return [pair for j, pair in enumerate(zip(inputs, arrays, strict=True)) if j != k]


def check_rows_are_independent(out: Value, source: Value, base: Any, others: list[tuple[Any, Any]]) -> None:
    found = row_axis(out, source, never)
    if found is None or found == UNKNOWN:
        return
    assert out.shape[found] == source.shape[0]
    values, arrays = [value for value, _ in others], [array for _, array in others]
    (before,) = run([out], [source, *values], [base, *arrays])
    for r in range(source.shape[0]):
        moved = base.copy()
        moved[r] += 0.01
        (after,) = run([out], [source, *values], [moved, *arrays])
        kept, changed = np.delete(before, r, found), np.delete(after, r, found)
        np.testing.assert_allclose(kept, changed, rtol=1e-12, atol=1e-12)


def written_by_number(x: Any) -> Any:
    y = np.zeros((4, 5))
    y[np.arange(4), np.argmax(x, axis=1)] += x[:, 0] * x[:, 1]
    return y + x[:, :1]


def put_along(x: Any) -> Any:
    y = np.zeros((4, 3))
    np.put_along_axis(y, np.argsort(x, axis=1), x**2, 1)
    return y


def set_by_number(x: Any) -> Any:
    y = np.zeros((5, 4))
    y[np.argmin(x, axis=1), np.arange(4)] = 2.0
    return y.T * x[:, 1:2]


def put_elsewhere(x: Any) -> Any:
    y = np.zeros((4, 3))
    y[np.arange(4)[::-1], np.argmax(x, axis=1)] = x[:, 0]
    return y * 1.0


APART: dict[str, Callable[[Any], Any]] = {
    "elementwise": lambda x: np.exp(x) * x,
    "layers": lambda x: np.tanh(x @ np.ones((3, 2))) @ np.ones((2, 5)),
    "softmax": lambda x: np.exp(x) / np.sum(np.exp(x), axis=1, keepdims=True),
    "reshaped": lambda x: np.reshape(x[:, :2], (4, 1, 2)) * 2.0,
    "transposed and back": lambda x: np.sin(x.T).T,
    "columns": lambda x: np.stack([x[:, 0] * x[:, 1], x[:, 2]], axis=1),
    "joined": lambda x: np.concatenate([x, x**2], axis=1),
    "running": lambda x: np.cumsum(x, axis=1),
    "outer": lambda x: np.einsum("bi,bj->bij", x, x),
    "written": lambda x: np.pad(x, ((0, 0), (1, 2))),
    "picked columns": lambda x: x[:, np.array([2, 0])],
    "all rows by number": lambda x: x[np.arange(4)] * 1.0,
    "sorted": lambda x: np.sort(x, axis=1),
    "the middle": lambda x: x - np.median(x, axis=1, keepdims=True),
    "taken along": lambda x: np.take_along_axis(np.sin(x), np.argsort(-x, axis=1), 1),
    "the largest": lambda x: x * np.sin(x)[np.arange(4), np.argmax(x, axis=1)][:, None],
    "columns of columns": lambda x: np.sin(x).T[np.argmax(x, axis=1), np.arange(4)][:, None] * x,
    "out of a table": lambda x: gt.gather(np.arange(12.0).reshape(3, 4), np.argmax(x, axis=1)) * x[:, :1],
    "written by number": written_by_number,
    "put along": put_along,
    "set by number": set_by_number,
}
PROBED: dict[str, Callable[[Any], Any]] = {
    "all rows by numbers in reverse, twice": lambda x: x[np.arange(4)[::-1]][np.arange(4)[::-1]] * 1.0,
    "flipped twice": lambda x: x[::-1][::-1] ** 2,
    "no sum of rows after all": lambda x: x + np.sum(x, axis=0) * 0.0,
}
MIXED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "mean": (lambda x: x - np.mean(x, axis=0), "row 0 of the target depends on rows 1, 2, 3"),
    "flipped": (lambda x: x[::-1] * 1.0, "row 0 of the target depends on row 3"),
    "running": (lambda x: np.cumsum(x, axis=0), "row 1 of the target depends on row 0"),
    "shifted": (lambda x: np.roll(x, 1, axis=0), "row 1 of the target depends on row 0"),
    "by number, in another order": (
        lambda x: np.sin(x)[np.array([0, 2, 1, 3])],
        "row 1 of the target depends on row 2",
    ),
    "written elsewhere": (put_elsewhere, "row 0 of the target depends on row 3"),
    "read elsewhere": (
        lambda x: x[np.arange(4), np.array([0, 1, 2, 0])[::-1]][::-1, None] * 1.0,
        "row 0 of the target depends on row 3",
    ),
    "read and moved": (
        lambda x: x.T[np.arange(3)[:, None], np.arange(4)[::-1]].T * 1.0,
        "row 0 of the target depends on row 3",
    ),
    "product": (lambda x: x @ x.T, "row 0 of the target depends on rows 1, 2, 3"),
}


def recorded(function: Callable[[Any], Any]) -> tuple[gt.GradientTape, Any, Any]:
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(X)
        y = function(x)
    return tape, x, y


@pytest.mark.parametrize("name", APART)
def test_the_structure_tells(name: str) -> None:
    _, x, y = recorded(APART[name])
    assert row_axis(y.value, x.value, never) == 0


@pytest.mark.parametrize("name", [*APART, *PROBED])
def test_blocks_on_the_diagonal(name: str) -> None:
    tape, x, y = recorded({**APART, **PROBED}[name])
    whole = tape.jacobian(y, x).numpy()
    rank = y.ndim
    blocks = np.stack([whole[(r, *[slice(None)] * (rank - 1), r)] for r in range(4)])
    for options in ({}, {"parallel_iterations": 2}, {"experimental_use_pfor": False}):
        found = tape.batch_jacobian(y, x, **options).numpy()
        np.testing.assert_allclose(found, blocks, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", PROBED)
def test_the_structure_does_not_tell(name: str) -> None:
    _, x, y = recorded(PROBED[name])
    assert row_axis(y.value, x.value, never) == UNKNOWN


@pytest.mark.parametrize("name", MIXED)
def test_rows_that_mix(name: str) -> None:
    function, words = MIXED[name]
    tape, x, y = recorded(function)
    with pytest.raises(ArgumentError, match=words):
        tape.batch_jacobian(y, x)


def test_inside_of_a_map_the_probe_draws_the_numbers() -> None:
    def blocks(x: Any) -> Any:
        with gt.GradientTape() as tape:
            tape.watch(x)
            y = np.sort(x[::-1], axis=1)[::-1]
        return tape.batch_jacobian(y, x)

    found = gt.vmap(blocks)(np.stack([X, -X]))
    np.testing.assert_array_equal(found.sum(axis=-1), 1.0)


def blocks(x: Any, function: Callable[..., Any], *others: Any) -> Any:
    with gt.GradientTape() as tape:
        x = tape.watch(x)
        y = function(x, *others)
    return tape.batch_jacobian(y, x)


PLACES = np.arange(4)
DEPENDING: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]] = {
    "where rows stand": (lambda x, p: x[p] ** 2, (X, PLACES), (X, PLACES[::-1].copy())),
    "what is selected": (
        lambda x, m: np.where(m, x, x[::-1]),
        (X, np.ones((4, 1), bool)),
        (X, np.zeros((4, 1), bool)),
    ),
    "what is positive": (lambda x: x + np.maximum(-np.sum(x, axis=0), 0), (np.abs(X),), (-np.abs(X),)),
    "one row": (lambda x: x[::-1][::-1] * 2.0, (X[:1],), (X[:1],)),
}


@pytest.mark.parametrize("name", DEPENDING)
def test_a_compiled_function_asks_anew_for_other_numbers(name: str) -> None:
    function, apart, mixing = DEPENDING[name]
    compiled = gt.jit(lambda *arguments: blocks(arguments[0], function, *arguments[1:]))
    for _ in range(2):
        np.testing.assert_allclose(compiled(*apart), blocks(apart[0], function, *apart[1:]).numpy())
        if name != "one row":
            with pytest.raises(ArgumentError, match="depends on row"):
                compiled(*mixing)
    assert compiled.site.traces == (1 if name == "one row" else 3)  # of which two failed


@pytest.mark.parametrize("name", ["what is selected", "what is positive"])
def test_without_numbers_several_are_drawn(name: str) -> None:
    function, apart, _ = DEPENDING[name]
    with pytest.raises(ArgumentError, match="depends on row"):
        gt.vmap(lambda *arguments: blocks(arguments[0], function, *arguments[1:]))(
            *[np.stack([argument, argument]) for argument in apart]
        )
