"""The decorator: signatures, branches, in-place code, and what belongs to the caller."""

import ctypes
import inspect
import math
import threading
from unittest import mock

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import CompileWarning
from gradtape.kinds.contract import Contract


def test_one_trace_for_each_signature():
    @gt.jit
    def f(x, y=1.0):
        return x * 2 + y

    for _ in range(3):
        np.testing.assert_array_equal(f(np.arange(3.0)), np.arange(3.0) * 2 + 1)
    assert f.site.traces == 1
    f(np.arange(4.0))
    f(np.arange(3, dtype=np.float32))
    f(np.arange(3.0), 2.0)
    f(np.arange(3.0), y=2.0)
    assert f.site.traces == 5


def test_name_docstring_and_signature_are_kept():
    @gt.jit
    def f(x, *, scale=1.0):
        """Scale."""
        return x * scale

    assert (
        f.__name__ == "f"
        and f.__doc__ == "Scale."
        and list(inspect.signature(f).parameters) == ["x", "scale"]
    )
    assert gt.grad(f).__name__ == "grad(f)"


def test_nested_arguments_and_results():
    @gt.jit
    def f(p, flag):
        return {"a": p["x"] * 2, "b": [p["y"], None], "flag": flag}

    out = f({"x": np.ones(2), "y": 3.0}, "on")
    np.testing.assert_array_equal(out["a"], [2.0, 2.0])
    assert out["b"] == [3.0, None] and out["flag"] == "on"


def test_methods_and_functions_without_arguments():
    class Model:
        scale = 3.0

        @gt.jit
        def apply(self, x):
            return x * self.scale

    model = Model()
    for _ in range(2):
        np.testing.assert_array_equal(model.apply(np.ones(2)), [3.0, 3.0])

    @gt.jit
    def nothing():
        return np.ones(2), 1.0, None

    first, second = nothing(), nothing()
    assert first[1:] == (1.0, None)
    first[0][0] = 7
    np.testing.assert_array_equal(second[0], [1.0, 1.0])
    np.testing.assert_array_equal(nothing()[0], [1.0, 1.0])


def test_static_arguments():
    @gt.jit(static_argnums=1, static_argnames="mode")
    def f(x, n, mode="a"):
        assert type(n) is int
        return x * n if mode == "a" else x + n

    assert float(f(np.float64(2.0), 3)) == 6.0
    assert float(f(np.float64(2.0), 4)) == 8.0
    assert float(f(np.float64(2.0), 4, mode="b")) == 6.0


def test_results_are_fresh_and_arguments_stay():
    @gt.jit
    def f(x):
        y = x
        y[0] = 5.0
        y *= 2
        return y, x

    data = np.arange(3.0)
    for _ in range(2):
        a, b = f(data)
        np.testing.assert_array_equal(data, np.arange(3.0))
        np.testing.assert_array_equal(a, [10.0, 2.0, 4.0])
        np.testing.assert_array_equal(b, a)
        assert a is not b
        a[:] = 0
    assert f(data)[0][0] == 10.0


def branchy(x):
    if x > 1:
        return x * 2
    if x < -1:
        return -x
    return x**2


def test_branches_are_guards():
    f = gt.jit(branchy)
    for value in (3.0, -2.0, 0.5, 4.0, -3.0, 0.25, 1.0):
        assert float(f(value)) == branchy(value)
    assert f.site.traces == 3
    g = gt.grad(branchy)
    assert [float(g(v)) for v in (3.0, -2.0, 0.5, 5.0)] == [2.0, -1.0, 1.0, 2.0]


def test_integers_from_values_are_guards():
    @gt.jit
    def f(x, n):
        total = x * 0
        for k in range(int(n)):
            total = total + x[k]
        return total

    x = np.arange(5.0)
    assert [float(f(x, n)[0]) for n in (2, 3, 2, 4)] == [1.0, 3.0, 1.0, 6.0]
    assert f.site.traces == 3


@pytest.mark.parametrize("whole", [int, round, math.floor, math.ceil, math.trunc])
def test_whole_numbers_from_floats_are_guards(whole):
    @gt.jit
    def f(x):
        return x * whole(x[0])

    for first in (1.2, 1.4, 2.7, -3.9, 1.3):
        x = np.array([first, 2.0])
        assert f(x).tolist() == (x * whole(x[0])).tolist()
        assert gt.jvp(f, (x,), (np.ones(2),))[1].tolist() == [whole(x[0])] * 2
    assert f.site.traces == 3


def test_rounding_to_digits_is_followed():
    f = gt.jit(lambda x: round(x[0], 1) + x[1])
    assert [float(f(np.array([v, 1.0]))) for v in (0.26, 0.74)] == [1.3, 1.7]
    assert f.site.traces == 1


def test_argmax_as_an_index_and_python_min_max_sorted():
    @gt.jit
    def f(x):
        return x[np.argmax(x)] * 10 + max(x[0], x[1]) + sorted([x[2], x[0], x[1]])[0]

    for x in ([1.0, 2.0, 3.0], [5.0, 2.0, 3.0], [1.0, 9.0, 3.0]):
        x = np.array(x)
        assert float(f(x)) == x.max() * 10 + max(x[0], x[1]) + x.min()


def test_while_loops_on_values():
    @gt.jit
    def root(a):
        x = a
        while abs(x * x - a) > 1e-9:
            x = 0.5 * (x + a / x)
        return x

    for a in (2.0, 3.0, 4.0, 9.0):
        assert math.isclose(root(a), math.sqrt(a), rel_tol=1e-9)
        assert math.isclose(gt.grad(root)(a), 0.5 / math.sqrt(a), rel_tol=1e-6)


def test_too_many_traces_warn_once_and_stay_correct():
    @gt.jit
    def f(n):
        return np.float64(1.0) * int(n)

    with pytest.warns(gt.errors.TraceLimitWarning, match="trace_limit") as caught:
        for n in range(gt.config.trace_limit + 4):
            assert float(f(n)) == n
    assert len(caught) == 1
    assert f.site.traces == gt.config.trace_limit


@pytest.mark.parametrize(
    "body",
    [
        lambda x: float(x),
        lambda x: math.modf(x),
        lambda x: x.item(),
        lambda x: x.numpy(),
    ],
)
def test_numbers_of_traced_values_are_an_error(body):
    raised = pytest.raises(gt.errors.ConcretizationError, match=r"test_jit\.py")
    with gt.config.override(loops="trace"), raised:
        gt.jit(body)(1.5)


def test_writing_into_a_plain_array_from_outside():
    y = np.zeros(3)

    @gt.jit
    def f(x):
        y[0] = x
        return y

    for x in (1.0, 2.0):
        assert f(x).tolist() == y.tolist() == [x, 0.0, 0.0]


def test_augmented_assignment_to_a_plain_array_is_followed():
    @gt.jit
    def f(x):
        n = np.ones(3)
        n += x
        return n * 2

    np.testing.assert_array_equal(f(np.arange(3.0)), [2.0, 4.0, 6.0])


def test_leaked_value():
    kept = ctypes.py_object()  # of which captures know nothing

    @gt.jit
    def f(x):
        kept.value = x * 2
        return x

    f(np.ones(2))
    with pytest.raises(gt.errors.LeakedValueError):
        kept.value.numpy()


def test_jit_of_jit_and_grad_of_jit_of_grad():
    inner = gt.jit(lambda x: np.sin(x) * 2)
    outer = gt.jit(lambda x: inner(x) + 1)
    assert math.isclose(outer(0.3), 2 * math.sin(0.3) + 1)
    second = gt.grad(gt.jit(gt.grad(lambda x: gt.jit(np.sin)(x) ** 2)))
    assert math.isclose(second(0.3), 2 * math.cos(0.6))


def test_unusual_layouts_and_byte_orders():
    f = gt.jit(lambda x: np.sum(x * np.arange(4.0)))
    base = np.arange(8.0)
    expected = float(np.sum(base[::2] * np.arange(4.0)))
    read_only = base[::2].copy()
    read_only.flags.writeable = False
    for x in (base[::2], base[::2].astype(">f8"), read_only, base[6::-2][::-1]):
        assert float(f(x)) == expected


def test_subclasses_are_refused():
    f = gt.jit(lambda x: x * 2)
    with pytest.raises(gt.errors.ArraySubclassError, match="matrix"):
        f(np.ones((2, 2)).view(np.matrix))
    with pytest.raises(gt.errors.ArraySubclassError, match="Masked"):
        f(np.ma.masked_array([1.0, 2.0], [True, False]))


def test_signatures_are_bounded():
    f = gt.jit(lambda x: x * 2)
    with gt.config.override(memory_cache=4):
        for n in range(1, 9):
            np.testing.assert_array_equal(f(np.ones(n)), np.full(n, 2.0))
        assert len(f.site.signatures) == 4
        np.testing.assert_array_equal(f(np.ones(1)), [2.0])


def test_threads_share_one_function():
    f = gt.jit(lambda x: np.sum(np.exp(x)))
    results = []

    def work(k):
        results.extend((k, float(f(np.full(10 + k % 3, 0.1 * k)))) for _ in range(50))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 300
    for k, got in results:
        assert math.isclose(got, (10 + k % 3) * math.exp(0.1 * k), rel_tol=1e-12)
    assert f.site.traces == 3


def test_out_of_bounds_gathers_raise():
    f = gt.jit(lambda x, k: x[k])
    np.testing.assert_array_equal(f(np.arange(3.0), np.array([0, -1])), [0.0, 2.0])
    for _ in range(2):
        with pytest.raises(IndexError):
            f(np.arange(3.0), np.array([0, 3]))


def test_views_write_through_and_snapshots_hold():
    weights = np.array([1.0, 2.0])

    @gt.jit
    def f(x):
        y = x.copy()
        y.T[0, 1] = 7.0
        y.reshape(-1)[0] = 9.0
        return y @ weights

    x = np.arange(4.0).reshape(2, 2)
    expected = np.array([[9.0, 1.0], [7.0, 3.0]]) @ weights
    np.testing.assert_array_equal(f(x), expected)
    weights[:] = 1
    np.testing.assert_array_equal(f(x), [10.0, 10.0])


def test_value_and_grad_with_aux_argnums_and_keywords():
    def f(x, y, *, k=1.0):
        return np.sum(x * y["a"]) * k, {"twice": x * 2}

    (value, aux), (gx, gy) = gt.value_and_grad(f, argnums=(0, 1), has_aux=True)(
        np.ones(2), {"a": np.arange(2.0)}, k=3.0
    )
    assert float(value) == 3.0
    np.testing.assert_array_equal(aux["twice"], [2.0, 2.0])
    np.testing.assert_array_equal(gx, [0.0, 3.0])
    np.testing.assert_array_equal(gy["a"], [3.0, 3.0])


@pytest.mark.parametrize(
    "failure, said",
    [
        (RuntimeError("no memory"), "no memory"),
        (TypeError("a defect"), "TypeError: a defect"),
        (AssertionError(), "AssertionError"),
    ],
)
def test_what_fails_to_compile_runs_on_the_interpreter(failure, said):
    number = len(said)  # a program of its own: kernels are kept
    f = gt.jit(lambda x: np.sum(np.sin(x) * 0.6251) ** number)
    broken = mock.patch("gradtape.lower.pipeline.lower", side_effect=failure)
    x = np.arange(3.0)
    with broken, gt.config.override(disk_cache=False), pytest.warns(CompileWarning, match=said):
        assert np.isclose(f(x), np.sum(np.sin(x) * 0.6251) ** number)


def test_a_pullback_computes_no_product_of_the_way_forward_again():
    products = []
    evaluate = Contract.evaluate

    def counted(self, *given):
        products.append(self)
        return evaluate(self, *given)

    w, x = np.cos(np.arange(9.0)).reshape(3, 3), np.arange(6.0).reshape(2, 3)
    with gt.config.override(jit=False), mock.patch.object(Contract, "evaluate", counted):
        _, pullback = gt.vjp(lambda x: np.tanh(np.tanh(x @ w) @ w), x)
        assert len(products) == 2
        for round_ in (1, 2):
            pullback(np.ones((2, 3)))
            assert len(products) == 2 + 2 * round_
