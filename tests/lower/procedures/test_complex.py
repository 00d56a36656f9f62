"""Procedures of complex numbers, against the interpreter."""

import numpy as np
import pytest

import gradtape as gt
from gradtape.ir.graph import Value
from gradtape.ir.types import aval
from gradtape.ops.core.elementwise.exponential import exp
from gradtape.ops.core.elementwise.signs import absolute
from gradtape.ops.numpy.linalg.products import matmul
from gradtape.procedures.builder import ProcedureBuilder, leaf
from gradtape.procedures.interpret import run_procedure
from gradtape.procedures.ir import Apply, Pop, Push, Span
from gradtape.transforms.loops.draft import make_body
from tests.lower.procedures.standalone import compile_procedure

RANDOM = np.random.default_rng(0)


def check(procedure, *arguments):
    expected = run_procedure(procedure, arguments)
    for a, b in zip(compile_procedure(procedure)(*arguments), expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-5 if a.dtype.char == "F" else 1e-12, atol=1e-12)


def test_scalars():
    """The number of steps until an orbit leaves a circle, and where it is then."""
    build = ProcedureBuilder("mandelbrot")
    c = build.scalar("c", complex)
    z, steps = build.variable("z", 0j), build.variable("steps", 0)
    with build.loop_while() as loop:
        now = build.read(z)
        build.start_body(loop, (absolute(now) < 2.0) & (build.read(steps) < 50))
        build.assign(z, now * now + c)
        build.assign(steps, build.read(steps) + 1)
    procedure = build.finish([build.read(z), build.read(steps), exp(c * 2j)])
    for number in (0.3 + 0.5j, 1.0, -0.1j):
        check(procedure, number)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_arrays(dtype):
    build = ProcedureBuilder("products")
    x, y = build.array("x", (4, 3), dtype), build.array("y", (3,))
    out = build.allocate("out", 4, dtype, zero=True)
    pointer = build.variable("pointer", out)
    with build.loop(4) as i, build.loop(3) as j:
        target = build.read(pointer)
        term = build.load(x, i * 3 + j) * build.load(y, j) + 1j
        build.store(target, i, build.load(target, i) + term)
    procedure = build.finish(
        [out, build.load(out, 2)], [aval((4,), np.dtype(dtype)), aval((), np.dtype(dtype))]
    )
    x = (RANDOM.normal(size=(4, 3)) + 1j * RANDOM.normal(size=(4, 3))).astype(dtype)
    check(procedure, x, RANDOM.normal(size=3))


def test_tape():
    build = ProcedureBuilder("reversed")
    x = build.array("x", (5,), complex)
    with build.loop(5) as i:
        build.append(Push((build.load(x, i), i)))
    out = build.allocate("out", 5, complex)
    with build.loop(5) as back:
        number, i = leaf(complex), leaf(np.int64)
        build.append(Pop((number, i)))
        build.store(out, back, number * (1.0 + i))
    check(build.finish([out], [aval((5,), np.dtype(complex))]), RANDOM.normal(size=5) * (1 + 2j))


def test_array_computation():
    matrix, number = aval((3, 3), np.dtype(complex)), aval((), np.dtype(complex))
    inputs = [Value(matrix), Value(number)]
    body = make_body(inputs, [matmul(inputs[0], inputs[0]) * inputs[1]])
    build = ProcedureBuilder("applied")
    x = build.array("x", (2, 3, 3), complex)
    out = build.allocate("out", 18, complex)
    with build.loop(2) as i:
        place = i * 9
        factor = build.load(x, place) * 2j
        build.append(Apply(body, (Span(x, place, matrix), factor), (Span(out, place, matrix),)))
    procedure = build.finish([out], [aval((2, 3, 3), np.dtype(complex))])
    check(procedure, RANDOM.normal(size=(2, 3, 3)) + 1j * RANDOM.normal(size=(2, 3, 3)))


def solved(a, b):
    out = np.zeros(b.shape, complex)
    for i in range(len(b)):
        out[i] = np.linalg.solve(a[i], b[i])
    return out


def test_array_computations_read_and_write_parts_of_arrays(monkeypatch):
    monkeypatch.setattr(gt.config, "loops", "compile")
    a = RANDOM.normal(size=(4, 3, 3)) + 1j * RANDOM.normal(size=(4, 3, 3))
    b = RANDOM.normal(size=(4, 3)) + 1j * RANDOM.normal(size=(4, 3))
    np.testing.assert_allclose(gt.jit(solved)(a, b), solved(a, b), rtol=1e-11)

    def total(b):
        return np.sum(np.abs(solved(a, b)) ** 2)

    h, direction = 1e-6, RANDOM.normal(size=b.shape)
    slope = (total(b + h * direction) - total(b - h * direction)) / (2 * h)
    np.testing.assert_allclose(np.sum(gt.grad(total)(b) * direction).real, slope, rtol=1e-6)
