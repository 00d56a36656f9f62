"""`gt.print` prints at each call of a compiled function, in order, in loops and branches, on tapes, and what `vmap` maps at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.optimize as so

import gradtape as gt


def squared(x: Any) -> Any:
    y = x * x
    gt.print("y", y)
    return y * x


def scanned(x: Any) -> Any:
    def body(total: Any, item: Any) -> Any:
        total = total + item
        gt.print(total)
        return total, total

    return gt.scan(body, 0.0, x)[0]


def branched(x: Any) -> Any:
    def yes(x: Any) -> Any:
        gt.print("positive", x)
        return x

    return gt.cond(x > 0, yes, lambda x: -x, x)


def twice(x: Any) -> Any:
    gt.print("first", x)
    y = squared(x)
    gt.print("last")
    return y


CASES: dict[str, tuple[Callable[[], Any], str]] = {
    "in order": (lambda: gt.jit(twice)(2.0), "first 2.0\ny 4.0\nlast\n"),
    "a gradient": (lambda: gt.grad(squared)(3.0), "y 9.0\n"),
    "a second derivative": (lambda: gt.grad(gt.grad(squared))(3.0), "y 9.0\n"),
    "forward mode": (lambda: gt.jvp(squared, (3.0,), (1.0,)), "y 9.0\n"),
    "a map": (lambda: gt.vmap(squared)(np.arange(3.0)), "y [0. 1. 4.]\n"),
    "a compiled map": (lambda: gt.jit(gt.vmap(gt.grad(squared)))(np.arange(3.0)), "y [0. 1. 4.]\n"),
    "a map of maps": (lambda: gt.vmap(gt.vmap(squared))(np.ones((1, 2))), "y [[1. 1.]]\n"),
    "a loop": (lambda: gt.jit(scanned)(np.arange(3.0)), "0.0\n1.0\n3.0\n"),
    "the gradient of a loop": (lambda: gt.grad(scanned)(np.arange(3.0)), "0.0\n1.0\n3.0\n"),
    "a branch": (lambda: [gt.jit(branched)(x) for x in (1.0, -1.0)], "positive 1.0\n"),
    "outside": (lambda: gt.print("x", np.arange(2), sep="="), "x=[0 1]\n"),
    "a format": (
        lambda: gt.jit(lambda x: gt.print("{:.2f} {name:.1e}", x, name=x[0], end="!"))(np.ones(2)),
        "[1.00 1.00] 1.0e+00!",
    ),
    "a nest": (lambda: gt.jit(lambda x: gt.print({"a": [x, 1]}))(2), "{'a': [np.int64(2), 1]}\n"),
}


@pytest.mark.parametrize("name", CASES)
def test_prints(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    run, expected = CASES[name]
    run()
    assert capsys.readouterr().out == expected


def test_each_call_prints(capsys: pytest.CaptureFixture[str]) -> None:
    function = gt.jit(squared)
    for x in (1.0, 2.0, 3.0):
        function(x)
    assert capsys.readouterr().out == "y 1.0\ny 4.0\ny 9.0\n"


def test_a_tape_prints_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with gt.GradientTape() as tape:
        x = tape.watch(2.0)
        y = squared(x)
        assert capsys.readouterr().out == "y 4.0\n"
    assert tape.gradient(y, x) == 12


def test_a_loop_in_a_map_is_refused() -> None:
    with pytest.raises(gt.errors.ArgumentError, match=r"gt\.print"):
        gt.vmap(lambda x: gt.fori_loop(0, 2, lambda i, c: (gt.print(c), c * 2)[1], x))(np.ones(2))


def test_a_callback_with_a_rule_is_differentiated() -> None:
    @gt.custom_vjp
    def sine(x: Any) -> Any:
        return gt.callback(np.sin, 0.0, x)

    sine.defvjp(lambda x: (gt.callback(np.sin, 0.0, x), x), lambda x, ct: (ct * gt.callback(np.cos, 0.0, x),))
    x = np.array([0.3, 1.0])
    np.testing.assert_allclose(gt.vmap(gt.grad(sine))(x), np.cos(x))
    np.testing.assert_allclose(gt.jit(sine)(0.3), np.sin(0.3))


def test_the_first_print_of_a_process_may_be_in_a_loop() -> None:
    code = "import gradtape as gt; gt.jit(lambda x: gt.fori_loop(0, 2, lambda i, y: (gt.print(i), y)[1], x))(1.0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("0\n1\n", 0), done.stderr


@pytest.mark.parametrize(
    "solve",
    [
        lambda f, p: so.minimize(f, 0.0, (p,), method="Nelder-Mead").x[0],
        lambda f, p: so.brentq(lambda x: f(x, p) - 0.5, 0.0, p),
    ],
)
def test_the_evaluations_of_a_solver_print(solve: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A compiled function prints what SciPy's solver prints with numbers; for a minimum, the result is one evaluation more."""

    def printing(x: Any, p: Any) -> Any:
        x = np.sum(x)
        gt.print("{:.6f} {:.1f}", x, p)
        gt.print("-")
        return (x - p) ** 2

    solve(printing, 1.5)
    plain = capsys.readouterr().out
    compiled = gt.jit(lambda p: solve(printing, p))
    for _ in range(2):
        np.testing.assert_allclose(compiled(1.5), solve(lambda x, p: (np.sum(x) - p) ** 2, 1.5))
        found = capsys.readouterr().out
        assert found.startswith(plain) and found.count("-") - plain.count("-") <= 2
