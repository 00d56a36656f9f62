"""gt.plot draws what it says."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.testing import assert_allclose

import gradtape as gt
from gradtape.api import plot
from gradtape.errors import ArgumentError, ShapeError


@pytest.fixture(autouse=True)
def closed() -> Any:
    yield
    plt.close("all")


def test_jacobian_of_nested_arguments_and_results() -> None:
    def f(x: Any, p: Any) -> Any:
        return {"y": x**2 * p["a"], "z": np.sum(x) * p["b"]}

    x, p = np.array([1.0, 2.0, 3.0]), {"a": 2.0, "b": np.array([1.0, -1.0])}
    _, ax = plt.subplots()
    assert gt.plot.jacobian(f, x, p, ax=ax) is ax
    image = np.asarray(ax.images[0].get_array())
    expected = np.zeros((5, 6))
    expected[:3, :3] = np.diag(4 * x)
    expected[:3, 3] = x**2
    expected[3, :3], expected[4, :3] = 1, -1
    expected[3, 4] = expected[4, 5] = 6
    assert_allclose(image, expected)
    assert ax.images[0].get_clim() == (-12.0, 12.0)
    assert ax.get_title() == "Jacobian, 5 x 6"


def test_elements_that_are_not_finite_are_marked() -> None:
    with np.errstate(all="ignore"):
        ax = gt.plot.jacobian(np.sqrt, np.array([0.0, 1.0]))
    assert ax.lines[0].get_xydata().tolist() == [[0.0, 0.0]]


def test_sparsity() -> None:
    hessian, x = gt.sparse_hessian(lambda x: np.sum(x[1:] * x[:-1] ** 2)), np.ones(5)
    ax = gt.plot.sparsity(hessian, x)
    assert len(ax.collections[0].get_offsets()) == hessian.plan(x).nnz >= 12


def test_gradient_flow_says_what_is_wrong() -> None:
    gradients = {
        "a": np.array([1e-3, -3e-3]),
        "b": None,
        "c": np.zeros(2),
        "d": np.array([1.0, np.nan, np.inf]),
    }
    ax = gt.plot.gradient_flow(gradients)
    assert_allclose([bar.get_width() for bar in ax.patches], [2e-3, 1.0])
    assert [text.get_text() for text in ax.texts] == ["None", "zero", "2 of 3 not finite"]
    assert ax.get_xscale() == "log"
    assert [label.get_text() for label in gt.plot.gradient_flow(np.ones(2)).get_yticklabels()] == ["gradient"]


def test_convergence() -> None:
    ax = gt.plot.convergence({"a": [3.0, 2.0, 1.0], "b": [2.0, np.nan, 1.5]})
    assert_allclose(ax.lines[0].get_ydata(), [2.0, 1.0, np.nan])
    assert_allclose(ax.lines[1].get_ydata(), [1.0, np.nan, 0.5])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]
    assert_allclose(gt.plot.convergence([3.0, 2.0], best=-1.0).lines[0].get_ydata(), [4.0, 3.0])


def test_speed_measures_each_function() -> None:
    calls = {"a": 0, "b": 0}

    def of(name: str) -> Any:
        def f(x: Any) -> Any:
            calls[name] += 1
            return np.sum(x)

        return f

    ax = gt.plot.speed({"a": of("a"), "b": of("b")}, np.ones(3), repeat=2)
    assert min(calls.values()) >= 4 and len(ax.patches) == 2
    first, second = (text.get_text() for text in ax.texts)
    assert first.endswith("s") and second.endswith(" x")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(2.5, "2.5 s"), (0.02, "20 ms"), (1.234e-6, "1.23 us"), (7.2e-8, "72 ns"), (5e-10, "0.5 ns")],
)
def test_times_are_readable(seconds: float, said: str) -> None:
    assert plot._readable(seconds) == said


def test_ratios_have_no_exponent() -> None:
    assert [plot._digits(number) for number in (0.0123, 6.41, 12345.6)] == ["0.0123", "6.41", "12,346"]


def test_wrong_arguments() -> None:
    with pytest.raises(ArgumentError, match=r"gt\.plot\.jacobian got an ndarray"):
        gt.plot.jacobian(np.ones(3))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="no arguments of the function"):
        gt.plot.jacobian(np.sin)
    with pytest.raises(ShapeError, match=r"values of 'a' have the shape \(\)"):
        gt.plot.convergence({"a": 1.0})
    with pytest.raises(ArgumentError, match=r"functions is \{\}"):
        gt.plot.speed({})


def test_without_matplotlib_the_remedy_is_named() -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None; import gradtape as gt, numpy as np;"
        "gt.plot.jacobian(np.sin, np.ones(2))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ImportError: gt.plot draws with Matplotlib, which is not installed" in done.stderr


def test_elements_of_a_pattern_are_as_large_as_fits() -> None:
    few = gt.plot.sparsity(lambda x: x[1:] * x[:-1], np.ones(5)).collections[0]
    many = gt.plot.sparsity(lambda x: x[1:] * x[:-1], np.ones(50)).collections[0]
    assert few.get_sizes()[0] > 50 * many.get_sizes()[0] > 0
