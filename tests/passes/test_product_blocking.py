"""Products of a matrix with the vectors of a loop: computed as products of matrices, with the results of the loop as it was written."""

import numpy as np
import pytest

import gradtape as gt
from gradtape.ir.types import aval
from gradtape.ops.core.elementwise.integer import floor_divide
from gradtape.passes.procedures.product_blocking import BLOCK, block_products
from gradtape.procedures.builder import ProcedureBuilder, integer
from gradtape.procedures.interpret import run_procedure
from gradtape.procedures.verifier import verify_procedure
from gradtape.transforms.procedures.vjp import vjp_procedure
from tests.lower.procedures.standalone import compile_procedure

ROWS, TERMS = 100, 35


def triangle(extent, x):
    """The loop of a covariance: each column with all later ones."""
    out = np.zeros((extent, extent))
    for i in range(extent):
        out[i:extent, i] = out[i, i:extent] = x[:, i] @ x[:, i:extent] / 3.0
    return out


def gram(x):
    out = np.zeros((len(x), len(x)))
    for i in range(len(x)):
        out[i] = np.tanh(x @ x[i])
    return out


def cross(x, y):
    out = np.zeros((x.shape[0], y.shape[1]))
    for i in range(x.shape[0]):
        out[i] = x[i] @ y
    return out


def backwards(x, y):
    """Vectors from the last one on, and two products in an iteration."""
    out = np.zeros((2, len(x), len(x)))
    for i in range(len(x)):
        out[0, i] = x @ x[len(x) - 1 - i]
        out[1, i] = y @ x[i]
    return out


def changing(x):
    """The matrix changes: its products are not known before the loop."""
    y = x.copy()
    for i in range(len(y)):
        y[i, : len(y)] = np.sin(y @ y[i])[: y.shape[1]]
    return y


def narrow(x):
    """A band: tiles would be mostly unused."""
    out = np.zeros((x.shape[1], 2))
    for i in range(x.shape[1] - 2):
        out[i, :] = x[:, i] @ x[:, i + 1 : i + 3]
    return out


def numbers(*shape):
    return np.random.default_rng(len(shape)).normal(size=shape)


PROGRAMS = [
    (triangle, (ROWS, numbers(TERMS, ROWS)), 1, True),
    (triangle, (BLOCK - 1, numbers(TERMS, ROWS)), 1, False),
    (triangle, (0, numbers(TERMS, ROWS)), 1, False),
    (gram, (numbers(ROWS, TERMS),), 0, True),
    (gram, (numbers(BLOCK, 64),), 0, True),
    (gram, (numbers(BLOCK - 1, 64),), 0, False),
    (gram, (numbers(ROWS, 8),), 0, False),
    (cross, (numbers(130, TERMS), numbers(TERMS, 65)), 0, True),
    (cross, (numbers(130, TERMS), numbers(TERMS, 65)), 1, True),
    (backwards, (numbers(ROWS, TERMS), numbers(ROWS, TERMS)), 0, True),
    (changing, (numbers(70, 70) * 0.1,), 0, False),
    (narrow, (numbers(TERMS, ROWS),), 0, True),
]


@pytest.fixture(autouse=True)
def from_code(monkeypatch):
    monkeypatch.setattr(gt.config, "loops", "compile")
    monkeypatch.setattr(gt.config, "verify", True)


@pytest.mark.parametrize(("program", "arguments", "place", "changes"), PROGRAMS)
def test_values_and_gradients_are_those_of_the_loop(program, arguments, place, changes):
    expected = program(*arguments)
    compiled = gt.jit(program)
    np.testing.assert_allclose(compiled(*arguments), expected, rtol=1e-11, atol=1e-12)
    assert ("gemm" in gt.inspect.llvm(compiled, *arguments)) is changes
    weights = np.random.default_rng(5).normal(size=expected.shape)
    direction = np.random.default_rng(6).normal(size=arguments[place].shape)

    def total(*given):
        return np.sum(program(*given) * weights)

    def moved(h):
        return total(*[x + h * direction if k == place else x for k, x in enumerate(arguments)])

    gradient = gt.grad(total, argnums=place)(*arguments)
    slope = (moved(1e-5) - moved(-1e-5)) / 2e-5
    np.testing.assert_allclose(np.sum(gradient * direction), slope, rtol=1e-6, atol=1e-7)

    def of_one(x):
        return total(*[x if k == place else other for k, other in enumerate(arguments)])

    _, pushed = gt.jvp(of_one, (arguments[place],), (direction,))
    np.testing.assert_allclose(pushed, np.sum(gradient * direction), rtol=1e-10, atol=1e-10)


def test_second_derivatives_and_maps():
    x, v = numbers(70, 33) * 0.1, np.random.default_rng(1).normal(size=(70, 33))

    def total(x):
        return np.sum(gram(x) ** 2)

    def slope(x):
        return np.sum(gt.grad(total)(x) * v)

    second = gt.grad(slope)(x)
    h = 1e-5
    expected = (gt.grad(total)(x + h * v) - gt.grad(total)(x - h * v)) / (2 * h)
    np.testing.assert_allclose(second, expected, rtol=1e-5, atol=1e-6)
    stacked = np.stack([x, 2 * x])
    np.testing.assert_allclose(gt.vmap(total)(stacked), [total(x), total(2 * x)], rtol=1e-11)
    gradients = gt.vmap(gt.grad(total))(stacked)
    np.testing.assert_allclose(gradients[1], gt.grad(total)(2 * x), rtol=1e-10, atol=1e-12)


def test_single_precision():
    x = numbers(TERMS, ROWS).astype(np.float32)
    np.testing.assert_allclose(gt.jit(triangle)(ROWS, x), triangle(ROWS, x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_what_is_not_finite_stays_where_it_was(odd):
    """Tiles hold columns that the loop does not multiply: their products with zeros are no zeros."""
    x = numbers(TERMS, ROWS)
    x[:, 0] = odd

    def later(x):
        out = np.zeros((ROWS, ROWS))
        for i in range(BLOCK + 10):
            out[i + 1, i + 1 :] = x[:, i + 1] @ x[:, i + 1 :]
        return np.sum(out**2)

    value, gradient = gt.value_and_grad(later)(x)
    np.testing.assert_allclose(value, later(x))
    assert np.all(np.isfinite(gradient[:, 1:]))
    assert not np.any(gradient[:, 0])


def rows_times(left_at, count, stored):
    """Return a procedure that multiplies a matrix with `count` vectors of it, which begin at ``left_at(i)``."""
    build = ProcedureBuilder("rows")
    x = build.array("x", (ROWS, TERMS))
    y = build.allocate("y", count * ROWS, zero=True)
    own = build.allocate("own", ROWS * TERMS, zero=True)
    with build.loop(ROWS * TERMS) as i:
        build.store(own, i, build.load(x, i))
    with build.loop(count) as i, build.loop(ROWS) as row:
        total = build.variable("total", 0.0)
        with build.loop(TERMS) as t:
            product = build.load(own, left_at(i) + t) * build.load(x, row * TERMS + t)
            build.assign(total, build.read(total) + product)
        build.store(y, i * ROWS + row, build.read(total))
        if stored:
            build.store(own, row, build.read(total))
    return build.finish([y], [aval((count, ROWS), np.dtype(float))])


@pytest.mark.parametrize(
    ("left_at", "stored", "changes"),
    [
        (lambda i: i * TERMS, False, True),
        (lambda i: (ROWS - 1 - i) * TERMS, False, True),
        (lambda i: i, False, True),
        (lambda i: i * 0, False, False),
        (lambda i: i * TERMS, True, False),
    ],
)
def test_procedures(left_at, stored, changes):
    procedure = rows_times(left_at, ROWS, stored)
    blocked = block_products(procedure)
    assert (blocked is not procedure) is changes
    verify_procedure(blocked, "blocking")
    x = numbers(ROWS, TERMS)
    (expected,) = run_procedure(procedure, [x])
    np.testing.assert_allclose(run_procedure(blocked, [x])[0], expected, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(compile_procedure(blocked)(x)[0], expected, rtol=1e-11, atol=1e-12)
    seed = np.random.default_rng(3).normal(size=expected.shape)
    pulled = [compile_procedure(vjp_procedure(p, [True], [True]))(x, seed)[1] for p in (procedure, blocked)]
    np.testing.assert_allclose(pulled[1], pulled[0], rtol=1e-10, atol=1e-10)


def test_vectors_that_repeat_are_not_copied_without_bound():
    """More iterations than the array has vectors: later blocks compute their sums as they were written."""
    count = 20 * ROWS
    procedure = rows_times(lambda i: floor_divide(i, integer(ROWS)) * TERMS, count, False)
    assert block_products(procedure) is not procedure
    x = numbers(ROWS, TERMS)
    expected = x[np.arange(count) // ROWS] @ x.T
    np.testing.assert_allclose(compile_procedure(procedure)(x)[0], expected, rtol=1e-11, atol=1e-12)


ADDED_SHAPES = dict.fromkeys("uv", (ROWS + 1, 2 * TERMS)) | dict.fromkeys("xy", (2 * TERMS + 1, ROWS))
"""Arrays with a row more than the products read."""


def added_rows(vector="u", matrix="x", ahead=1, below=1, dtype=np.float64):
    """Return a procedure that adds two multiples of rows of a matrix at a time; its arguments say from where the second one comes."""
    build = ProcedureBuilder("added")
    arrays = {name: build.array(name, shape, dtype) for name, shape in ADDED_SHAPES.items()}
    out = build.allocate("out", ROWS * ROWS, dtype, zero=True)
    with build.loop(ROWS) as i, build.loop(TERMS) as t:
        factors = [
            build.load(arrays[name], i * (2 * TERMS) + t * 2 + step)
            for name, step in (("u", 0), (vector, ahead))
        ]
        with build.loop(ROWS) as k:
            row = [
                build.load(arrays[name], (t * 2 + step) * ROWS + k)
                for name, step in (("x", 0), (matrix, below))
            ]
            place = i * ROWS + k
            build.store(out, place, build.load(out, place) + factors[0] * row[0] + factors[1] * row[1])
    return build.finish([out], [aval((ROWS, ROWS), np.dtype(dtype))])


@pytest.mark.parametrize(
    ("others", "changes"),
    [
        ({}, True),
        ({"dtype": np.float32}, True),
        ({"dtype": np.int64}, False),
        ({"vector": "v"}, False),
        ({"matrix": "y"}, False),
        ({"ahead": 2}, False),
        ({"below": 2}, False),
        ({"ahead": 0, "below": 0}, False),
    ],
)
def test_several_terms_at_once_are_of_one_matrix_and_one_vector(others, changes):
    procedure = added_rows(**others)
    blocked = block_products(procedure)
    assert (blocked is not procedure) is changes
    verify_procedure(blocked, "blocking")
    dtype = others.get("dtype", np.float64)
    rng = np.random.default_rng(7)
    arguments = [rng.normal(size=shape, scale=9).astype(dtype) for shape in ADDED_SHAPES.values()]
    (expected,) = run_procedure(procedure, arguments)
    tolerance = 1e-3 if dtype == np.float32 else 1e-11
    np.testing.assert_allclose(
        compile_procedure(blocked)(*arguments)[0], expected, rtol=tolerance, atol=100 * tolerance
    )


def sums_of(term, first=0.0):
    """Return a procedure that sums, for each iteration and row, what ``term(build, u, x, i, row, t)`` returns."""
    build = ProcedureBuilder("sums")
    u, x = build.array("u", (ROWS, TERMS)), build.array("x", (ROWS, TERMS))
    out = build.allocate("out", ROWS * ROWS, zero=True)
    with build.loop(ROWS) as i, build.loop(ROWS) as row:
        total = build.variable("total", first)
        with build.loop(TERMS) as t:
            build.assign(total, build.read(total) + term(build, u, x, i, row, t))
        build.store(out, i * ROWS + row, build.read(total))
    return build.finish([out], [aval((ROWS, ROWS), np.dtype(float))])


TERMS_OF_SUMS = {
    "of a vector and a row": (
        lambda b, u, x, i, row, t: b.load(u, i * TERMS + t) * b.load(x, row * TERMS + t),
        True,
    ),
    "of a row and a vector": (
        lambda b, u, x, i, row, t: b.load(x, row * TERMS + t) * b.load(u, i * TERMS + t),
        True,
    ),
    "of two rows": (
        lambda b, u, x, i, row, t: b.load(u, row * TERMS + t) * b.load(x, row * TERMS + t),
        False,
    ),
    "of two vectors": (lambda b, u, x, i, row, t: b.load(u, i * TERMS + t) * b.load(x, i * TERMS + t), False),
    "of a row and a number": (lambda b, u, x, i, row, t: b.load(x, row * TERMS + t) * 2.0, False),
    "of a sum": (lambda b, u, x, i, row, t: b.load(x, row * TERMS + t) + b.load(u, i * TERMS + t), False),
    "of one element": (lambda b, u, x, i, row, t: b.load(u, i * TERMS + t) * b.load(x, row * TERMS), False),
}


@pytest.mark.parametrize("name", TERMS_OF_SUMS)
@pytest.mark.parametrize("first", [0.0, 2.5])
def test_sums_for_each_row(name, first):
    term, changes = TERMS_OF_SUMS[name]
    procedure = sums_of(term, first)
    blocked = block_products(procedure)
    assert (blocked is not procedure) is changes
    verify_procedure(blocked, "blocking")
    u, x = numbers(ROWS, TERMS), np.random.default_rng(8).normal(size=(ROWS, TERMS))
    (expected,) = run_procedure(procedure, [u, x])
    np.testing.assert_allclose(compile_procedure(blocked)(u, x)[0], expected, rtol=1e-11, atol=1e-11)
