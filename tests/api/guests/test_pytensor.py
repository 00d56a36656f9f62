"""`gt.pytensor`: NumPy code as an operation of PyTensor's graphs, compared with PyTensor's own derivatives."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from tests.api.guests.pages import check_programs
from tests.support.ways import expect

pytensor = pytest.importorskip("pytensor", reason="an optional extra: pip install 'gradtape[pytensor]'")
pt = pytest.importorskip("pytensor.tensor", reason="comes with PyTensor")
pytestmark = pytest.mark.filterwarnings("ignore:Numba will use object mode:UserWarning")

VALUES = [np.array([[0.3, -1.2, 0.7], [0.5, 0.1, -0.4]]), np.array([1.1, 0.4])]


def numpys(params: Any, power: int = 2) -> Any:
    """Return several results, some of them no arrays with a derivative, of a function with writes in a loop."""
    sums, total = np.zeros(3), 0.0
    for i in range(3):
        total = total + np.sin(params["w"][0, i]) * params["b"][1] ** power
        sums[i] = total
    return {
        "sums": sums,
        "outer": np.outer(params["w"].T @ params["b"], params["b"]),
        "order": np.argsort(params["b"]),
        "text": "yes",
    }


def pytensors(params: Any) -> Any:
    sums = pt.cumsum(pt.sin(params["w"][0]) * params["b"][1] ** 2)
    return {"sums": sums, "outer": pt.outer(params["w"].T @ params["b"], params["b"])}


@pytest.fixture(params=["known", "unknown"])
def params(request: pytest.FixtureRequest) -> dict[str, Any]:
    shapes = [(2, 3), (2,)] if request.param == "known" else [(None, 3), (None,)]
    return {
        name: pt.tensor(name, dtype="float64", shape=shape) for name, shape in zip("wb", shapes, strict=True)
    }


def number(results: Any) -> Any:
    return pt.sum(results["sums"] ** 2) + pt.sum(pt.exp(results["outer"]))


def computed(inputs: Any, outputs: Any, *values: Any) -> Any:
    mode = pytensor.compile.mode.Mode(linker="py", optimizer="fast_run")
    return pytensor.function(inputs, outputs, mode=mode, on_unused_input="ignore")(*values)


def test_values_and_containers(params: Any) -> None:
    results = gt.pytensor(numpys)(params)
    assert results.pop("text") == "yes"
    order = computed(list(params.values()), results.pop("order"), *VALUES)
    assert order.tolist() == [1, 0] and order.dtype == np.int64
    theirs = pytensors(params)
    for name, result in results.items():
        own, other, *shape = computed(list(params.values()), [result, theirs[name], *result.shape], *VALUES)
        np.testing.assert_allclose(own, other)
        assert tuple(shape) == other.shape
    third = gt.pytensor(numpys)(params, power=3)["sums"]
    np.testing.assert_allclose(
        computed(list(params.values()), third, *VALUES),
        numpys(dict(zip("wb", VALUES, strict=True)), 3)["sums"],
    )


@pytest.mark.parametrize(
    "derivative",
    [
        lambda f, p: pytensor.grad(f, list(p.values())),
        lambda f, p: pytensor.gradient.hessian(f, p["b"]),
        lambda f, p: pytensor.grad(pytensor.grad(pytensor.grad(f, p["b"])[0], p["b"])[1], p["w"]),
        lambda f, p: pytensor.gradient.Rop(f, p["b"], p["w"][:, 0]),
        lambda f, p: pytensor.gradient.Rop(pytensor.grad(f, p["b"]), p["b"], p["b"]),
        lambda f, p: pytensor.grad(f, p["w"])[0].shape,
    ],
    ids=["grad", "hessian", "third", "Rop", "hvp", "shape"],
)
def test_derivatives_agree(params: Any, derivative: Callable[..., Any]) -> None:
    own, other = (derivative(number(f(params)), params) for f in (gt.pytensor(numpys), pytensors))
    own, other = (list(d) if isinstance(d, list | tuple) else [d] for d in (own, other))
    found = computed(list(params.values()), [*own, *other], *VALUES)
    for mine, theirs in zip(found[: len(own)], found[len(own) :], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10)


def test_forward_mode_by_its_own_operator(params: Any) -> None:
    results, inputs = gt.pytensor(numpys)(params), list(params.values())
    outs = [results["sums"], results["outer"]]
    pushed, expected = (
        pytensor.gradient.Rop(outs, params["b"], params["w"][:, 0], use_op_rop_implementation=own)
        for own in (True, False)
    )
    assert (
        sum("pushforward" in str(node.op) for node in pytensor.graph.traversal.io_toposort(inputs, pushed))
        == 1
    )
    found = computed(inputs, [*pushed, *expected], *VALUES)
    for mine, theirs in zip(found[:2], found[2:], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10)


def test_batches() -> None:
    x, y = pt.vector("x"), pt.vector("y")
    result = gt.pytensor(lambda x, y: np.sum(np.sin(x)) * y)(x, y)
    slope = pytensor.grad(result.sum(), x)
    xs, ys = pt.tensor("xs", shape=(None, 1, None)), pt.tensor("ys", shape=(4, None))
    graph = pytensor.graph.replace.vectorize_graph([result, slope], {x: xs, y: ys})
    given = np.arange(6.0).reshape(3, 1, 2), np.arange(8.0).reshape(4, 2)
    values, slopes = computed([xs, ys], graph, *given)
    np.testing.assert_allclose(values, np.sum(np.sin(given[0]), -1)[..., None] * given[1])
    np.testing.assert_allclose(slopes, np.cos(given[0]) * given[1].sum(-1)[:, None])


def test_only_what_is_connected_has_a_gradient() -> None:
    k, x = pt.lscalar("k"), pt.vector("x", shape=(3,))
    result = gt.pytensor(lambda k, x: (x**k, k + 1))(k, x)
    slope = pytensor.grad(result[0].sum(), x)
    np.testing.assert_allclose(computed([k, x], slope, 3, np.ones(3)), 3 * np.ones(3))
    with pytest.raises(pytensor.gradient.DisconnectedInputError):
        pytensor.grad(result[0].sum(), k)
    data = gt.pytensor(np.dot)(x, np.arange(3.0))
    node = pytensor.grad(data, x).owner
    assert len(node.outputs) == 1  # not that of the constant


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128", "int8", "bool"])
@pytest.mark.parametrize("shape", [(), (2, 0)])
def test_dtypes_and_shapes_stay(dtype: str, shape: tuple[int, ...]) -> None:
    x = pt.tensor("x", dtype=dtype, shape=shape)
    result = gt.pytensor(lambda x: x[...])(x)
    value = computed([x], result, np.ones(shape, dtype))
    assert value.dtype == result.type.dtype == dtype and value.shape == result.type.shape == shape


def test_graphs_are_merged_and_pickled() -> None:
    x = pt.vector("x")
    f = gt.pytensor(np.sum)
    function = pytensor.function(
        [x], f(x) + f(x), mode=pytensor.compile.mode.Mode(linker="py", optimizer="fast_run")
    )
    assert sum("sum" in str(node.op) for node in function.maker.fgraph.apply_nodes) == 1
    again = pickle.loads(pickle.dumps(f(x).owner.op))
    assert again.operator.program(np.arange(3.0))[0] == 3


def test_in_the_default_mode() -> None:
    x = pt.vector("x")
    result = gt.pytensor(lambda x: np.sum(np.sin(x)))(x)
    function = pytensor.function([x], [result, pytensor.grad(result, x)])
    for size in (3, 5):
        value, slope = function(np.ones(size))
        np.testing.assert_allclose(value, size * np.sin(1))
        np.testing.assert_allclose(slope, np.cos(np.ones(size)))


def test_errors() -> None:
    x, y = pt.vector("x"), pt.vector("y", shape=(4,))
    expect(gt.errors.ShapeError, lambda: gt.pytensor(np.dot)(pt.vector("z", shape=(3,)), y), "(3,)", "(4,)")
    reshaped = gt.pytensor(lambda x: x.reshape(7, 11))
    expect(gt.errors.ArgumentError, lambda: reshaped(x), "shapes (None,)", "pt.specify_shape")
    expect(gt.errors.ArgumentError, lambda: gt.pytensor(3), "pytensor got an int")
    with pytest.raises(Exception, match="not positive definite"):
        computed([], gt.pytensor(np.linalg.cholesky)(pt.constant(-np.eye(2))))


def test_the_page_prints_what_it_says() -> None:
    pytest.importorskip("pymc", reason="no part of the test environment: pip install pymc")
    check_programs("pymc")
