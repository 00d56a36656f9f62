"""Functions that transforms have made arrive in other processes, with their object code."""

from __future__ import annotations

import copy
import functools
import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import cloudpickle
import joblib
import numpy as np
import optree
import pytest

import gradtape as gt
from gradtape.runtime.compile.cache import Shipment, receive, ship
from gradtape.runtime.compile.disk import unpack

X = np.array([0.5, -1.0, 2.0])


def energy(x: Any, scale: Any = 1.0) -> Any:
    return np.sum(np.sin(scale * x) ** 2)


@gt.jit
def decorated(x: Any) -> Any:
    return np.sum(x**3)


@gt.grad
def decorated_by_grad(x: Any) -> Any:
    return np.sum(x**3)


@gt.sparse_jacobian
def decorated_by_sparse_jacobian(x: Any) -> Any:
    return x**3


@gt.checkpoint
def decorated_by_checkpoint(x: Any) -> Any:
    return np.sum(x**3)


def squares(x: Any) -> Any:
    return np.sum(x**2)


def tripled(x: Any) -> Any:
    return np.sum(x**2), lambda upstream: 3.0 * upstream * x


@gt.custom_gradient
def decorated_by_custom_gradient(x: Any) -> Any:
    return tripled(x)


@gt.custom_vjp
def decorated_by_custom_vjp(x: Any) -> Any:
    return np.sum(x**2)


def forward(x: Any) -> Any:
    return np.sum(x**2), x


def backward(x: Any, cotangent: Any) -> Any:
    return (3.0 * cotangent * x,)


def quintupled(tangent: Any, output: Any, x: Any) -> Any:
    return 5.0 * np.sum(tangent * x)


decorated_by_custom_vjp.defvjp(forward, backward)
inner_rules = gt.custom_vjp(squares)
inner_rules.defvjp(forward, backward)
inner_tangents = gt.custom_jvp(squares)
inner_tangents.defjvps(quintupled)


class Model:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    @gt.jit
    def loss(self, x: Any) -> Any:
        return self.scale * np.sum(x**2)

    @functools.partial(gt.grad, argnums=1)
    def slope(self, x: Any) -> Any:
        return self.scale * np.sum(x**2)

    def __call__(self, x: Any) -> Any:
        return self.scale * np.sum(x**2)


def halved(x: Any, p: Any) -> Any:
    return np.cos(p * x)


def iterated(x: Any, p: Any) -> Any:
    for _ in range(60):
        x = np.cos(p * x)
    return x


slope = gt.grad(energy)
TRANSFORMS: dict[str, Callable[[], Any]] = {
    "jit": lambda: gt.jit(energy),
    "static": lambda: gt.jit(static_argnums=1)(energy),
    "grad": lambda: gt.grad(energy),
    "value_and_grad": lambda: gt.value_and_grad(energy, argnums=0),
    "jacobian": lambda: gt.jacobian(energy, mode="fwd"),
    "jacfwd": lambda: gt.jacfwd(energy),
    "jacrev": lambda: gt.jacrev(energy),
    "hessian": lambda: gt.hessian(energy),
    "vmap": lambda: gt.vmap(energy),
    "nested": lambda: gt.jit(gt.grad(gt.jit(energy))),
    "of a decorated function": lambda: gt.grad(decorated),
    "by name": lambda: decorated,
    "by a name of another function": lambda: slope,
    "bound method": lambda: Model(2.0).loss,
    "bound gradient": lambda: Model(2.0).slope,
    "of a bound method": lambda: gt.grad(Model(2.0).loss),
    "of a partial": lambda: gt.jit(functools.partial(energy, scale=2.0)),
    "of an object": lambda: gt.grad(Model(2.0)),
    "partial of a function": lambda: functools.partial(slope, scale=2.0),
    "sparse_jacobian": lambda: gt.sparse_jacobian(np.sin),
    "sparse_hessian": lambda: gt.sparse_hessian(energy),
    "checkpoint": lambda: gt.grad(gt.checkpoint(energy)),
    "recompute_grad by name": lambda: decorated_by_checkpoint,
    "custom_gradient": lambda: gt.grad(gt.custom_gradient(tripled)),
    "grad_pass_through": lambda: gt.jacobian(gt.grad_pass_through(np.floor)),
    "custom_vjp": lambda: gt.grad(inner_rules),
    "custom_jvp": lambda: gt.grad(inner_tangents),
    "custom_fixed_point": lambda: functools.partial(gt.custom_fixed_point(halved, iterated), 0.5 * X),
}


def dense(result: Any) -> Any:
    return result.toarray() if hasattr(result, "toarray") else result


@pytest.mark.parametrize("name", TRANSFORMS)
def test_functions_are_pickled(name: str) -> None:
    function = TRANSFORMS[name]()
    expected = function(X)
    arrived = pickle.loads(pickle.dumps(function))
    np.testing.assert_equal(dense(arrived(X)), dense(expected))
    if hasattr(function, "__name__"):
        assert arrived.__name__ == function.__name__
    assert pickle.loads(pickle.dumps(arrived))(X) is not None


def test_names_are_looked_up_and_calls_are_repeated() -> None:
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    assert pickle.loads(pickle.dumps(Model.loss)) is Model.loss
    assert pickle.loads(pickle.dumps(slope)) is not slope
    for name, function in globals().items():
        if name.startswith("decorated_by_"):
            assert pickle.loads(pickle.dumps(function)) is function
            assert copy.deepcopy([function])[0] is function
    np.testing.assert_array_equal(gt.grad(pickle.loads(pickle.dumps(inner_rules)))(X), 3.0 * X)
    np.testing.assert_array_equal(gt.grad(pickle.loads(pickle.dumps(inner_tangents)))(X), 5.0 * X)


def test_linear_maps_and_compiled_functions_are_pickled_with_their_numbers() -> None:
    weight = gt.Variable(2.0)
    _, pullback = gt.vjp(lambda x: {"y": weight * np.sin(x), "n": x[:2]}, X)
    _, push = gt.linearize(lambda x, s: weight * np.cos(x) * s, X, 3.0)
    transpose = gt.linear_transpose(lambda x: np.cumsum(x) * weight.numpy(), X)
    compiled = gt.jit(energy).lower(X, scale=2.0).compile()
    cases = [
        (pullback, ({"y": X, "n": X[:2]},)),
        (push, (X, 0.5)),
        (transpose, (X,)),
    ]
    arrived = [pickle.loads(pickle.dumps(function)) for function, _ in cases]
    weight.assign(7.0)
    for (function, args), there in zip(cases, arrived, strict=True):
        np.testing.assert_allclose(
            np.concatenate([np.ravel(leaf) for leaf in optree.tree_leaves(there(*args))]),
            np.concatenate([np.ravel(leaf) for leaf in optree.tree_leaves(function(*args))]),
            rtol=1e-14,
        )
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(compiled))(X, scale=2.0), compiled(X, scale=2.0))
    with pytest.raises(pickle.PicklingError, match=r"compile\(\) returns"):
        pickle.dumps(gt.jit(energy).lower(X))


def test_modules_that_are_pickled_by_value() -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        for function in (decorated, decorated_by_grad, decorated_by_custom_vjp):
            arrived = pickle.loads(cloudpickle.dumps(function))
            assert arrived is not function
            np.testing.assert_array_equal(arrived(X), function(X))
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def test_copies_are_the_function_itself() -> None:
    assert copy.copy(slope) is slope and copy.deepcopy([slope])[0] is slope


def test_lambdas_need_cloudpickle() -> None:
    scale = 3.0
    function = gt.grad(lambda x: scale * np.sum(x**2))
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(function)
    np.testing.assert_array_equal(pickle.loads(cloudpickle.dumps(function))(X), 6.0 * X)


def test_what_no_transform_has_made_is_refused() -> None:
    inner = gt.grad(energy).with_function(energy)
    with pytest.raises(pickle.PicklingError, match="neither found by its name"):
        pickle.dumps(inner)


SENDER = """
import sys, cloudpickle, numpy as np, gradtape as gt

@gt.jit
def energy(x, steps=3):
    for _ in range(steps):
        x = np.sin(x) + x
    return np.sum(x ** 2)

slope = gt.grad(energy)
batched = gt.vmap(lambda x: x * energy(x))
x = np.linspace(0.0, 1.0, 5)
expected = energy(x), slope(x), batched(np.ones((2, 3)))
with open(sys.argv[1], "wb") as file:
    cloudpickle.dump((energy, slope, batched, expected), file)
"""

RECEIVER = """
import sys, pickle, numpy as np, gradtape as gt

with open(sys.argv[1], "rb") as file:
    energy, slope, batched, expected = pickle.load(file)
x = np.linspace(0.0, 1.0, 5)
for found, wanted in zip((energy(x), slope(x), batched(np.ones((2, 3)))), expected, strict=True):
    np.testing.assert_array_equal(found, wanted)
for function in energy, slope, batched:
    for made in function.site.specialisations():
        assert made.program.kernel.origin == "disk", made.program.kernel.origin
print("the same")
"""


@pytest.mark.parametrize("has_disk_cache", [True, False])
def test_functions_of_scripts_arrive_compiled(tmp_path: Path, has_disk_cache: bool) -> None:
    source = str(Path(gt.__file__).parents[1])
    for part, text in ("sender", SENDER), ("receiver", RECEIVER):
        (tmp_path / f"{part}.py").write_text(text)
        settings = dict(os.environ, PYTHONPATH=source, GRADTAPE_CACHE_DIR=str(tmp_path / part))
        if not has_disk_cache:
            settings["GRADTAPE_DISABLE_DISK_CACHE"] = "1"
        done = subprocess.run(
            [sys.executable, str(tmp_path / f"{part}.py"), str(tmp_path / "functions.pickle")],
            env=settings,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    assert "the same" in done.stdout


def test_only_right_code_for_this_processor_is_kept(tmp_path: Path) -> None:
    with gt.config.override(cache_dir=str(tmp_path / "sender"), disk_cache=True):
        function = gt.jit(lambda x: np.sum(np.cos(x) * 0.123456789))
        function(X)
        (made,) = function.site.specialisations()
        shipment = ship(made.program.kernel.keys)
    if not shipment.files:  # the kernel was in memory
        pytest.fail("the kernel is not on the disk")
    (key,) = shipment.files
    assert unpack(shipment.files[key], key) is not None
    with gt.config.override(cache_dir=str(tmp_path / "receiver"), disk_cache=True):
        assert receive(shipment._replace(environment="another processor")) == 0
        broken = bytearray(shipment.files[key])
        broken[-40] ^= 1
        assert receive(Shipment(shipment.environment, {key: bytes(broken)})) == 0
        assert receive(Shipment(shipment.environment, {"0" * 64: shipment.files[key]})) == 0
        assert not [*(tmp_path / "receiver").rglob("*.gto")]
        assert receive(shipment) == 1
        assert len([*(tmp_path / "receiver").rglob("*.gto")]) == 1


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_each_kind_compute_gradients(method: str) -> None:
    with multiprocessing.get_context(method).Pool(1) as pool:
        found = pool.map(slope, [X, 2.0 * X])
    np.testing.assert_allclose(found, [slope(X), slope(2.0 * X)], rtol=1e-15)


def test_executors_compute_gradients() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("forkserver")) as executor:
        found = executor.submit(gt.value_and_grad(energy), X).result()
    np.testing.assert_equal(found, gt.value_and_grad(energy)(X))


def test_joblib_sends_functions() -> None:
    function = gt.grad(lambda x: np.sum(x**4))
    found = joblib.Parallel(n_jobs=2)(joblib.delayed(function)(scale * X) for scale in (1.0, 2.0))
    np.testing.assert_allclose(found, [4.0 * X**3, 32.0 * X**3], rtol=1e-14)


def test_wrapped_functions_print_as_what_they_are() -> None:
    def loss(x: Any) -> Any:
        return np.sum(x**2)

    assert repr(gt.custom_gradient(loss)).endswith("custom_gradient of loss>")
    assert repr(gt.recompute_grad(loss)).endswith("recompute_grad of loss>")
