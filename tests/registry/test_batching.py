"""Every row, batched: what is computed for all elements at once is what a loop over the elements computes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from gradtape.ir.graph import Value, literal
from gradtape.kinds.batching import batch_node
from gradtape.kinds.reduction import Reduction
from gradtape.kinds.registry import ROWS
from gradtape.kinds.routines.matrix import Matrix
from gradtape.kinds.sort import Sort
from gradtape.transforms.batch import batch
from gradtape.transforms.vjp import vjp
from tests.support.graphs import input_like, run
from tests.support.registry_cases import cases, structural_samples

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(3)
SIZE = 3


def draw(row: Any, position: int, shape: tuple[int, ...]) -> Array:
    numbers = RNG.standard_normal(shape)
    if isinstance(row, Reduction) and row.monoid in ("or", "and"):
        return numbers > 0
    if row.name == "searchsorted" and position == 0:
        return np.sort(numbers, axis=-1)
    if isinstance(row, Matrix) and position == 0 and not row.routine.is_rectangular:
        return numbers @ np.swapaxes(numbers, -1, -2) + 3 * np.eye(shape[-1])
    return numbers


def patterns(count: int) -> list[tuple[bool, ...]]:
    return [flags for flags in itertools.product((True, False), repeat=count) if any(flags)]


def compare(row: Any, arrays: list[list[Array]], flags: tuple[bool, ...], params: dict[str, Any]) -> None:
    """Run a row on all elements at once and one by one; `arrays` holds one list of elements per operand."""
    size = len(arrays[0])
    single = [input_like(elements[0]) for elements in arrays]
    outs = results(row, single, params)
    if outs[0].node is None:
        return
    whole = [
        np.stack(elements) if flag else elements[0] for elements, flag in zip(arrays, flags, strict=True)
    ]
    inputs = [input_like(array) for array in whole]
    substituted = {value: batched for value, batched, flag in zip(single, inputs, flags, strict=True) if flag}
    constants = [v for v, flag in zip(single, flags, strict=True) if not flag]
    given = [a for a, flag in zip(whole, flags, strict=True) if flag]
    given += [a for a, flag in zip(whole, flags, strict=True) if not flag]
    for out in outs:
        (result,) = batch([out], substituted, size, lambda value: False)
        assert result is not None
        (actual,) = run([result], [*substituted.values(), *constants], given)
        expected = [
            run([out], single, [e[k] if flag else e[0] for e, flag in zip(arrays, flags, strict=True)])[0]
            for k in range(size)
        ]
        np.testing.assert_allclose(actual, np.stack(expected), rtol=1e-12, atol=1e-12)
        assert (actual.shape, actual.dtype) == ((size, *out.shape), out.dtype)


def results(row: Any, operands: list[Value], params: dict[str, Any]) -> tuple[Value, ...]:
    return row.results(*operands, **params) if isinstance(row, Matrix) else (row(*operands, **params),)


@pytest.mark.parametrize("name", sorted({case.row.name for case in cases()}))
def test_elementwise_row(name: str) -> None:
    seen = set()
    for case in cases():
        if case.row.name != name or len(seen) > 3 or (case.codes in seen):
            continue
        seen.add(case.codes)
        for shape in ((), (2,), (2, 2)):
            drawn = case.arrays((SIZE, *shape))
            for flags in patterns(len(drawn)):
                compare(case.row, [list(map(np.asarray, array)) for array in drawn], flags, case.params)


@pytest.mark.parametrize("row, sample", structural_samples())
def test_structural_row(row: Any, sample: Any) -> None:
    shapes, indices, params = sample
    arrays = [[draw(row, p, shape) for _ in range(SIZE)] for p, shape in enumerate(shapes)]
    # Moving the positions along keeps them in bounds and makes each element read elsewhere.
    arrays += [[np.roll(index, k) for k in range(SIZE)] for index in map(np.asarray, indices)]
    for flags in patterns(len(arrays)):
        compare(row, arrays, flags, params)


@pytest.mark.parametrize("row, sample", structural_samples())
def test_derivative_of_a_batched_row(row: Any, sample: Any) -> None:
    """The gradient of a batched row is the batched gradient of the row."""
    shapes, indices, params = sample
    single = [input_like(np.zeros(shape)) for shape in shapes]
    if isinstance(row, Sort) or (isinstance(row, Reduction) and row.monoid in ("or", "and")):
        return
    positions = [input_like(np.asarray(index)) for index in indices]
    outs = [out for out in results(row, [*single, *positions], params) if out.dtype.kind == "f"]
    if not outs:
        return
    arrays = [draw(row, p, (SIZE, *value.shape)) for p, value in enumerate((*single, *outs))]
    inputs = [input_like(array) for array in arrays]
    cotangents = [Value(out.aval) for out in outs]
    numbers = [*arrays, *map(np.asarray, indices)]
    whole = dict(zip([*single, *cotangents], inputs, strict=True))
    pulled = [v for v in vjp(outs, single, cotangents, lambda value: False) if v is not None]
    without = {
        "lu": 1,
        "lu_solve": 2,
        "band_lu": 1,
        "band_lu_solve": 2,
        "log_det": 2,
        "determinant": 2,
        "adjugate": 2,
        "pseudoinverse": 1,
    }  # what only serves to solve with
    assert len(pulled) == len(shapes) - without.get(row.name, 0)
    after = batch(pulled, whole, SIZE, lambda value: False)
    batched = [v for v in batch(outs, whole, SIZE, lambda value: False) if v is not None]
    count = len(single)
    before = [v for v in vjp(batched, inputs[:count], inputs[count:], lambda value: False) if v is not None]
    kept = [(a, b) for a, b in zip(after, before, strict=True) if a is not None]
    assert len(kept) == len(pulled)
    for one, other in zip(
        run([a for a, _ in kept], [*inputs, *positions], numbers),
        run([b for _, b in kept], [*inputs, *positions], numbers),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("size", (0, 1, 3))
@pytest.mark.parametrize("row, sample", structural_samples())
def test_without_a_rule(row: Any, sample: Any, size: int) -> None:
    """The way of kinds without a rule, one element after another, is right for every row."""
    shapes, indices, params = sample
    arrays = [draw(row, p, (size, *shape)) for p, shape in enumerate(shapes)]
    single = [input_like(np.zeros(array.shape[1:], array.dtype)) for array in arrays]
    positions = [input_like(np.asarray(index)) for index in indices]
    inputs = [input_like(array) for array in arrays]
    node = results(row, [*single, *positions], params)[0].node
    flags = [True] * len(arrays) + [False] * len(indices)
    slow = batch_node.dispatch(object)
    numbers = [*arrays, *map(np.asarray, indices)]
    each = slow(row, node, [*inputs, *positions], flags, size)
    together = batch_node(row, node, [*inputs, *positions], flags, size)
    for pair in zip(each, together, strict=True):
        first, second = run(pair, [*inputs, *positions], numbers)
        np.testing.assert_allclose(first, second, rtol=1e-12, atol=1e-12)


def test_what_does_not_depend_on_the_axis_stays_as_it_is() -> None:
    x, w = input_like(np.zeros(3)), input_like(np.zeros(3))
    shared = ROWS["exp"](w)
    out = x * shared
    many = input_like(np.zeros((5, 3)))
    batched, untouched = batch([out, shared], {x: many}, 5, lambda value: False)
    assert untouched is None
    assert batched is not None and batched.shape == (5, 3)
    node = batched.node
    assert node is not None
    assert node.inputs[1].node is not None and node.inputs[1].node.inputs == (shared,)


def test_weak_numbers_stay_weak() -> None:
    x = Value(literal(1.0).aval)
    (batched,) = batch([x * 2.0], {x: Value(input_like(np.zeros(2)).aval)}, 2, lambda value: False)
    assert batched is not None and batched.aval.weak
