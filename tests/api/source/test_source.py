"""gt.source: derivatives as NumPy code with the user's names."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numba
import numpy as np
import optree
import pytest

import gradtape as gt
from tests.api.source.functions import CASES, X, drag_and_lift, network, scanned, written

NAMES = [f"{function.__name__}-{place}" for place, (function, _) in enumerate(CASES)]
TOLERANCE = 1e-13
LARGE = np.zeros(2000)


def assert_same(actual: Any, expected: Any) -> None:
    """Compare nests of arrays to a relative error of `TOLERANCE`."""
    assert optree.tree_structure(actual) == optree.tree_structure(expected)
    for a, e in zip(optree.tree_leaves(actual), optree.tree_leaves(expected), strict=True):
        assert np.shape(a) == np.shape(e)
        np.testing.assert_allclose(a, e, rtol=TOLERANCE, atol=TOLERANCE * max(1.0, np.max(np.abs(e))))


@pytest.mark.parametrize(("function", "arguments"), CASES, ids=NAMES)
def test_code_of_a_gradient_computes_the_gradient(function: Any, arguments: tuple[Any, ...]) -> None:
    code = gt.source(gt.grad(function), *arguments)
    assert "gradtape" not in code
    assert max(map(len, code.splitlines())) <= 100
    assert_same(code(*arguments), gt.grad(function)(*arguments))


@pytest.mark.parametrize(("function", "arguments"), CASES[::3], ids=NAMES[::3])
@pytest.mark.parametrize("transform", [gt.value_and_grad, gt.hessian, gt.jit], ids=lambda t: t.__name__)
def test_code_of_other_transforms(transform: Any, function: Any, arguments: tuple[Any, ...]) -> None:
    compiled = transform(function)
    assert_same(gt.source(compiled, *arguments)(*arguments), compiled(*arguments))


def test_code_runs_where_gradtape_is_not_installed(tmp_path: Path) -> None:
    """One process without gradtape runs all of the code."""
    expected, names = [], []
    for place, (function, arguments) in enumerate(CASES):
        (tmp_path / f"case{place}.py").write_text(gt.source(gt.grad(function), *arguments))
        names.append(f"grad_{function.__name__}")
        found = gt.grad(function)(*arguments)
        expected.append([np.asarray(leaf).tolist() for leaf in optree.tree_leaves(found)])
    np.savez(tmp_path / "arguments.npz", all=np.array([arguments for _, arguments in CASES], object))
    script = f"""
import importlib, json, sys
sys.modules["gradtape"] = None
import numpy as np
sys.path.insert(0, {str(tmp_path)!r})
def leaves(tree):
    if isinstance(tree, dict):
        return [leaf for key in sorted(tree) for leaf in leaves(tree[key])]
    return [leaf for part in tree for leaf in leaves(part)] if isinstance(tree, (tuple, list)) else [np.asarray(tree).tolist()]
every = np.load({str(tmp_path / "arguments.npz")!r}, allow_pickle=True)["all"]
print(json.dumps([leaves(getattr(importlib.import_module(f"case{{k}}"), name)(*every[k])) for k, name in enumerate({names!r})]))
"""
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr
    for case, (actual, wanted) in enumerate(zip(json.loads(run.stdout), expected, strict=True)):
        for a, e in zip(actual, wanted, strict=True):
            scale = max(1.0, np.max(np.abs(e)))
            np.testing.assert_allclose(a, e, rtol=TOLERANCE, atol=TOLERANCE * scale, err_msg=NAMES[case])


def test_names_and_lines_are_the_users() -> None:
    code = gt.source(gt.grad(drag_and_lift), X, X)
    assert (
        str(code)
        == """import numpy as np


def grad_drag_and_lift(x, w):
    # speed = np.sin(x) * w
    speed = np.sin(x) * w
    # drag = np.exp(-(speed**2))
    drag = np.exp(-speed**2)
    # lift = np.where(x > 0.5, drag, speed)
    t = x > 0.5
    lift = np.where(t, drag, speed)
    # derivative of: drag = np.exp(-(speed**2))
    t1 = np.where(t, -2 * speed * (drag * speed), 0.0)
    d_speed = lift + np.where(~t, speed, 0.0) + t1
    # derivative of: speed = np.sin(x) * w
    return np.cos(x) * (w * d_speed)
"""
    )
    assert repr(code) == str(code)


def test_parts_of_arguments_have_their_own_names() -> None:
    p = {"w": np.ones((2, 3)), "b": np.ones(2), "v": np.ones(2)}
    code = gt.source(gt.grad(network), p, np.ones(3))
    assert "    w = p['w']\n" in code
    assert "    d_hidden = d_out * v\n" in code
    assert "return {'w': d_w, 'b': d_b, 'v': d_v}" in code


def test_loops_are_loops() -> None:
    code = gt.source(gt.grad(scanned), 0.3)
    assert code.count("for ") == 2
    assert "in reversed(range(4)):" in code


def test_writes_are_writes() -> None:
    code = gt.source(gt.grad(written), X)
    assert "d_x[0] += x[1] * t1[0]" in code


def test_forward_derivatives_are_named() -> None:
    code = gt.source(gt.jit(lambda x, v: gt.jvp(lambda x: drag_and_lift(x, X), (x,), (v,))), X, X)
    assert "    d_speed = " in code


def test_descriptions_take_the_place_of_arguments() -> None:
    assert gt.source(gt.grad(drag_and_lift), gt.spec((4,)), gt.spec((4,))) == gt.source(
        gt.grad(drag_and_lift), X, X
    )


def test_code_depends_on_the_branch_and_says_so() -> None:
    def f(x: Any) -> Any:
        if x > 1:
            return x**3
        return -x

    code = gt.source(gt.grad(f), 2.0)
    assert code(3.0) == 27.0
    with pytest.raises(ValueError, match="another branch: if x > 1"):
        code(0.5)


def test_arrays_from_outside_are_written_into_the_code() -> None:
    OFFSETS = np.array([0.5, np.inf, np.nan, -2.0])
    code = gt.source(gt.jit(lambda x: x + OFFSETS), X)
    assert "OFFSETS = np.array([0.5, np.inf, np.nan, -2.0])" in code
    np.testing.assert_array_equal(code(X), X + OFFSETS)


@pytest.mark.parametrize("number", [np.nan, -np.inf, -2.5, 1 - 2j, np.float32(0.1), -3], ids=repr)
def test_numbers_from_outside_are_written_into_the_code(number: Any) -> None:
    captured = np.array(number)
    compiled = gt.jit(lambda x: x * captured**2)
    actual, expected = gt.source(compiled, X)(X), compiled(X)
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual, expected)


def test_source_leaves_no_trace_and_changes_no_graph() -> None:
    compiled = gt.grad(drag_and_lift)
    compiled(X, X)
    before = str(gt.inspect.graph(compiled, X, X))
    gt.source(compiled, X, X)
    assert str(gt.inspect.graph(compiled, X, X)) == before
    assert compiled.site.traces == 1


def with_callback(x: Any) -> Any:
    y = gt.callback(np.sin, x, x)
    return np.sum(y)


def with_differences(x: Any) -> Any:
    y = gt.callback(lambda a: np.sin(a), x, x, derivative="differences")
    return np.sum(y)


@numba.njit
def compiled_loop(x: Any) -> Any:
    total = 0.0
    for k in range(len(x)):
        total += x[k] ** 2 if x[k] > 0 else x[k]
    return total


def with_compiled_loop(x: Any) -> Any:
    return compiled_loop(x * 2)


def with_eigenvalues(x: Any) -> Any:
    y = np.linalg.eig(x)[0]
    return np.sum(np.abs(y))


@pytest.mark.parametrize(
    ("function", "arguments", "error", "message"),
    [
        (with_callback, (X,), gt.errors.LoweringError, "in with_callback"),
        (gt.grad(with_differences), (X,), gt.errors.LoweringError, "in with_differences"),
        (gt.hessian(with_differences), (X,), gt.errors.LoweringError, "in with_differences"),
        (
            gt.jit(with_compiled_loop),
            (X,),
            gt.errors.LoweringError,
            "compiled from their code\\n.* in compiled_loop",
        ),
        (gt.hessian(with_compiled_loop), (X,), gt.errors.LoweringError, "in compiled_loop"),
        (
            gt.grad(with_eigenvalues),
            (np.array([[1.0, 2.0], [3.0, 4.0]]),),
            gt.errors.LoweringError,
            "in with_eigenvalues",
        ),
        (3, (), gt.errors.ArgumentError, "not callable"),
        (gt.jit(lambda np: np + 1), (2.0,), gt.errors.ArgumentError, "parameter with the name np"),
        (
            gt.jit(lambda x: x[0] + LARGE),
            (X,),
            gt.errors.ArgumentError,
            "array of 2000 elements",
        ),
        (
            gt.jit(lambda x: x * np.random.default_rng(1).normal()),
            (X,),
            gt.errors.ArgumentError,
            "random numbers",
        ),
    ],
)
def test_what_has_no_code_is_an_error(function: Any, arguments: Any, error: Any, message: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(error, match=message):
            gt.source(function, *arguments)


def test_variables_are_refused() -> None:
    v = gt.Variable(np.ones(4))
    with pytest.raises(gt.errors.ArgumentError, match="variables"):
        gt.source(gt.grad(lambda x: np.sum(x * v)), X)


def cubic(x: Any) -> Any:
    return 3 * x**3 - 2 * x**2 + x - 7


def power(speed: Any, area: Any) -> Any:
    drag = area * speed**2 * np.exp(-speed / 50)
    heat = np.sqrt(drag)
    return drag * speed + heat


def wave(x: Any, alpha: Any) -> Any:
    phase = alpha * x
    return np.where(x > 0, np.sin(phase), -np.tanh(phase) / x)


def test_formulas_of_numbers() -> None:
    assert str(gt.source(gt.grad(cubic), 1.0).latex()) == (
        "\\begin{aligned}\n"
        r"\frac{\partial \mathit{cubic}}{\partial x} &= 1 - 4 \, x + 9 \, x^{2}"
        "\n\\end{aligned}\n"
    )
    assert r"\mathit{drag} &= " in gt.source(gt.value_and_grad(power), 20.0, 0.5).latex()
    for case in (gt.grad(wave), wave, gt.value_and_grad(wave)):
        text = gt.source(case, 0.3, 2.0).latex()
        assert r"\mathit{phase} &= \alpha \, x" in text
        assert r"\begin{cases}" in text
        assert text.count("{") == text.count("}")
        assert text.count(r"\left(") == text.count(r"\right)")


@pytest.mark.parametrize(("function", "arguments"), [(drag_and_lift, (X, X)), (scanned, (0.3,))])
def test_arrays_and_loops_have_no_formula(function: Any, arguments: Any) -> None:
    with pytest.raises(gt.errors.LoweringError, match="no formula"):
        gt.source(gt.grad(function), *arguments).latex()


def doubled_twice(x: Any) -> Any:
    x = x * 2
    x = np.sin(x) * x
    return x * np.exp(x)


def signed(x: Any) -> Any:
    if x > 1:
        return x**3
    return -x


@pytest.mark.parametrize(
    ("function", "arguments", "lines"),
    [
        (lambda x, y: x * (-x - y), (1.0, 2.0), [r"f &= x \, \left(-x - y\right)"]),
        (
            lambda x, y: (-x - y) * (y - x) / (-x - 3),
            (1.0, 2.0),
            [r"f &= \frac{\left(-x - y\right) \, \left(y - x\right)}{-x - 3}"],
        ),
        (lambda d_max, x: d_max * x, (1.0, 2.0), [r"f &= \mathit{d\_max} \, x"]),
        (lambda x: 1e-5 * x + 2.0 * 3**x, (1.0,), [r"f &= 10^{-5} \, x + 2 \cdot 3^{x}"]),
        (
            doubled_twice,
            (1.0,),
            [
                r"x_{2} &= 2 \, x \\",
                r"x_{3} &= \sin\left(x_{2}\right) \, x_{2} \\",
                r"\mathit{doubled\_twice} &= x_{3} \, \exp\left(x_{3}\right)",
            ],
        ),
        (signed, (2.0,), [r"\mathit{signed} &= x^{3} \\", r"& \text{if } x > 1"]),
        (
            signed,
            (0.5,),
            [r"\mathit{signed} &= -x \\", r"& \text{if } \lnot \left(x > 1\right)"],
        ),
    ],
)
def test_formulas_have_one_meaning(function: Any, arguments: Any, lines: list[str]) -> None:
    assert gt.source(function, *arguments).latex().splitlines()[1:-1] == lines
