"""One table of functions in every framework that is installed: values against NumPy, derivatives against gradtape's own."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from tests.api.guests.frameworks import FRAMEWORKS, Framework
from tests.api.guests.functions import FUNCTIONS, ONE_BY_ONE, V, W, loop_with_writes

pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Numba will use object mode:UserWarning"),
]

IN_FRAMEWORKS = pytest.mark.parametrize(
    "framework",
    [
        pytest.param(
            name,
            marks=pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"pip install {name}"),
        )
        for name in FRAMEWORKS
    ],
    indirect=True,
)
CASES = pytest.mark.parametrize(("function", "point"), FUNCTIONS.values(), ids=FUNCTIONS)


@pytest.fixture
def framework(request: pytest.FixtureRequest) -> Framework:
    return FRAMEWORKS[request.param](request.param)


def same(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


@IN_FRAMEWORKS
@CASES
def test_value(framework: Framework, function: Callable[..., Any], point: Any) -> None:
    same(framework.value(function, point), function(*point))


@IN_FRAMEWORKS
@CASES
def test_first_derivatives(framework: Framework, function: Callable[..., Any], point: Any) -> None:
    expected = gt.grad(function, argnums=tuple(range(len(point))))(*point)
    for mine, theirs in zip(framework.gradient(function, point), expected, strict=True):
        same(mine, theirs)
    tangents = [np.cos(np.arange(x.size)).reshape(x.shape) for x in point]
    same(
        framework.pushed(function, point, tangents),
        sum(np.sum(slope * tangent) for slope, tangent in zip(expected, tangents, strict=True)),
    )


@IN_FRAMEWORKS
@CASES
def test_second_derivatives(framework: Framework, function: Callable[..., Any], point: Any) -> None:
    same(framework.second(function, point), gt.jacfwd(gt.grad(function))(*point))


@IN_FRAMEWORKS
@pytest.mark.parametrize(
    ("function", "point"), [case for name, case in FUNCTIONS.items() if name not in ONE_BY_ONE]
)
def test_batches(framework: Framework, function: Callable[..., Any], point: Any) -> None:
    many = [np.stack([x, 1.1 * x, 0.9 * x]) for x in point]
    values, slopes = gt.jit(function), gt.grad(function)
    same(framework.batch(function, many), [values(*each) for each in zip(*many, strict=True)])
    same(framework.gradients_of_batch(function, many), [slopes(*each) for each in zip(*many, strict=True)])


@IN_FRAMEWORKS
def test_nests_of_results(framework: Framework) -> None:
    def nested(x: Any, y: Any) -> Any:
        return {"b": (x * y, [np.sum(x)]), "a": np.outer(x, y)}

    found, expected = framework.value(nested, (V, W)), nested(V, W)
    assert gt.tree.structure(found) == gt.tree.structure(expected)
    for mine, theirs in zip(gt.tree.leaves(found), gt.tree.leaves(expected), strict=True):
        same(mine, theirs)


@IN_FRAMEWORKS
def test_single_precision(framework: Framework) -> None:
    if not framework.has_singles:
        pytest.skip("all its numbers have 64 bits")
    point = V.astype("f4"), W.astype("f4")
    for mine, theirs in zip(
        framework.gradient(loop_with_writes, point), gt.grad(loop_with_writes, (0, 1))(V, W), strict=True
    ):
        assert mine.dtype == "f4"
        np.testing.assert_allclose(mine, theirs, rtol=1e-4)
    product = framework.value(lambda x, y: (x * 2.0, np.outer(x, y)), point)
    assert [part.dtype for part in product] == ["f4", "f4"]


@IN_FRAMEWORKS
def test_empty_arrays(framework: Framework) -> None:
    empty = np.zeros(0)

    def function(x: Any, y: Any) -> Any:
        return np.sum(x**2) + np.sum(y**2)

    assert framework.value(function, (empty, V)) == function(empty, V)
    slopes = framework.gradient(function, (empty, V))
    assert np.size(slopes[0]) == 0
    same(slopes[1], 2 * V)
    assert np.size(framework.value(lambda x: 2 * x, (empty,))) == 0


@IN_FRAMEWORKS
def test_what_does_not_depend_on_an_argument(framework: Framework) -> None:
    def function(x: Any, y: Any) -> Any:
        return np.sum(y) * 3.0

    slopes = framework.gradient(function, (V, W))
    same(slopes[0], np.zeros(3))
    same(slopes[1], np.full(3, 3.0))
    same(framework.second(lambda x: np.sum(x) * 2.0, (V,)), np.zeros((3, 3)))


@IN_FRAMEWORKS
def test_writes_to_arguments_stay_inside(framework: Framework) -> None:
    def function(x: Any) -> Any:
        x = x.copy()
        x[0] = 2.0 * x[1]
        return np.sum(x**2)

    point = V.copy()
    same(framework.gradient(function, (point,))[0], [0.0, 10 * V[1], 2 * V[2]])
    assert (point == V).all()


@IN_FRAMEWORKS
def test_threads(framework: Framework) -> None:
    points = [(V * k, W) for k in range(1, 9)]
    slope = gt.grad(loop_with_writes)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda point: framework.gradient(loop_with_writes, point), points))
    for mine, point in zip(found, points, strict=True):
        same(mine[0], slope(*point))
