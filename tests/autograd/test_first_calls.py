"""Calls through autograd's names are interpreted until the interpreter has taken the time that compiling takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import pytest

import gradtape as gt
from gradtape.autograd import elementwise_grad, grad, hessian, jacobian, make_jvp, make_vjp, value_and_grad
from gradtape.autograd.extend import defvjp, primitive
from gradtape.runtime.compile import background, program
from gradtape.runtime.compile.background import (
    PATIENT_SHARE,
    SHARE,
    SOLVER_SHARE,
    finish_all,
    patient,
    share_of_interpreter,
    solving,
)
from gradtape.runtime.compile.kernel import kernels

X = np.linspace(0.1, 1.0, 7)


@pytest.fixture(autouse=True)
def never(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let nothing be compiled before a test asks for it, and leave aside what other tests of the process have not compiled."""
    kernels.clear()
    monkeypatch.setattr(background, "_unfinished", WeakValueDictionary())
    monkeypatch.setattr(program, "SECONDS_PER_NODE", 1e9)
    with gt.config.override(disk_cache=False):
        yield


@pytest.mark.parametrize(
    "answer",
    [
        lambda f, x: grad(f)(x),
        lambda f, x: value_and_grad(f)(x)[1],
        lambda f, x: make_vjp(f)(x)[0](1.0),
        lambda f, x: [make_jvp(f)(x)(row)[1] for row in np.eye(len(x))],
        lambda f, x: np.diag(hessian(f)(x)),
        lambda f, x: elementwise_grad(lambda y: f(y) * y)(x),
        lambda f, x: jacobian(lambda y: f(y) * y)(x),
    ],
    ids=["grad", "value_and_grad", "make_vjp", "make_jvp", "hessian", "elementwise_grad", "jacobian"],
)
def test_results_are_equal_before_and_after_compilation(answer: Callable[[Any, Any], Any]) -> None:
    scale = np.random.default_rng(3).normal()

    def f(x: Any) -> Any:
        return np.sum(np.tanh(x * scale) * np.cumsum(x) ** 2)

    early = [answer(f, X) for _ in range(4)]
    assert background._unfinished
    assert not any(compilation.is_requested for compilation in background._unfinished.values())
    finish_all()
    late = [answer(f, X) for _ in range(2)]
    for one in (*early, *late):
        np.testing.assert_allclose(one, late[0], rtol=1e-12)


def test_a_kept_gradient_is_compiled_when_the_interpreter_has_had_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(program, "SECONDS_PER_NODE", 1e-9)
    gradient = grad(lambda x: np.sum(np.sin(x * 1.71875) ** 3))
    wanted = 3 * np.sin(X * 1.71875) ** 2 * np.cos(X * 1.71875) * 1.71875
    for _ in range(3):
        np.testing.assert_allclose(gradient(X), wanted)
    assert not background._unfinished


def test_nodes_are_counted_over_all_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "SECONDS_PER_NODE", 8e-6)
    f = gt.jit(lambda x: np.sum(np.sin(x * 11.0625) ** 3))
    with patient:
        values = [float(f(X)) for _ in range(6)]
    (made,) = f.site.specialisations()
    assert made.program.interpreted == 3
    assert made.is_native
    np.testing.assert_allclose(values, values[0], rtol=1e-14)


def test_a_long_loop_is_compiled_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "SECONDS_PER_NODE", 5e-5)
    f = gt.jit(lambda x: gt.fori_loop(0, 10**8, lambda i, c: c * 0.5 + x, x))
    with patient:
        assert float(f(1.375)) == 2.75
    assert f.site.specialisations()[0].program.interpreted == 0


def test_primitives_run_once_for_each_interpreted_call() -> None:
    seen = []

    @primitive
    def cube(x: Any) -> Any:
        seen.append(1)
        return x * x * x * 1.0625

    defvjp(cube, lambda ans, x: lambda g: g * 3.1875 * x * x)
    both = value_and_grad(lambda x: np.sum(cube(x)))
    for k in range(6):
        before = len(seen)
        value, gradient = both(X + k)
        np.testing.assert_allclose(value, np.sum((X + k) ** 3 * 1.0625))
        np.testing.assert_allclose(gradient, 3.1875 * (X + k) ** 2)
        if k >= 2:
            assert len(seen) == before + 1
        if k == 3:
            assert background._unfinished
            finish_all()


def test_callbacks_in_loops_are_compiled() -> None:
    seen = []

    def look(x: Any) -> Any:
        seen.append(float(x))
        return np.asarray(x)

    f = gt.jit(lambda x: gt.fori_loop(0, 3, lambda i, c: gt.callback(look, np.zeros(()), c + x), x))
    with patient:
        assert float(f(1.0)) == 4.0
    assert f.site.specialisations()[0].program.interpreted == 0
    assert seen == [2.0, 3.0, 4.0]


@pytest.mark.parametrize("in_background", [False, True])
def test_what_is_on_the_disk_is_not_interpreted(in_background: bool, tmp_path: Any) -> None:
    def f(x: Any) -> Any:
        return np.sum(np.sin(x * 4.34375 + in_background) ** 3)

    with gt.config.override(disk_cache=True, cache_dir=str(tmp_path)):
        gt.jit(f)(X)
        kernels.clear()
        again = gt.jit(lambda x: np.sum(np.sin(x * 4.34375 + in_background) ** 3))
        if in_background:
            with gt.config.override(compile="background"):
                again(X)
        else:
            with patient:
                again(X)
    (made,) = again.site.specialisations()
    assert (made.program.interpreted, made.program.kernel.origin) == (0, "disk")


def test_branches_are_guarded() -> None:
    gradient = grad(lambda x: np.sum(x**2) * 1.03125 if x[0] > 0 else np.prod(x))
    signs = (1.0, -1.0, 1.0, -1.0)
    early = [gradient(sign * X) for sign in signs]
    finish_all()
    for sign, before in zip(signs, early, strict=True):
        np.testing.assert_allclose(gradient(sign * X), before, rtol=1e-14)
        np.testing.assert_allclose(before, X * 2.0625 if sign > 0 else np.prod(X) / X, rtol=1e-13)


def test_patience_ends_with_its_block_and_with_errors() -> None:
    assert share_of_interpreter().part == 0.0
    with patient, solving:
        assert share_of_interpreter() == (SOLVER_SHARE, True)
        with patient:
            assert share_of_interpreter() == (PATIENT_SHARE, True)
    with pytest.raises(ZeroDivisionError):
        grad(lambda x: x / 0 if 1 // 0 else x)(1.0)
    assert share_of_interpreter().part == 0.0
    with gt.config.override(compile="background"):
        assert share_of_interpreter() == (SHARE, False)


def test_programs_whose_values_take_much_memory_are_compiled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scale = np.random.default_rng(5).normal()
    monkeypatch.setattr(program, "MOST_KEPT", 8 * len(X))
    grad(lambda x: np.sum(np.tanh(x * scale) * x))(X)
    assert not background._unfinished
