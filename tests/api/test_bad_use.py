"""Arguments of the transforms that do not fit, and things done out of order."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
import scipy.sparse.csgraph

import gradtape as gt
from gradtape import errors
from tests.support.ways import (
    PAIR,
    Function,
    at_a_line_of,
    expect,
)

# Arguments of the transforms


@pytest.mark.parametrize("transform", [gt.grad, gt.value_and_grad])
def test_argnums(transform: Function) -> None:
    def f(x: Any, y: Any) -> Any:
        return np.sum(x) * np.sum(y)

    def call(argnums: Any) -> Any:
        return transform(f, argnums=argnums)(PAIR, PAIR)

    for argnums in (2, -3, (0, 2)):
        error = expect(errors.ArgumentError, lambda a=argnums: call(a), "argnums", "2 positional")
        assert at_a_line_of(call, error)
    for argnums in ("x", 1.0, (0, "y"), (None,), True):
        expect(errors.DtypeError, lambda a=argnums: call(a), "argnums", "int")
    expect(errors.ArgumentError, lambda: call((0, 0)), "argnums", "twice")
    expect(errors.ArgumentError, lambda: call((0, -2)), "argnums", "twice")
    gradient = call(-1)
    np.testing.assert_array_equal(gradient if transform is gt.grad else gradient[1], [3.0, 3.0])


def test_an_argument_that_is_passed_by_keyword_has_no_position() -> None:
    expect(errors.ArgumentError, lambda: gt.grad(lambda x: x)(x=1.0), "by position")


@pytest.mark.parametrize("transform", [gt.grad, gt.value_and_grad])
@pytest.mark.parametrize("result", [1.0, None, (1.0,), (1.0, 2.0, 3.0), [1.0, 2.0]], ids=repr)
def test_has_aux_needs_a_pair(transform: Function, result: Any) -> None:
    def call() -> Any:
        return transform(lambda x: result, has_aux=True)(PAIR)

    error = expect(errors.StructureError, call, "has_aux", "pair")
    assert at_a_line_of(call, error)


def test_a_pair_needs_has_aux() -> None:
    expect(errors.NonScalarOutputError, lambda: gt.grad(lambda x: (np.sum(x), x))(PAIR), "has_aux=True")


def test_cotangents_must_match() -> None:
    y, pullback = gt.vjp(lambda x: {"a": x, "b": np.sum(x)}, PAIR)

    def pull(cotangent: Any) -> Any:
        return pullback(cotangent)

    for wrong in ({"a": PAIR}, {"a": PAIR, "b": 1.0, "c": 1.0}, [PAIR, 1.0], PAIR, 1.0, None):
        error = expect(errors.StructureError, lambda w=wrong: pull(w), "cotangent")
        assert at_a_line_of(pull, error)
    error = expect(errors.ShapeError, lambda: pull({"a": np.ones(3), "b": 1.0}), "(3,)", "(2,)")
    assert at_a_line_of(pull, error)
    error = expect(errors.DtypeError, lambda: pull({"a": PAIR * 1j, "b": 1.0}), "complex128")
    assert at_a_line_of(pull, error)
    expect(errors.DtypeError, lambda: pull({"a": "b", "b": 1.0}), "str")
    expect(errors.ArraySubclassError, lambda: pull({"a": np.ma.array(PAIR), "b": 1.0}), "Masked")
    np.testing.assert_array_equal(pull(y)[0], PAIR + 3.0)


def test_tangents_must_match() -> None:
    def push(primals: Any, tangents: Any) -> Any:
        return gt.jvp(lambda x, y: x * y, primals, tangents)

    for primals, tangents in (
        ((PAIR, PAIR), (PAIR,)),
        (({"a": PAIR}, PAIR), ({"b": PAIR}, PAIR)),
        ((PAIR, PAIR), PAIR),
        (PAIR, (PAIR,)),
        ((PAIR, PAIR), None),
    ):
        error = expect(errors.StructureError, lambda p=primals, t=tangents: push(p, t), "what to do")
        assert at_a_line_of(push, error)
    error = expect(errors.ShapeError, lambda: push((PAIR, PAIR), (PAIR, np.ones(3))), "(3,)", "(2,)")
    assert at_a_line_of(push, error)
    expect(errors.DtypeError, lambda: push((PAIR, PAIR), (PAIR, PAIR * 1j)), "complex128")
    expect(errors.DtypeError, lambda: push((PAIR, PAIR), (PAIR, {"a": PAIR})), "dict")
    np.testing.assert_array_equal(push([PAIR, PAIR], [PAIR, np.array([0, 0])])[1], PAIR**2)


def test_seeds_of_a_tape_must_match() -> None:
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(PAIR)
        y = x * 2
    expect(errors.ShapeError, lambda: tape.gradient(y, x, output_gradients=np.ones(3)), "(3,)")
    expect(
        errors.ShapeError,
        lambda: tape.gradient([y, y], x, output_gradients=[PAIR]),
        "1 entries for 2 targets",
    )
    expect(errors.DtypeError, lambda: tape.gradient(y, x, output_gradients=PAIR * 1j), "complex128")
    np.testing.assert_array_equal(tape.gradient(y, x, output_gradients=PAIR), 2 * PAIR)


def test_calls_that_want_ndarrays_say_what_to_write(tmp_path: Any) -> None:
    library = tmp_path / "site-packages" / "library.py"
    library.parent.mkdir()
    library.write_text("import numpy as np\n\n\ndef filled(x):\n    return np.full(3, x[0])\n")
    names: dict[str, Any] = {}
    exec(compile(library.read_text(), str(library), "exec"), names)
    for body, advice in (
        (
            lambda x: scipy.sparse.csgraph.shortest_path(np.outer(x, x)),
            "write shortest_path with NumPy's functions",
        ),
        (names["filled"], "np.full(n, a, like=a)"),
    ):
        with gt.config.override(trace_packages="-library"):
            expect(errors.ConcretizationError, lambda body=body: gt.jit(body)(PAIR), advice)
    np.testing.assert_array_equal(gt.jit(names["filled"])(PAIR), np.full(3, PAIR[0]))


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (lambda x: np.less.accumulate(x), "less.accumulate is"),
        (lambda x: np.frompyfunc(abs, 1, 1)(x), "abs (vectorized) is"),
    ],
)
def test_functions_are_called_by_their_names(body: Function, name: str) -> None:
    expect(errors.UnsupportedFunctionError, lambda: gt.jit(body)(PAIR), name)


def test_arguments_of_jit() -> None:
    expect(errors.DtypeError, lambda: gt.jit(np.sin, static_argnums="x"), "static_argnums")
    expect(errors.DtypeError, lambda: gt.jit(np.sin, static_argnums=1.0), "static_argnums")
    expect(errors.DtypeError, lambda: gt.jit(np.sin, static_argnames=3), "static_argnames")
    expect(TypeError, lambda: gt.jit(lambda x: x)(), "missing")
    expect(TypeError, lambda: gt.jit(lambda x: x)(1.0, 2.0), "positional")
    expect(TypeError, lambda: gt.jit(lambda x: x)(1.0, z=2.0), "z")


def test_inspecting_what_was_not_compiled() -> None:
    for look in (gt.inspect.graph, gt.inspect.loops, gt.inspect.llvm, gt.inspect.asm, gt.inspect.explain):
        error = expect(errors.ArgumentError, lambda look=look: look(np.sin), "gt.jit")
        assert error.where.filename == __file__
    for look in (gt.inspect.graph, gt.inspect.loops, gt.inspect.llvm, gt.inspect.asm):
        error = expect(
            errors.ArgumentError, lambda look=look: look(gt.jit(lambda x: x * 2)), "has not been called"
        )
        assert error.where.filename == __file__


# Out of order


@pytest.mark.parametrize("use", [repr, float, np.sum, lambda x: x + 1, lambda x: x[0], lambda x: x.numpy()])
def test_leaked_arrays(use: Function) -> None:
    kept: Any = ctypes.py_object()  # of which captures know nothing
    gt.jit(lambda x: setattr(kept, "value", x * 2) or x)(np.array(3.0) if use is float else PAIR)

    def late() -> Any:
        return repr(use(kept.value))

    error = expect(errors.LeakedValueError, late, "return it")
    assert error.where.filename == __file__


def test_leaked_arrays_in_another_trace() -> None:
    kept: Any = ctypes.py_object()
    gt.jit(lambda x: setattr(kept, "value", x) or x)(PAIR)
    expect(errors.LeakedValueError, lambda: gt.jit(lambda x: x + kept.value)(PAIR), "return it")


def test_a_one_shot_tape_gives_one_gradient() -> None:
    with gt.GradientTape() as tape:
        x = tape.watch(PAIR)
        y = np.sum(x)
    tape.gradient(y, x)

    def again() -> Any:
        return tape.gradient(y, x)

    error = expect(errors.TapeError, again, "persistent=True")
    assert at_a_line_of(again, error)
    expect(errors.TapeError, lambda: tape.watch(x), "used")


def test_a_tape_that_was_never_entered() -> None:
    tape = gt.GradientTape()
    expect(errors.TapeError, lambda: tape.watch(PAIR), "with gt.GradientTape() as tape")
    expect(errors.TapeError, lambda: tape.gradient(gt.constant(1.0), gt.constant(1.0)), "never entered")
    expect(errors.DtypeError, lambda: gt.GradientTape(persistent="yes"), "persistent", "str")
    with tape:
        expect(ValueError, tape.__enter__, "recording already")


def test_a_refused_call_leaves_the_tape_as_it_was() -> None:
    with gt.GradientTape() as tape:
        x = tape.watch(PAIR)
        y = np.sum(x**2)
    expect(errors.ShapeError, lambda: tape.gradient(y, x, output_gradients=np.ones(2)))
    expect(errors.ArgumentError, lambda: tape.gradient(y, PAIR))
    expect(errors.ArgumentError, lambda: tape.gradient(y, x, unconnected_gradients="bad"))
    np.testing.assert_array_equal(tape.gradient(y, x), [2.0, 4.0])
