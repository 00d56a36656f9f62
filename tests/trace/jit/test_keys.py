"""What a trace reads is in its key: calls that differ in one thing only give what a fresh function, NumPy and a fresh process give."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.api.transforms import sharing
from tests.trace.jit.key_cases import CASES, RANDOM, Keywords, Settings, X, result_of, weigh

EVERY = {**CASES, **RANDOM}

pytestmark = pytest.mark.filterwarnings("ignore::gradtape.errors.SideEffectWarning")


@pytest.mark.parametrize("name", EVERY)
def test_a_call_gets_what_numpy_computes_in_its_state(name: str) -> None:
    function, first, second = EVERY[name]()
    states = first, second, first, second
    wanted = [float(result_of(function, state())) for state in states]
    compiled = gt.jit(function)
    found = [float(result_of(compiled, state())) for state in states]
    np.testing.assert_allclose(found, wanted, rtol=1e-6, err_msg=name)
    if name in CASES:
        assert wanted[0] != wanted[1], "a case whose states give the same shows nothing"


@pytest.mark.parametrize("name", EVERY)
def test_a_gradient_is_that_of_a_fresh_function(name: str) -> None:
    function, first, second = EVERY[name]()
    kept = gt.value_and_grad(function)
    for state in (first, second, first, second):
        value, gradient = result_of(kept, state())
        sharing.clear()
        fresh_value, fresh = result_of(gt.value_and_grad(function), state())
        assert float(value) == pytest.approx(float(result_of(function, state())), rel=1e-6)
        assert (repr(value), repr(gradient)) == (repr(fresh_value), repr(fresh))


@pytest.mark.parametrize("name", EVERY)
def test_transforms_that_are_made_at_each_call_give_what_numpy_computes(name: str) -> None:
    function, first, second = EVERY[name]()
    for state in (first, first, first, second, first, second, second):
        wanted = float(result_of(function, state()))
        value, _ = result_of(gt.value_and_grad(function), state())
        assert float(value) == pytest.approx(wanted, rel=1e-6)
        assert float(result_of(gt.jit(function), state())) == pytest.approx(wanted, rel=1e-6)


def test_calls_of_all_random_cases_share_one_program() -> None:
    for name, make in RANDOM.items():
        function, *states = make()
        for state in states:
            wanted = float(result_of(function, state()))
            assert float(result_of(gt.jit(function), state())) == pytest.approx(wanted, rel=1e-6), name


@pytest.mark.parametrize(
    "first, second",
    [
        ((1,), (True,)),
        ((1,), (1.0,)),
        ((0.0,), (-0.0,)),
        (((1, 0.0), "k"), ((1, -0.0), "k")),
        (frozenset({1}), frozenset({True})),
        ("1", b"1"),
        (True, None),
        (Decimal("1.0"), Decimal("1.00")),
        (datetime(2020, 1, 1, 12, tzinfo=UTC), datetime(2020, 1, 1, 13, tzinfo=timezone(timedelta(hours=1)))),
    ],
    ids=repr,
)
def test_static_arguments_that_are_equal_but_not_the_same(first: Any, second: Any) -> None:
    def function(x: Any, static: Any) -> Any:
        return x * sum(repr(static).encode())

    compiled = gt.jit(function, static_argnums=1)
    for static in (first, second, first, second, second, first):
        assert float(compiled(2.0, static)) == function(2.0, static)
    assert function(2.0, first) != function(2.0, second)


@pytest.mark.parametrize("jit", [True, False])
def test_a_fresh_process_gives_the_same(jit: bool) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.trace.jit.key_cases"],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
        cwd=Path(__file__).parents[3],
        env={**_environment(), "GRADTAPE_JIT": str(int(jit))},
    )
    fresh = json.loads(run.stdout)
    assert fresh.keys() == EVERY.keys()
    for name, make in EVERY.items():
        function, first, second = make()
        compiled = gt.jit(function)
        result_of(compiled, first())
        assert float(result_of(compiled, second())) == pytest.approx(fresh[name], rel=1e-6), name


def _environment() -> dict[str, str]:
    import os

    return {name: value for name, value in os.environ.items() if name != "GRADTAPE_KEY_CASE"}


ORDERS = {name: CASES[name] for name in CASES if name.startswith("order_of_a_dict")}

TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "grad": gt.grad,
    "jacobian": gt.jacobian,
    "hessian": gt.hessian,
    "interpreted": lambda f: _interpreted(gt.grad(f)),
    "recorded": lambda f: _recorded(gt.jit(f)),
}


def _interpreted(function: Any) -> Any:
    def call(*args: Any) -> Any:
        with gt.config.override(jit=False):
            return function(*args)

    return call


def _recorded(function: Any) -> Any:
    """Return the gradient of a jitted function by a tape."""

    def call(*args: Any) -> Any:
        with gt.GradientTape() as tape:
            watched = tape.watch(args[0])
            y = function(watched, *args[1:])
        return tape.gradient(y, watched)

    return call


@pytest.mark.parametrize("way", TRANSFORMS)
@pytest.mark.parametrize("name", ["order_of_a_dict", "order_of_a_defaultdict", "order_of_an_ordered_dict"])
def test_every_transform_keeps_the_order_of_keys(name: str, way: str) -> None:
    function, first, second = CASES[name]()
    transform = TRANSFORMS[way]
    kept = transform(function)
    for state in (first, second, first):
        arguments = state()
        found, fresh = kept(*arguments), transform(function)(*arguments)
        assert list(found) == list(arguments[0])
        assert repr(found) == repr(fresh)


def test_vmap_and_results_keep_the_order_of_keys() -> None:
    mapped = gt.vmap(lambda p: {key: weigh(p.values()) for key in p})
    for table in ({"w": X, "b": 2 * X}, {"b": 2 * X, "w": X}):
        found = mapped(table)
        assert list(found) == list(table)
        np.testing.assert_allclose(found["w"], [weigh([p, q]) for p, q in zip(*table.values(), strict=True)])
    doubled = gt.jit(lambda p: {key: 2.0 * item for key, item in p.items()})
    for names in ("ab", "ba", "ab", "ba"):
        assert list(doubled(dict.fromkeys(names, X))) == list(names)


def test_hessians_vector_products_and_pullbacks_keep_the_order_of_keys() -> None:
    def f(p: Any) -> Any:
        return weigh([part**3 for part in p.values()])

    one, other = {"w": X, "b": X[:1]}, {"b": X[:1], "w": X}
    for p in (one, other, one):
        product = gt.hvp(f, (p,), (p,))
        value, pull = gt.vjp(f, p)
        (gradient,) = pull(1.0)
        assert list(gradient) == list(p)
        assert float(value) == pytest.approx(float(f(p)))
        fresh = gt.grad(lambda q: f(q))(p)
        np.testing.assert_allclose(gradient["w"], fresh["w"])
        assert repr(product) == repr(gt.hvp(lambda q: f(q), (p,), (p,)))


def test_nested_arguments_stay_native_in_both_orders() -> None:
    f = gt.value_and_grad(lambda p: weigh([part**2 for part in p.values()]))
    one, other = {"w": X, "b": X[:1]}, {"b": X[:1], "w": X}
    for p in (one, other) * 3:
        value, gradient = f(p)
        assert float(value) == pytest.approx(float(weigh([part**2 for part in p.values()])))
        assert list(gradient) == list(p)
    assert f.site.traces == 2 and len(f.site.nested) == 2


def test_results_that_are_constants_leave_the_others_to_machine_code() -> None:
    table, label = np.arange(3.0), object()
    f = gt.jit(lambda x, k: {"y": x * k, "rest": [label, table, None, "text", x + k], "n": 3})
    site = f.site
    for _ in range(2):
        made = f(X, 2.0)
    answers = []
    site.run_op_by_op = lambda *_, **__: pytest.fail("the call is not native")
    compute, site._computed = site._computed, lambda *args: answers.append(args) or compute(*args)
    made["rest"][1][:] = 7.0
    for k in (2.0, 3.0):
        made = f(X, k)
        assert list(made) == ["y", "rest", "n"] and made["n"] == 3
        np.testing.assert_array_equal(made["y"], X * k)
        np.testing.assert_array_equal(made["rest"][4], X + k)
        assert made["rest"][0] is label and made["rest"][2] is None and made["rest"][3] == "text"
        np.testing.assert_array_equal(made["rest"][1], [0.0, 1.0, 2.0])
    assert not answers and site.traces == 1
    np.testing.assert_array_equal(f(np.ones(2), 2.0)["y"], [2.0, 2.0])


@pytest.mark.parametrize(
    "kind",
    [Settings, type("Items", (list,), {}), type("Fixed", (tuple,), {}), type("Ordered", (dict,), {})],
)
def test_subclasses_of_containers_are_containers(kind: Any) -> None:
    given = kind({"w": X, "b": 2.0}) if issubclass(kind, dict) else kind([X, 2.0])

    def parts(p: Any) -> list[Any]:
        assert type(p) is kind
        return list(p.values()) if issubclass(kind, dict) else list(p)

    def f(p: Any) -> Any:
        first, second = parts(p)
        return np.sum(first**2) * second

    gradient = gt.grad(f)(given)
    assert type(gradient) is kind
    np.testing.assert_allclose(parts(gradient)[0], 4.0 * X)
    np.testing.assert_allclose(gt.jit(lambda p: p)(given)["w" if issubclass(kind, dict) else 0], X)


def test_keywords_are_read_in_the_order_of_the_call() -> None:
    f = gt.grad(lambda x, **rest: np.sum(x) * weigh(rest.values()))
    for rest in (Keywords(a=1.0, b=2.0), Keywords(b=2.0, a=1.0)):
        np.testing.assert_allclose(f(X, **rest), np.full(3, weigh(rest.values())))


def test_an_exported_function_refuses_another_order(tmp_path: Path) -> None:
    def f(p: Any) -> Any:
        return weigh(p.values())

    one, other = {"w": X, "b": 3.0}, {"b": 3.0, "w": X}
    compiled = gt.jit(f).lower(one).compile()
    gt.export(gt.jit(f), one, path=tmp_path / "f.gradtape")
    loaded = gt.load(tmp_path / "f.gradtape")
    for function in (compiled, loaded):
        assert float(function(one)) == float(f(one))
        with pytest.raises(gt.errors.StructureError, match="keys are in another order"):
            function(other)


def test_python_numbers_are_python_numbers_to_isinstance() -> None:
    def kinds(x: Any) -> tuple[bool, ...]:
        return tuple([isinstance(x, kind) for kind in (float, int, complex, np.floating, np.ndarray)])

    def seen(x: Any) -> Any:
        found.append([kinds(x), kinds(x * 2), kinds(np.sin(x)), kinds(np.sum(x)), kinds(x + x)])
        return np.sum(x) * 1.0

    for given in (2.0, 3, 1j, np.float64(2.0), np.array(2.0), X):
        for transform in (gt.jit, gt.grad, lambda f: _interpreted(gt.jit(f))):
            if transform is gt.grad and not isinstance(given, float | np.ndarray):
                continue
            found: list[Any] = []
            transform(seen)(given)
            seen(given)
            assert all(each == found[-1] for each in found), (given, found)


def test_logs_do_not_change_the_key() -> None:
    log: list[Any] = []
    info: dict[str, Any] = {}
    shapes: set[Any] = set()

    class Counted:
        def __init__(self) -> None:
            self.sizes: list[int] = []

        def __call__(self, x: Any) -> Any:
            self.sizes.append(len(x))
            return np.sum(x)

    def appends(x: Any) -> Any:
        log.append(1)
        return np.sum(x)

    def stores(x: Any) -> Any:
        info["n"] = len(x)
        return np.sum(x)

    def adds(x: Any) -> Any:
        shapes.add(x.shape)
        return np.sum(x)

    for function in (appends, stores, adds, Counted()):
        compiled = gt.jit(function)
        for length in (2, 3) * 6:
            assert float(compiled(np.ones(length))) == length
        assert compiled.site.traces == 2
    assert log == [1] * 12 and info == {"n": 3} and shapes == {(2,), (3,)}


def test_a_log_that_is_read_is_checked() -> None:
    log: list[int] = []

    def f(x: Any) -> Any:
        return np.sum(x) * len(log)

    compiled = gt.jit(f)
    for length in range(4):
        assert float(compiled(X)) == 7.0 * length
        log.append(1)


def test_a_tape_that_recorded_outside_is_asked_inside() -> None:
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(X)
        y = np.sum(x**2)
    np.testing.assert_allclose(gt.jit(lambda: tape.gradient(y, x))(), 2 * X)
    np.testing.assert_allclose(gt.jit(lambda z: z * tape.gradient(y, x))(3.0), 6 * X)
    np.testing.assert_allclose(gt.jit(lambda: tape.jacobian(y, x))(), 2 * X)


@pytest.mark.parametrize("make", [np.ones, np.zeros, np.eye, lambda n: np.full(n, 3.0)])
def test_a_constant_made_by_numpy_has_a_derivative_by_its_name(make: Any) -> None:
    def f(x: Any) -> Any:
        c = make(3)
        (first,) = gt.gradients(np.sum(x * c * c), c)
        (second,) = gt.hessians(np.sum(x * c * c), c)
        return first, np.sum(second)

    c = make(3)
    first, second = gt.jit(f)(X)
    np.testing.assert_allclose(first, 2.0 * c * X)
    np.testing.assert_allclose(second, 2.0 * np.sum(X) * (3 if c.ndim == 2 else 1))


def test_a_constant_of_which_numpy_computes_is_refused_as_a_source() -> None:
    def powers(x: Any) -> Any:
        c = np.ones(3)
        return gt.gradients(np.sum(x * c**2) + np.sum(x * c), c)

    def view(x: Any) -> Any:
        c = np.eye(3)
        return gt.gradients(np.sum(x * c[0]), c)

    for function in (powers, view):
        with pytest.raises(gt.errors.ArgumentError, match="NumPy has computed with it"):
            gt.jit(function)(X)


@pytest.mark.parametrize("size", [1, 8])
def test_a_loop_masks_by_a_condition_that_is_known(size: int) -> None:
    def f(a: Any, b: Any) -> Any:
        for t in iter(range(9)):
            a = np.where(t % 2 == 0, a, b * a)
            while np.max(np.abs(a)) > 0.05 and t < 8:
                a = a * 0.8
        return np.sum(a * a)

    rng = np.random.default_rng(0)
    gradient = gt.grad(f)
    for _ in range(3):
        a, b = rng.normal(size=size), rng.normal(size=size)
        step = 1e-6 * np.eye(size)
        wanted = [(f(a + d, b) - f(a - d, b)) / 2e-6 for d in step]
        np.testing.assert_allclose(gradient(a, b), wanted, atol=1e-6)


def test_masks_that_are_literals_pass_through_loops() -> None:
    def f(x: Any) -> Any:
        def body(c: Any, k: Any) -> Any:
            y = np.where(True, np.sqrt(c), c * k)
            return np.where(False, np.log(c), y), np.where(True, c, k)

        c, ys = gt.scan(body, x, np.arange(4.0))
        return np.sum(c) + np.sum(np.where(True, ys, 1 / ys))

    for x in (X, 3.0):
        gt.check_grads(f, (x,))


def test_the_page_of_keys_names_every_case() -> None:
    text = (Path(__file__).parents[3] / "docs/explanation/keys.md").read_text()
    named = {
        word
        for line in text.splitlines()
        if line.startswith("|")
        for word in re.findall(r"`(\w+)`", line.rpartition(" | ")[2])
    }
    assert named == CASES.keys()


def test_items_are_set_in_each_call_and_keys_that_are_read_are_checked() -> None:
    info: dict[Any, Any] = {}
    numbers = np.arange(3)

    def f(x: Any) -> Any:
        info[numbers.size] = len(x)
        return np.sum(x) * 1.0

    compiled = gt.jit(f)
    compiled(X)
    numbers = np.arange(5)
    compiled(X)
    assert info == {3: 3, 5: 3}
    info.clear()
    compiled(X)
    assert info == {5: 3}


def _by_type(x: Any, n: Any) -> Any:
    weights = {int: 2.0, float: 3.0, bool: 4.0, np.float64: 5.0, np.float32: 6.0, np.ndarray: 7.0}
    assert isinstance(type(n), type) and issubclass(type("Made", (), {}), object)
    return np.sum(x) * weights[type(n)] * (2.0 if type(n * 1) is type(n) else 1.0)


@pytest.mark.parametrize("transform", [gt.jit, lambda f: lambda *args: gt.value_and_grad(f)(*args)[0]])
def test_the_exact_type_of_a_number_is_that_which_numpy_would_see(transform: Any) -> None:
    compiled = transform(_by_type)
    for n in (1, 1.0, True, np.float64(1), np.float32(1), np.ones(2), 1, 1.0):
        assert float(compiled(X, n)) == float(_by_type(X, n)), type(n)


def test_classes_are_made_and_derived_from_type_in_traced_functions() -> None:
    def made(x: Any) -> Any:
        class Meta(type):
            factor = 2.0

        kind = Meta("Kind", (), {})
        return x * kind.factor * (3.0 if type(kind) is Meta and isinstance(kind, type) else 1.0)

    assert float(gt.jit(made)(2.0)) == made(2.0) == 12.0


def test_a_number_of_a_tape_is_as_weak_in_a_compiled_function_as_outside():
    """A Python number takes the dtype of the array that it meets, also where a tape watches it."""
    x = np.ones(2, np.float32)
    f = gt.jit(lambda w, x: w * x)
    with gt.GradientTape() as tape:
        w = tape.watch(2.0)
        assert (w * x).dtype == f(w, x).dtype == np.float32
        strong = tape.watch(np.float64(2.0))
        assert (strong * x).dtype == f(strong, x).dtype == np.float64


def test_lists_and_dicts_that_contain_themselves_are_captured():
    ring: list = []
    ring.append(ring)
    table: dict = {}
    table["own"] = table

    class Holder:
        scale = 2.0
        rings = (ring, table)

    holder = Holder()
    holder.ring = ring
    f = gt.jit(lambda x: x * holder.scale + len(holder.ring) + len(holder.rings))
    np.testing.assert_array_equal(f(np.ones(2)), [5.0, 5.0])
    ring.append(1)
    np.testing.assert_array_equal(f(np.ones(2)), [6.0, 6.0])
    of_argument = gt.jit(lambda holder, x: x * holder.scale + len(holder.ring))
    np.testing.assert_array_equal(of_argument(holder, np.ones(2)), [4.0, 4.0])
